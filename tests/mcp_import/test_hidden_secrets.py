"""What is said of a server that can't be had holds no secret of its command line, its variables or its URLs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fumehood_server.cli.mcp_import.container_image import container_image
from fumehood_server.cli.mcp_import.outcome import Outcome
from fumehood_server.cli.mcp_import.shown_text import argument_secrets, hide, public_urls, shown

from tests.cli.command import fumehood

SECRET = "hunter2secret"  # noqa: S105 - of a test
TOKEN = "ghp_0123456789abcdef"  # noqa: S105 - likewise


def entry(command: str, *arguments: str, **more: Any) -> dict[str, Any]:
    return {"command": command, "args": list(arguments), **more}


SERVERS = {
    "image": entry(
        "docker", "run", "-i", "--rm", "-e", f"DATABASE_URL=postgresql://admin:{SECRET}@db/prod", "mcp/postgres"
    ),
    "mount": entry("docker", "run", "-i", "--mount", "type=bind,src=/x,dst=/y", "mcp/filesystem"),
    "pypi": entry("uvx", "--from", f"git+https://oauth2:{TOKEN}@gitlab.example/x/y", "tool"),
    "npm": entry("npx", "-y", f"git+https://{TOKEN}@github.example/x/y"),
    "wheel": entry("uvx", "--with", f"x @ https://u:{SECRET}@files.example/x.whl?key={SECRET}", "y"),
    "script": entry("uv", "run", f"https://u:{SECRET}@files.example/x.py"),
    "text": entry("python3", "-c", f"print('{SECRET}')"),
    "words": entry(f"npx -y pkg --token {SECRET}/x"),
    "assigned": entry(f"TOKEN={SECRET} npx pkg"),
    "address": entry(f"https://u:{SECRET}@h.example/mcp?token={SECRET}"),
    "port": {"type": "http", "url": f"https://user:{SECRET}/x@h.example/mcp"},
    "default": entry("npx", "pkg", f"${{env:X:-{SECRET}}}"),
    "box": entry(
        "npx",
        "-c",
        "x",
        sandboxEnabled=True,
        sandbox={"network": {"allowedDomains": [f"https://u:{SECRET}@h.example"]}},
    ),
    "path": entry("env", f"API_KEY={SECRET}", "node", f"/no/such/{SECRET}.js"),
}


def test_no_secret_is_said_of_a_server_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"servers": SERVERS}))
    for more in ((), ("--json",)):
        done = fumehood("mcp", "import", "mcp.json", "--dry-run", *more, folder=tmp_path)
        assert (done.status, SECRET in done.stdout + done.stderr, TOKEN in done.stdout + done.stderr) == (
            1,
            False,
            False,
        )
    said = {each["server"]: each["problem"]["message"] for each in done.json["servers"]}
    assert set(said) == set(SERVERS)
    for name, part in (
        ("image", "image mcp/postgres"),
        ("mount", "image mcp/filesystem"),
        ("pypi", "git+https://gitlab.example/x/y is no package"),
        ("npm", "git+https://github.example/x/y is no package"),
    ):
        assert part in said[name]


@pytest.mark.parametrize(
    "line",
    [
        ("docker", "run", "-e", f"TOKEN={SECRET}/abc", "mcp/x"),
        ("npx", "-y", f"git+https://{TOKEN}@github.example/x/y"),
        ("env", f"API_KEY={SECRET}", "node", f"/no/such/{SECRET}.js"),
        (f"https://u:{SECRET}@h.example/mcp?token={SECRET}",),
        (f"npx -y pkg --token {SECRET}/x",),
        (f"TOKEN={SECRET} npx pkg",),
    ],
)
def test_no_secret_is_said_of_a_command_that_cant_be_wrapped(tmp_path: Path, line: tuple[str, ...]) -> None:
    done = fumehood("mcp", "wrap", "--", *line, folder=tmp_path, more={"XDG_STATE_HOME": str(tmp_path)})
    assert (done.status, "can't be wrapped" in done.stderr) == (1, True), done.stderr
    assert (SECRET in done.stderr, TOKEN in done.stderr) == (False, False)


def test_a_value_behind_an_option_that_takes_a_name_or_a_host_is_not_said(tmp_path: Path) -> None:
    for option, value in (("--secret", f"TOKEN={SECRET}"), ("--network", f"https://u:{SECRET}@h.example")):
        done = fumehood("mcp", "wrap", option, value, "--", "cat", folder=tmp_path)
        assert (done.status, option in done.stderr, SECRET in done.stderr) == (2, True, False), done.stderr


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("https://h.example/x", "https://h.example/x"),
        ("at http://127.0.0.1:80/x.", "at http://127.0.0.1:80/x."),
        ("https://registry.npmjs.org/@scope/pkg", "https://registry.npmjs.org/@scope/pkg"),
        ("git+https://h.example/x/y@v1", "git+https://h.example/x/y@v1"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("http://localhost:${env:PORT}/x", "http://localhost:${env:PORT}/x"),
        ("`https://u:p@h.example/x`, and", "`https://h.example/x`, and"),
        ("https://u@h.example/x?a=b#c", "https://h.example/x?…"),
        ("https://u:p/q@h.example/x", "https://h.example/x"),
        ("https://u:p?q@h.example/x", "https://h.example/x"),
        ("https://u:secret", "https://"),
        ("postgresql://u:1/2@db/x", "postgresql://db/x"),
        ("redis://:p@h:1", "redis://h:1"),
        ("postgresql://${U}:${P}@db/x", "postgresql://db/x"),
    ],
)
def test_a_url_is_said_without_userinfo_and_query(text: str, public: str) -> None:
    assert public_urls(text) == public


def test_an_argument_of_a_tokens_form_is_not_said() -> None:
    assert (TOKEN in shown(TOKEN), shown("pkg@1.0")) == (False, "pkg@1.0")


def test_secrets_among_arguments_are_known() -> None:
    arguments = ("-e", f"API_KEY={SECRET}", "--token", "abcdefgh", f"--key={SECRET}x", "LEVEL=info", "pkg", TOKEN)
    assert argument_secrets(arguments) == {SECRET, "abcdefgh", f"{SECRET}x", TOKEN}


def test_the_longest_secret_is_hidden_first_and_short_ones_stay() -> None:
    assert hide(f"a {SECRET}x {SECRET} on", {"on", SECRET, f"{SECRET}x"}) == "a (hidden) (hidden) on"


def test_what_others_wrote_is_said_without_known_secrets() -> None:
    outcome = Outcome(server="x", notes=[f"a note of {SECRET}"], diff=f'+ url = "https://h.example/?a=b"\n+ {SECRET}')
    outcome.fail("not_started", f"npm: GET https://u:p@h.example/x failed, with {SECRET}", f"Look at {SECRET}.")
    outcome.conceal({SECRET})
    said = json.dumps(outcome.to_json())
    assert (SECRET in said, "u:p@" in said, "https://h.example/x failed" in said, "?a=b" in said) == (
        False, False, True, True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "image"),
    [
        (("run", "-i", "--rm", "mcp/fetch"), "mcp/fetch"),
        (("run", "-it", "--name", "a/b", "ghcr.io/x/y:1.0", "c/d"), "ghcr.io/x/y:1.0"),
        (
            ("container", "run", "--env=A=b/c", "localhost:5000/x/y@sha256:" + "0" * 64),
            "localhost:5000/x/y@sha256:" + "0" * 64,
        ),
        (("run", "-v", "/a:/b", "-w", "/c/d", "--network", "x/y", "--entrypoint", "a/b", "-u", "1:1", "x"), "x"),
        (("run", "-p80:80", "--env-file", "a/b", "x"), ""),
        (("run", "--no-such-option", "a/b", "x"), ""),
        (("compose", "run", "a/b"), ""),
        (("run", "-e"), ""),
        (("run", f"postgresql://u:{SECRET}@db/x"), ""),
        (("run", TOKEN), ""),
    ],
)
def test_the_image_is_no_options_value(arguments: tuple[str, ...], image: str) -> None:
    assert container_image(arguments) == image
