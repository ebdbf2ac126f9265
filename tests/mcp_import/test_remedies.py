"""What an import or `mcp wrap` says is to be done is what helps: the mistake is named, and where it is."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.mcp_import.environment_file import read_environment_file
from fumehood_server.cli.mcp_import.host_configuration import read_host_configuration
from fumehood_server.cli.mcp_import.json_document import read_json_document
from fumehood_server.cli.mcp_import.launchers import Launch, NotImportableError, parse_command

from tests.cli.command import fumehood

PEM = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"


def refusal(*line: str) -> NotImportableError:
    with pytest.raises(NotImportableError) as caught:
        parse_command(line[0], line[1:])
    return caught.value


def test_an_environment_file_is_read_as_vs_code_reads_it(tmp_path: Path) -> None:
    lines = {
        "KEY": ('"' + PEM.replace("\n", "\\n") + '"', PEM),
        "CR": (r'"a\rb"', "a\rb"),
        "SINGLE": (r"'a\nb' # no", r"a\nb"),
        "BACK": ('`it\'s "so" # a` # no', 'it\'s "so" # a'),
        "BARE": (r"a\nb c # no", r"a\nb c"),
        "HASH": ("a#b", "a"),
        "INNER": (r'"a \"b\" # c"', r"a \"b\" # c"),
        "OPEN": ('"a # b', '"a # b'),
        "EMPTY": ("", ""),
    }
    path = tmp_path / ".env"
    text = "".join(f"export {name} = {written}\r\n" for name, (written, _) in lines.items())
    path.write_bytes(b"\xef\xbb\xbf" + f"FIRST: one\rSECOND=a\x0bb\nnonsense\n{text}".encode())
    expected = {"FIRST": "one", "SECOND": "a\x0bb", **{name: value for name, (_, value) in lines.items()}}
    assert read_environment_file(path) == expected


@pytest.mark.parametrize(
    ("content", "line"), [(b'{\n"a": 1,\n}}', 3), (b'{\n\n\n"a" 1}', 4), (b'{\n"a": "\xff"}', 2), (b"", 1)]
)
def test_a_mistake_in_a_configuration_is_to_be_corrected_there(tmp_path: Path, content: bytes, line: int) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(content)
    with pytest.raises(CommandError) as caught:
        read_json_document(path)
    assert f"{path}:{line}: " in caught.value.what
    assert (f"Correct it there, in line {line} " in caught.value.todo, "Name" in caught.value.todo) == (True, False)


def test_a_command_with_its_arguments_in_one_text_is_said_to_be_that() -> None:
    for text in ("uvx mcp-server-time", "npx -y @scope/pkg", "/usr/bin/env node x.js", "docker run x"):
        found = refusal(text)
        assert (found.code, "one text" in found.reason, "`args`" in found.todo) == ("malformed", True, True)
    assert parse_command("/srv/my tools/serve", []).script == "/srv/my tools/serve"


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (("python3", "-c", "print(1)"), "-c"),
        (("python3.12", "-I", "-uc", "print(1)"), "-uc"),
        (("node", "-e", "1"), "-e"),
        (("node", "--eval=1"), "--eval"),
        (("perl", "-e", "1"), "-e"),
    ],
)
def test_a_programs_text_on_the_command_line_is_said_to_be_that(line: tuple[str, ...], option: str) -> None:
    found = refusal(*line)
    assert (found.code, f"{option}` runs a text" in found.reason, "1" in found.reason.partition("`")[2][12:]) == (
        "program", True, False,
    )  # fmt: skip


def test_uvs_own_options_may_stand_before_its_subcommand() -> None:
    for options in (["--quiet", "tool", "run"], ["--directory", "/srv", "tool", "run"], ["tool", "-q", "run", "-q"]):
        found = parse_command("uv", [*options, "pkg", "--flag"])
        assert (found.launch, found.requirement, found.arguments) == (Launch.PYPI, "pkg", ("--flag",))
    assert refusal("uv", "--quiet", "sync").code == "project"


def test_arguments_may_be_null_as_variables_may(tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": {"x": {"command": "cat", "args": None, "env": None}}}))
    (found,) = read_host_configuration(path).servers
    assert (found.problem, found.arguments, dict(found.environment)) == ("", (), {})


def test_wrap_says_what_takes_a_server_over_http(tmp_path: Path) -> None:
    done = fumehood("mcp", "wrap", "--", "https://mcp.example.com/mcp", folder=tmp_path)
    assert (done.status, "servers on stdio" in done.stderr, "fumehood mcp import" in done.stderr) == (1, True, True)


def test_wrap_speaks_of_its_own_option(tmp_path: Path) -> None:
    done = fumehood("mcp", "wrap", "--network", "example.com", "--", "cat", folder=tmp_path)
    assert "--network example.com: not NAME:PORT" in done.stderr
    assert "--network example.com:443" in done.stderr
    allowed = [part for each in ("example.com:443", "*.example.com:443", "[::1]:80", "10.0.0.1:80")
               for part in ("--network", each)]  # fmt: skip
    done = fumehood("mcp", "wrap", *allowed, "--", "no-such-program", folder=tmp_path)
    assert '"no-such-program" was not found' in done.stderr


def test_a_misspelt_name_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OF_FILE=x\n")
    server = {
        "command": "env",
        "args": ["SET=x", "cat"],
        "env": {"API_KEY": "0123456789", "REGION": "${input:region}"},
        "envFile": ".env",
    }
    far = {"type": "http", "url": "https://h.example/mcp", "headers": {"X-Key": "0123456789"}}
    inputs = [{"id": "region", "type": "promptString"}]
    (tmp_path / ".vscode").mkdir()
    path = tmp_path / ".vscode" / "mcp.json"
    path.write_text(json.dumps({"inputs": inputs, "servers": {"x": server, "far": far}}))
    names = [part for each in ("API_KEY", "OF_FILE", "SET", "X-Key", "url") for part in ("--plain", each)]
    good = (path, "--dry-run", "--input", "region=eu", "--workspace", tmp_path, *names)
    assert fumehood("mcp", "import", *good, folder=tmp_path).status == 0
    for option, said in (
        (("--plain", "APIKEY"), "--plain APIKEY: "),
        (("--input", "regoin=secret0"), "--input regoin: "),
        (("--workspace", "/no/such"), "--workspace /no/such is no folder"),
    ):
        done = fumehood("mcp", "import", *good, *option, folder=tmp_path)
        assert (done.status, said in done.stderr, "secret0" in done.stderr) == (2, True, False), done.stderr


class _Old(BaseHTTPRequestHandler):
    """Answers a POST as a server of the HTTP+SSE transport does."""

    def do_POST(self) -> None:
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_server_of_the_older_transport_is_said_to_be_one(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Old) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for path, is_old in (("/sse", True), ("/mcp", False)):
            entry = {"type": "http", "url": f"{url}{path}"}
            (tmp_path / "mcp.json").write_text(json.dumps({"servers": {"far": entry}}))
            done = fumehood("mcp", "import", "mcp.json", "--yes", "--json", folder=tmp_path)
            todo = done.json["servers"][0]["problem"]["todo"]
            assert ("HTTP+SSE" in todo) is is_old, done.stdout
        server.shutdown()
