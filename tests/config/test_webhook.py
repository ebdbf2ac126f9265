"""`[approvals.webhook]`: what it refuses, each beside what it takes; and what of it takes a restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_server.cli.doctor_webhook import webhook_findings
from fumehood_server.config import load_config
from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.restart import needs_restart
from fumehood_server.errors import ConfigError
from fumehood_server.model.caller import UnrestrictedRights
from fumehood_server.policy import ApprovalDesk, DeskSettings
from fumehood_server.webhook import open_webhook

WHOLE = """
[secrets.out]
file = "out"
[secrets.back]
file = "back"
[[caller]]
name = "desk"
approve = ["pay"]
[[caller]]
name = "nobody"
[approvals.webhook]
url = "https://approvals.example.com/hook"
secret = "out"
allow_private = ["127.0.0.1", "192.168.0.7"]
listen = "127.0.0.1:7433"
reply_secret = "back"
caller = "desk"
"""
URL, LISTEN = 'url = "https://approvals.example.com/hook"', 'listen = "127.0.0.1:7433"'


def loaded(folder: Path, text: str = WHOLE) -> SidecarConfig:
    path = folder / "fumehood.toml"
    path.write_text(text)
    return load_config(path)


def changed(**lines: str) -> str:
    """The table with other lines. Empty: without that one."""
    found = WHOLE
    for key, line in lines.items():
        old = next(each for each in WHOLE.splitlines() if each.startswith(f"{key} ="))
        found = found.replace(old, line)
    return found


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        changed(url='url = "http://127.0.0.1:8080/hook"'),
        changed(url='url = "https://192.168.0.7/hook"'),
        changed(listen='listen = "unix:decide.sock"'),
        changed(listen="", reply_secret="", caller=""),
        changed(url="", secret="", allow_private=""),
    ],
)
def test_what_can_be_kept_is_taken(tmp_path: Path, text: str) -> None:
    assert loaded(tmp_path, text).approvals.webhook is not None


def test_without_the_table_there_is_none(tmp_path: Path) -> None:
    assert loaded(tmp_path, "[approvals]\nmax_open = 3\n").approvals.webhook is None


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (WHOLE + 'sign = "out"\n', "sign", "unknown key"),
        (WHOLE + '[journal]\nstore = "off"\n', "", "no approval is kept"),
        ("[approvals.webhook]\n", "", "neither `url` nor `listen`"),
        (changed(secret=""), "url", "`secret` is missing"),
        (changed(caller=""), "listen", "`caller` is missing"),
        (changed(reply_secret=""), "listen", "`reply_secret` is missing"),
        (changed(url="", secret=""), "allow_private", "is for `url`"),
        (changed(secret='secret = "uot"'), "secret", 'no secret "uot"'),  # noqa: S106 - a name
        (changed(reply_secret='reply_secret = "none"'), "reply_secret", 'no secret "none"'),  # noqa: S106 - a name
        (changed(reply_secret='reply_secret = "out"'), "reply_secret", "the same one"),  # noqa: S106 - a name
        (changed(caller='caller = "dekc"'), "caller", 'no [[caller]] "dekc"'),
        (changed(caller='caller = "nobody"'), "caller", "may approve nothing"),
        (changed(url='url = "http://approvals.example.com/hook"'), "url", "is http"),
        (changed(url='url = "http://192.168.0.7/hook"'), "url", "is http"),
        (changed(url='url = "https://10.0.0.1/hook"'), "url", "which is private"),
        (changed(url='url = "https://127.0.0.1/"', allow_private=""), "url", "which is loopback"),
        (changed(url='url = "https://me:key@example.com/"'), "url", "user information"),
        (changed(url='url = "ftp://example.com/"'), "url", "can't be used"),
        (changed(allow_private='allow_private = ["10.0.0.0/8"]'), "allow_private", "10.0.0.0/8"),
        (changed(listen='listen = "0.0.0.0:7433"'), "listen", "other machines"),
        (changed(listen='listen = "7433"'), "listen", "not an address"),
        (WHOLE + '[[plugin]]\npath = "p"\n[plugin.tools.pay]\nsecrets = ["back"]\n', "secrets", "tool pay"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(tmp_path: Path, text: str, key: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    assert words in str(refused.value)
    assert key in refused.value.key
    assert refused.value.line > 0


def test_a_change_takes_a_restart(tmp_path: Path) -> None:
    config = loaded(tmp_path)
    assert needs_restart(config, loaded(tmp_path)) == ()
    assert needs_restart(config, loaded(tmp_path, changed(listen='listen = "127.0.0.1:7434"'))) == (
        "approvals.webhook",
    )
    assert needs_restart(config, loaded(tmp_path, WHOLE.replace('"out"\n[s', '"elsewhere"\n[s'))) == ("secrets.out",)
    assert needs_restart(config, replace(config, secrets={**config.secrets, "other": config.secrets["out"]})) == ()


def test_secrets_that_cannot_sign_are_named_by_doctor_and_at_the_start(tmp_path: Path) -> None:
    config = loaded(tmp_path, changed(url="", secret="", allow_private="", listen='listen = "unix:s"'))

    def outcome(value: bytes | None) -> tuple[str, str]:
        path = tmp_path / "back"
        path.unlink(missing_ok=True)
        if value is not None:
            path.write_bytes(value)
            path.chmod(0o600)
        (finding,) = webhook_findings(config)
        try:
            asyncio.run(started(config))
        except ConfigError as exc:
            return finding.status, "refused" if "the secret back" in exc.problem else str(exc)
        return finding.status, "serves"

    assert {value: outcome(value) for value in (None, b"short", b"too short to sign", b"whsec_!", b"k" * 24)} == {
        None: ("missing", "refused"),
        b"short": ("missing", "refused"),
        b"too short to sign": ("missing", "refused"),
        b"whsec_!": ("missing", "refused"),
        b"k" * 24: ("ok", "serves"),
    }


async def started(config: SidecarConfig) -> None:
    settings = DeskSettings(decide_within_s=1, use_within_s=1, max_open=1, standing_max_s=1)
    desk = ApprovalDesk(None, None, lambda: settings)  # type: ignore[arg-type]  # nothing is asked of it
    async with open_webhook(config, desk, UnrestrictedRights(), None):
        pass
