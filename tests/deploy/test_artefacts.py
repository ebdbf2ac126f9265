"""The files of docs/deploy/ are what they claim to be: they parse, and what they call exists."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from fumehood_sandbox import Backend
from fumehood_sandbox.seccomp import deny_list
from fumehood_server.cli.root import fumehood as root
from fumehood_server.config import load_config

_DEPLOY = Path(__file__).resolve().parents[2] / "docs" / "deploy"
_MUST_NOT_BE_SET = {
    "RestrictNamespaces", "SystemCallFilter", "ProtectKernelTunables", "ProtectKernelLogs", "ProcSubset",
    "ProtectHostname", "ProtectControlGroups", "MemoryDenyWriteExecute",
}  # fmt: skip
"""By the table of README.md, which a test holds against this."""
_POD_ADDRESS = "unix:/run/fumehood/sidecar/fumehood.sock"
_NEEDED_BY_BUBBLEWRAP = {"clone", "clone3", "unshare", "setns", "mount", "umount2", "pivot_root", "sethostname"}


def _service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names of directives have capitals
    parser.read(_DEPLOY / "fumehood.service")
    return parser["Service"]


def _pods() -> list[dict[str, Any]]:
    documents = list(yaml.safe_load_all((_DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    assert [each["kind"] for each in documents] == ["ConfigMap", "Pod", "ConfigMap", "Pod"]
    return documents


def _sidecars() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each pod beside its sidecar's container."""
    pods = [each["spec"] for each in _pods() if each["kind"] == "Pod"]
    return [(pod, pod["initContainers"][0]) for pod in pods]


def _run_lines() -> list[list[str]]:
    text = (_DEPLOY / "docker.md").read_text(encoding="utf-8")
    return [shlex.split(block) for block in re.findall(r"```sh\n(docker run .*?)```", text, re.DOTALL)]


def _commands() -> list[list[str]]:
    """Every call of `fumehood` in the files."""
    found = [shlex.split(_service()["ExecStart"])]
    for _, container in _sidecars():
        found += [container["command"], container["startupProbe"]["exec"]["command"]]
    found += [["fumehood", *line[line.index("registry.example/fumehood") + 1 :]] for line in _run_lines()]
    return found


