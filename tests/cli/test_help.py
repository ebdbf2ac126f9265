"""Help pages teach, are quick, and every command has one with an example."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import TIMEOUT_S, fumehood

COMMANDS = [
    ("serve",),
    ("doctor",),
    ("tools",),
    ("call",),
    ("run",),
    ("reload",),
    ("completion",),
    *[("mcp", name) for name in ("import", "prompt", "prompts", "read", "resources", "wrap")],
    *[("plugin", name) for name in ("new", "check", "dev", "add", "list", "show", "logs", "reload")],
]


def test_without_arguments_the_whole_workflow_is_shown() -> None:
    done = fumehood()
    assert done.status == 0
    steps = ["doctor", "plugin new", "plugin dev", "plugin add", "serve", "tools", "call", "run"]
    places = [done.stdout.index(f"  fumehood {step}") for step in steps]
    assert places == sorted(places)
    assert "Exit status: 0 done; 1 the tool failed; 2 the call was wrong; 3 the sidecar can't be reached." in (
        " ".join(done.stdout.split())
    )


@pytest.mark.parametrize("group", [("approvals",), ("approvals", "standing"), ("policy",), ("plugin",)], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(group: tuple[str, ...]) -> None:
    done = fumehood(*group)
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout == fumehood(*group, "--help").stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_a_help_page_with_an_example(command: tuple[str, ...]) -> None:
    done = fumehood(*command, "--help")
    assert done.status == 0
    assert "Example" in done.stdout
    assert f"  fumehood {' '.join(command)}" in done.stdout or command == ("completion",)


def test_help_and_mistakes_load_neither_grpc_nor_rich_nor_pydantic() -> None:
    code = (
        "import sys\nfrom fumehood_server.cli import main\nsys.argv = ['fumehood', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('grpc', 'rich', 'pydantic', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_mistyped_command_is_status_2_and_the_near_one_is_named() -> None:
    done = fumehood("doctr")
    assert (done.status, done.stdout) == (2, "")
    assert "Did you mean 'doctor'?" in done.stderr
    done = fumehood("plugin", "lst", "--json")
    assert (done.status, done.error["code"]) == (2, "USAGE")


def test_the_version_is_printed() -> None:
    assert fumehood("--version").stdout.startswith("fumehood, version ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(shell: str) -> None:
    done = fumehood("completion", shell)
    assert done.status == 0
    assert "_FUMEHOOD_COMPLETE" in done.stdout


def test_the_installed_command_is_this_one() -> None:
    installed = Path(sys.executable).with_name("fumehood")
    done = subprocess.run([installed, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout == fumehood("--version").stdout
