"""Command lines are taken apart as their launchers do it, and what no sandbox can hold is refused with what to do."""

from __future__ import annotations

import base64
import random
import string

import pytest
from fumehood_server.cli.mcp_import.launchers import (
    Launch,
    NotImportableError,
    ServerCommand,
    npm_name,
    parse_command,
)
from fumehood_server.cli.mcp_import.secret_values import looks_like_a_secret, secret_argument

FILES = "@modelcontextprotocol/server-filesystem"


@pytest.mark.parametrize(
    ("line", "requirement", "script", "arguments"),
    [
        (["npx", "-y", FILES, "/srv"], FILES, "", ("/srv",)),
        (["npx", "--yes", f"{FILES}@2026.8.31", "-y"], f"{FILES}@2026.8.31", "", ("-y",)),
        (["npx", "-y", "--", "pkg@latest"], "pkg@latest", "", ()),
        (["npx", "-p", "pkg@^1", "tool", "--flag"], "pkg@^1", "tool", ("--flag",)),
        (["npx", "--package=pkg", "tool"], "pkg", "tool", ()),
        (["C:\\Program Files\\nodejs\\npx.cmd", "-y", "pkg"], "pkg", "", ()),
        (["cmd", "/c", "npx", "-y", "pkg", "x"], "pkg", "", ("x",)),
        (["npm", "exec", "-y", "--", "pkg", "x"], "pkg", "", ("x",)),
        (["pnpm", "dlx", "pkg"], "pkg", "", ()),
        (["bunx", "--bun", "pkg"], "pkg", "", ()),
    ],
)
def test_npm_launchers(line: list[str], requirement: str, script: str, arguments: tuple[str, ...]) -> None:
    found = parse_command(line[0], line[1:])
    assert found == ServerCommand(launch=Launch.NPM, requirement=requirement, script=script, arguments=arguments)


@pytest.mark.parametrize(
    ("line", "requirement", "script", "others"),
    [
        (["uvx", "mcp-server-time"], "mcp-server-time", "mcp-server-time", ()),
        (["uvx", "mcp-server-time@2.0"], "mcp-server-time==2.0", "mcp-server-time", ()),
        (["/root/.local/bin/uvx", "mcp-server-git@latest"], "mcp-server-git", "mcp-server-git", ()),
        (["uvx", "--from", "pkg[extra]>=1", "tool"], "pkg[extra]>=1", "tool", ()),
        (["uvx", "--with", "a,b==2", "-q", "pkg"], "pkg", "pkg", ("a", "b==2")),
        (["uv", "tool", "run", "pkg"], "pkg", "pkg", ()),
        (["pipx", "run", "--spec", "pkg==1", "tool"], "pkg==1", "tool", ()),
        (["env", "A=b", "uvx", "pkg"], "pkg", "pkg", ()),
    ],
)
def test_python_launchers(line: list[str], requirement: str, script: str, others: tuple[str, ...]) -> None:
    found = parse_command(line[0], line[1:])
    assert (found.launch, found.requirement, found.script, found.others) == (Launch.PYPI, requirement, script, others)


@pytest.mark.parametrize(
    "line",
    [
        ["--directory", "/srv", "run", "x.py", "--flag"],
        ["run", "--project=/srv", "--frozen", "python", "x.py", "--flag"],
        ["run", "/srv/x.py", "--flag"],
    ],
)
def test_a_script_that_uv_runs_is_found(line: list[str]) -> None:
    found = parse_command("uv", line)
    assert (found.launch, found.script, found.arguments) == (Launch.PROGRAM, "python3", ("/srv/x.py", "--flag"))


def test_packages_beside_a_script_that_uv_runs_are_found() -> None:
    found = parse_command("uv", ["run", "--with", "mcp[cli]", "x.py"])
    assert (found.others, found.arguments) == (("mcp[cli]",), ("x.py",))


def test_another_python_is_said_not_to_be_taken() -> None:
    assert parse_command("uvx", ["--python", "3.13", "pkg"]).notes == ("it runs with the sidecar's Python, not 3.13",)