@pytest.mark.parametrize("command", _commands(), ids=shlex.join)
def test_commands_are_ones_that_the_cli_takes(command: list[str]) -> None:
    assert Path(command[0]).name == "fumehood"
    name, *arguments = command[1:]
    with click.Context(root) as context:
        subcommand = root.get_command(context, name)
    assert subcommand is not None
    known = {option for parameter in subcommand.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {each for each in arguments if each.startswith("-")} <= known
    # Where they run, nothing can be written beside the configuration: a first start would try to pin, and fail.
    assert name != "serve" or "--locked" in arguments


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_unit_is_one_that_systemd_takes() -> None:
    """Its program is replaced by one that exists; everything else is verified as it is."""
    analyze = shutil.which("systemd-analyze")
    assert analyze is not None
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "fumehood.service"
        text = (_DEPLOY / "fumehood.service").read_text(encoding="utf-8")
        unit.write_text(text.replace("/opt/fumehood/bin/fumehood", "/bin/true"), encoding="utf-8")
        done = subprocess.run([analyze, "verify", unit], capture_output=True, check=False, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        unit.write_text(text.replace("/opt/fumehood/bin/fumehood", "/nowhere/fumehood"), encoding="utf-8")
        done = subprocess.run([analyze, "verify", unit], capture_output=True, check=False, text=True, timeout=60)
        assert done.returncode != 0


def test_unit_sets_nothing_that_the_sandbox_can_not_live_with() -> None:
    service = _service()
    assert _MUST_NOT_BE_SET & set(service) == set()
    assert "AF_NETLINK" in service["RestrictAddressFamilies"].split()
    assert service["Delegate"] == "yes"
    page = (_DEPLOY / "README.md").read_text(encoding="utf-8")
    table = page.split("| must not be set | since |")[1].split("\n\n")[0]
    assert {name for name in re.findall(r"`(\w+)=", table) if name[0].isupper()} == _MUST_NOT_BE_SET


def test_unit_gives_the_drain_its_time() -> None:
    drain_s = load_config(None).server.drain_s
    assert int(_service()["TimeoutStopSec"].removesuffix("s")) > drain_s


def test_pods_hold_configurations_that_load_and_say_which_strength_they_accept() -> None:
    found = []
    for each in _pods():
        if each["kind"] == "ConfigMap":
            text = each["data"]["fumehood.toml"]
            assert tomllib.loads(text)["server"]["listen"] == [_POD_ADDRESS]
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "fumehood.toml"
                path.write_text(text, encoding="utf-8")
                found.append(load_config(path).sandbox.minimum)
    assert found == [Backend.LANDLOCK, Backend.NAMESPACES]


def test_pods_mount_what_they_name_and_share_the_socket_alone() -> None:
    for pod, sidecar in _sidecars():
        volumes = {volume["name"] for volume in pod["volumes"]}
        (application,) = pod["containers"]
        mounts = [{mount["name"] for mount in each["volumeMounts"]} for each in (sidecar, application)]
        assert mounts[0] == volumes
        assert mounts[0] & mounts[1] == {"socket"}
        assert sidecar["resources"]["limits"]["memory"]
        assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume)


def test_pods_talk_over_a_socket_that_nobody_can_replace() -> None:
    """An emptyDir is everybody's to write to, so the socket lies in a folder of the sidecar's own, for one user."""
    for pod, sidecar in _sidecars():
        (application,) = pod["containers"]
        assert {"name": "FUMEHOOD_ADDRESS", "value": _POD_ADDRESS} in application["env"]
        probe = sidecar["startupProbe"]["exec"]["command"]
        assert probe[probe.index("--address") + 1] == _POD_ADDRESS
        folder = Path(_POD_ADDRESS.removeprefix("unix:")).parent
        (volume,) = [mount["mountPath"] for mount in sidecar["volumeMounts"] if mount["name"] == "socket"]
        assert Path(volume) in folder.parents
        assert pod["securityContext"]["runAsUser"] > 0
        assert all("runAsUser" not in each.get("securityContext", {}) for each in (sidecar, application))


def test_pods_differ_in_what_namespaces_need() -> None:
    (landlock, without), (namespaces, with_them) = _sidecars()
    assert "hostUsers" not in landlock
    assert "procMount" not in without["securityContext"]
    assert landlock["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert namespaces["hostUsers"] is False
    assert with_them["securityContext"]["procMount"] == "Unmasked"
    assert with_them["securityContext"]["seccompProfile"]["type"] == "Localhost"
    for each in (without, with_them):
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert each["securityContext"]["allowPrivilegeEscalation"] is False


def test_profile_lets_namespaces_be_made_and_denies_only_what_plugins_are_denied_too() -> None:
    profile = json.loads((_DEPLOY / "seccomp.json").read_text(encoding="utf-8"))
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    (rule,) = profile["syscalls"]
    assert rule["action"] == "SCMP_ACT_ERRNO"
    names = set(rule["names"])
    assert len(names) == len(rule["names"])
    assert names & _NEEDED_BY_BUBBLEWRAP == set()
    assert names <= {each.syscall for each in deny_list() if not each.conditions}


def test_run_lines_of_root_keep_what_root_needs() -> None:
    assert len(_run_lines()) == 4
    for line in _run_lines():
        is_root = line[line.index("--user") + 1] == "0:0"
        assert not (is_root and "--cap-drop" in line)


def test_run_lines_leave_the_drain_its_time() -> None:
    drain_s = load_config(None).server.drain_s
    for line in _run_lines():
        assert int(line[line.index("--stop-timeout") + 1]) > drain_s
