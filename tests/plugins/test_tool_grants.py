"""What a tool gets: its process's grants and key, its permission, its limits."""

from __future__ import annotations

from pathlib import Path

from fumehood_server.model.plugin import PluginState
from fumehood_server.model.tool import Permission

from .support import (
    ONE,
    catalog_of,
    executable,
    tool_toml,
)


async def test_a_process_gets_what_its_level_may_use_and_no_more(tmp_path: Path) -> None:
    for name in ("data", "notes"):
        (tmp_path / name).mkdir()
    tools = [tool_toml(f"at_{level}", side_effects=level) for level in ("none", "read", "write")]
    executable(tmp_path / "one", *tools, tool_toml("also_none"))
    grants = 'max_side_effects = "write"\nread = ["data"]\nwrite = ["notes"]\nmax_workers = 3\n'
    catalog = await catalog_of(tmp_path, ONE + grants)
    specs = {tool.definition.name: tool.spec for tool in catalog.tools}
    assert all(specs.values())
    policies = {name: spec.policy for name, spec in specs.items() if spec}
    data, notes = str(tmp_path / "data"), str(tmp_path / "notes")
    assert (policies["at_none"].read, policies["at_none"].write) == ((), ())
    assert (policies["at_read"].read, policies["at_read"].write) == ((data,), ())
    assert (policies["at_write"].read, policies["at_write"].write) == ((data,), (notes,))
    assert [policies[f"at_{level}"].level for level in ("none", "read", "write")] == ["none", "read", "write"]
    assert specs["also_none"] is specs["at_none"]
    assert len({spec.key for spec in specs.values() if spec}) == 3
    assert {spec.max_workers for spec in specs.values() if spec} == {3}


async def test_keys_differ_with_everything_that_a_process_could_touch(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    executable(tmp_path / "one", tool_toml("at_read", side_effects="read"))
    limits = "[tool.limits]\nmemory_bytes = 100000000\n"

    async def key(text: str) -> str:
        (tmp_path / "fumehood.lock").unlink(missing_ok=True)
        tool = (await catalog_of(tmp_path, text)).find("at_read")
        assert tool is not None
        assert tool.spec is not None
        return tool.spec.key

    plain = await key(ONE)
    assert await key(ONE) == plain
    keys = [plain, await key(ONE + 'read = ["data"]\n'), await key(ONE + "[limits.cap]\ncpu_s = 5\n")]
    executable(tmp_path / "one", tool_toml("at_read", side_effects="read", extra=limits))
    keys.append(await key(ONE))
    assert len(set(keys)) == len(keys)


async def test_the_kernels_limit_of_processor_time_leaves_room_to_end_a_call_by_its_own(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("lasting"), tool_toml("single", extra='isolation = "call"\n'))
    catalog = await catalog_of(tmp_path, ONE + "[limits.default]\ncpu_s = 5\n")
    specs = [tool.spec for tool in catalog.tools if tool.spec is not None]
    assert [(spec.isolation.value, spec.cpu_s) for spec in specs] == [("process", 5), ("call", 5)]
    # What is ended by the kernel can't say which limit it was.
    assert all(spec.policy.limits.cpu_s > spec.cpu_s for spec in specs)


async def test_permission_and_timeout_follow_the_level_unless_the_operator_says(tmp_path: Path) -> None:
    tools = [tool_toml(f"at_{level}", side_effects=level) for level in ("none", "read", "write")]
    executable(tmp_path / "one", *tools)
    text = ONE + 'max_side_effects = "write"\n'
    catalog = await catalog_of(tmp_path, text)
    assert [(tool.definition.name, tool.permission) for tool in catalog.tools] == [
        ("at_none", Permission.ALLOW),
        ("at_read", Permission.ALLOW),
        ("at_write", Permission.REQUIRE_APPROVAL),
    ]
    assert {tool.timeout_s for tool in catalog.tools} == {30.0}
    text += (
        '[plugin.tools.at_write]\npermission = "allow"\ntimeout_s = 2\n[plugin.tools.at_none]\npermission = "deny"\n'
        "[limits.cap]\ntimeout_s = 20\n"
    )
    catalog = await catalog_of(tmp_path, text)
    assert [(tool.permission, tool.timeout_s) for tool in catalog.tools] == [
        (Permission.DENY, 20.0),
        (Permission.ALLOW, 20.0),
        (Permission.ALLOW, 2.0),
    ]


async def test_a_table_for_a_tool_that_is_not_there_refuses_the_plugin(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("write_file"))
    await catalog_of(tmp_path, ONE + '[plugin.tools.write_file]\npermission = "deny"\n')
    catalog = await catalog_of(tmp_path, ONE + '[plugin.tools.write_fil]\npermission = "deny"\n')
    (plugin,) = catalog.plugins
    assert plugin.state is PluginState.REFUSED
    assert catalog.tools == ()
    message = plugin.reasons[0].message
    assert message.startswith(f"{tmp_path}/fumehood.toml:3: ")
    assert 'did you mean "write_file"?' in message