def test_variables_that_env_sets_are_the_servers() -> None:
    found = parse_command("env", ["A=b=c", "node", "x.js"])
    assert (found.launch, dict(found.environment), found.script) == (Launch.PROGRAM, {"A": "b=c"}, "node")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (["docker", "run", "-i", "--rm", "mcp/fetch"], "container", "image mcp/fetch"),
        (["/usr/bin/podman", "run", "x"], "container", "podman"),
        (["docker", "mcp", "gateway", "run"], "gateway", "Docker MCP Gateway"),
        (["thv", "run", "fetch"], "gateway", "ToolHive"),
        (["wassette", "serve", "--stdio"], "gateway", "Wassette"),
        (["sh", "-c", "npx -y pkg; curl evil"], "shell", "a shell (sh)"),
        (["bash", "-lc", "x"], "shell", "bash"),
        (["cmd", "/c"], "shell", "cmd"),
        (["env", "-S", "x"], "shell", "env"),
        (["npx", "-c", "echo"], "shell", "npx -c"),
        (["sudo", "npx", "pkg"], "other_user", "sudo"),
        (["ssh", "host", "server"], "elsewhere", "ssh"),
        (["uv", "--directory", "/srv", "run", "my-server"], "project", "uv run my-server"),
        (["npx", "-y", "mcp-remote@latest", "https://mcp.example.com/sse"], "bridge", "mcp-remote"),
        (["npx", "-p", "mcp-remote", "mcp-remote", "https://mcp.example.com/mcp"], "bridge", "mcp-remote"),
        (["uv", "sync"], "project", "uv sync"),
        (["python3", "-m", "mcp_server_time"], "module", "mcp_server_time"),
        (["npx"], "malformed", "nothing follows npx"),
        (["npx", "-y", "github:user/repo"], "not_a_package", "github:user/repo"),
        (["npx", "-y", "../../x"], "not_a_package", "../../x"),
        (["npx", "-y", "https://evil/x.tgz"], "not_a_package", "https"),
        (["npx", "--registry", "http://x", "pkg"], "unknown_option", "--registry"),
        (["uvx", "git+https://x/y"], "not_a_package", "git+https"),
        (["uvx", "--from", "x @ https://evil/x.whl", "x"], "not_a_package", "address"),
        (["uvx", "--index-url", "http://x", "pkg"], "unknown_option", "--index-url"),
    ],
)
def test_what_no_sandbox_can_hold_is_refused_with_what_to_do(line: list[str], code: str, said: str) -> None:
    with pytest.raises(NotImportableError) as caught:
        parse_command(line[0], line[1:])
    assert (caught.value.code, said in caught.value.reason, bool(caught.value.todo)) == (code, True, True)


def test_an_npm_package_is_name_and_version() -> None:
    assert npm_name(f"{FILES}@1.0.0") == (FILES, "1.0.0")
    assert npm_name("pkg") == ("pkg", "")


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("GITHUB_TOKEN", "x" * 8, True),
        ("apiKey", "12345678", True),
        ("OPENAI_API_KEY", "sk-0123456789abcdef", True),
        ("DB_PASSWORD", "hunter22", True),
        ("ANYTHING", "ghp_0123456789abcdef", True),
        ("HEADER", "Bearer abcdefgh1234", True),
        ("DATABASE", "postgresql://ada:pw@db/x", True),
        ("URL", "https://x/y?api_key=0123456789", True),
        ("BLOB", "Aa0" * 12, True),
        ("LOG_LEVEL", "info", False),
        ("USE_TOKEN", "true", False),
        ("API_URL", "https://api.example.com/v1", False),
        ("SSH_KEY_FILE", "/home/ada/.ssh/id", False),
        ("COMMIT", "0123456789abcdef0123456789abcdef01234567", False),
        ("MONKEY", "capuchin", False),
        ("TOKENIZERS_PARALLELISM", "4", False),
        ("DATA", "/srv/secret_documents", False),
        ("DATA", "~/secret_documents", False),
        ("TOKEN", "/srv/secret_documents", True),
        ("EMBEDDING_MODEL", "sentence-transformers/all-MiniLM-L6-v2", False),
        ("MODEL", "Qwen/Qwen2-5-Coder-32B-Instruct-AWQ", False),
        ("MODEL", "mistralai/Mixtral-8x7B-Instruct-v0-1-GGUF", False),
        ("MODEL", "sentence-transformers/ghp_0123456789abcdef", True),
        ("TOKEN", "sentence-transformers/all-MiniLM-L6-v2", True),
        ("SERVER", "task-management-server", False),
        ("SERVER", "task-sk-0123456789abcdef", True),
        ("SEED", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", True),
        ("SEED", "Correct-Horse-Battery-Staple-2024", True),
        ("SUPABASE", "sbp_0102030405060708090a0b0c0d0e0f1011121314", True),
    ],
)
def test_secrets_are_told_by_name_or_form(name: str, value: str, secret: bool) -> None:
    assert looks_like_a_secret(name, value) is secret


def test_random_text_with_slashes_is_a_secret_all_the_same() -> None:
    source = random.Random(7)  # noqa: S311 - texts of a test, the same each time
    kinds = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    texts = [base64.b64encode(source.randbytes(27), altchars).decode() for altchars in (b"+/", b"-/") * 5000]
    mixed = [each for each in texts if all(set(each) & set(kind) for kind in kinds)]
    assert sum("/" in each for each in mixed) > 1000
    assert [each for each in mixed if not looks_like_a_secret("X", each)] == []


@pytest.mark.parametrize(
    ("arguments", "index"),
    [
        (("--api-key", "abc"), 1),
        (("--token=abc", "x"), 0),
        (("x", "postgresql://ada:pw@db/x"), 1),
        (("--header", "Authorization: x", "ghp_0123456789abcdef"), 2),
        (("--token", "--verbose"), None),
        (("/srv/data", "--level=info", "postgresql://localhost/x"), None),
        (("--local-timezone=Europe/Berlin",), None),
        (("/srv/secret_documents", "./sk-notebooks", "../pypi-mirror-of-ours", "~/secret_documents"), None),
        (("--folder=/srv/secret_documents", "secret_documents"), 1),
        (("--token", "/srv/secret_documents"), 1),
    ],
)
def test_a_secret_among_arguments_is_found(arguments: tuple[str, ...], index: int | None) -> None:
    assert secret_argument(arguments) == index
