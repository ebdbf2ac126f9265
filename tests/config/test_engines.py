"""`[[engine]]` and `[orchestration]`: what they refuse, each beside what they take, and what takes a restart."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from fumehood_server.config import load_config
from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.effective import effective_document
from fumehood_server.config.engines import Constraint, GrammarDialect
from fumehood_server.config.restart import needs_restart
from fumehood_server.errors import ConfigError

WHOLE = """
[secrets.key]
file = "key"
[[engine]]
name = "local"
provider = "openai"
model = "qwen2.5"
base_url = "http://127.0.0.1:8000/v1/"
constrains = ["schema", "grammar"]
grammar_dialect = "llama.cpp"
[[engine]]
name = "large"
provider = "anthropic"
model = "claude-x"
secret = "key"
timeout_s = 30
[orchestration]
engine = "large"
max_cost = 2.5
grammars = { answer = "answer.gbnf" }
"""
GRAMMAR = 'root ::= "yes" | "no"\n'


def loaded(folder: Path, text: str = WHOLE) -> SidecarConfig:
    (folder / "answer.gbnf").write_text(GRAMMAR)
    path = folder / "fumehood.toml"
    path.write_text(text)
    return load_config(path)


def changed(old: str, new: str) -> str:
    assert old in WHOLE
    return WHOLE.replace(old, new, 1)


def test_engines_are_read_with_what_they_leave_out(tmp_path: Path) -> None:
    config = loaded(tmp_path)
    local, large = config.engines
    assert (local.base_url, local.secret, local.timeout_s, local.max_concurrent) == (
        "http://127.0.0.1:8000/v1",
        "",
        120.0,
        8,
    )
    assert local.constrains == {Constraint.SCHEMA, Constraint.GRAMMAR}
    assert local.grammar_dialect is GrammarDialect.LLAMA_CPP
    assert (large.base_url, large.is_default_url, large.secret) == ("https://api.anthropic.com", True, "key")
    assert (config.orchestration.engine, config.orchestration.max_cost) == ("large", 2.5)
    assert config.orchestration.grammars == {"answer": GRAMMAR}


def test_without_a_default_the_first_engine_is_it_and_without_any_there_is_none(tmp_path: Path) -> None:
    assert loaded(tmp_path, changed('engine = "large"\n', "")).orchestration.engine == "local"
    without = loaded(tmp_path, "")
    assert (without.engines, without.orchestration.engine) == ((), "")


@pytest.mark.parametrize(
    "url",
    [
        "https://vllm.internal:8443/v1",
        "http://localhost:11434/v1",
        "http://[::1]:8000",
        'http://vllm:8000/v1"\nallow_plaintext = true\n#"',
    ],
)
def test_a_url_that_nobody_can_listen_to_is_taken_and_another_if_that_is_said(tmp_path: Path, url: str) -> None:
    assert loaded(tmp_path, changed("http://127.0.0.1:8000/v1/", url)).engines[0].base_url.startswith("http")


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (changed("http://127.0.0.1:8000/v1/", "http://vllm:8000/v1"), "base_url", "is http"),
        (changed("http://127.0.0.1:8000/v1/", "http://10.0.0.1/v1"), "base_url", "is http"),
        (changed("http://127.0.0.1:8000/v1/", "https://me:key@example.com/"), "base_url", "user information"),
        (changed("http://127.0.0.1:8000/v1/", "https://example.com/v1?a=b"), "base_url", "a query"),
        (changed("http://127.0.0.1:8000/v1/", "ftp://example.com"), "base_url", "no URL"),
        (changed("http://127.0.0.1:8000/v1/", "https://exa mple.com"), "base_url", "no URL"),
        (changed("http://127.0.0.1:8000/v1/", "https://example.com:x"), "base_url", "no URL"),
        (changed('"openai"', '"opnai"'), "provider", 'unknown provider "opnai"'),
        (changed('name = "large"', 'name = "local"'), "name", "two [[engine]]"),
        (changed('secret = "key"', 'secret = "kye"'), "secret", 'no secret "kye"'),
        (changed('secret = "key"\n', ""), "engine.1", "answers nobody without a key"),
        (changed('grammar_dialect = "llama.cpp"\n', ""), "constrains", "`grammar_dialect` is missing"),
        (changed('["schema", "grammar"]', '["schema"]'), "grammar_dialect", 'is for `constrains = ["grammar"]`'),
        (changed('"llama.cpp"', '"ollama"'), "grammar_dialect", 'unknown dialect "ollama"'),
        (changed('["schema", "grammar"]', '["jsno"]'), "constrains", 'unknown constraint "jsno"'),
        (
            changed(
                "timeout_s = 30",
                'timeout_s = 30\nconstrains = ["grammar"]\ngrammar_dialect = "vllm"',
            ),
            "grammar_dialect",
            "takes no grammar",
        ),
        (changed("timeout_s = 30", "timeout_s = 0"), "timeout_s", "more than 0"),
        (changed("max_cost = 2.5", "max_cost = inf"), "max_cost", "finite"),
        (changed('engine = "large"', 'engine = "lrage"'), "engine", 'no [[engine]] "lrage"'),
        (changed("answer.gbnf", "nowhere.gbnf"), "grammars", "not there"),
        (changed("answer.gbnf", "."), "grammars", "no regular file"),
        (changed("answer.gbnf", "/dev/zero"), "grammars", "no regular file"),
        (changed("{ answer", '{ "../x"'), "grammars", "can't be the name"),
        (WHOLE + '[[plugin]]\npath = "p"\nsecrets = ["key"]\n', "secrets", "each tool of a plugin"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(tmp_path: Path, text: str, key: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    assert words in str(refused.value)
    assert key in refused.value.key
    assert refused.value.line > 0


def test_a_library_that_is_missing_is_named_with_the_extra_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "fumehood_server.config.engines.find_spec", lambda name: None if name == "anthropic" else found(name)
    )
    with pytest.raises(ConfigError, match=r"anthropic.*not installed.*fumehood-server\[orchestration\]"):
        loaded(tmp_path)
    assert loaded(tmp_path, WHOLE.split('[[engine]]\nname = "large"', maxsplit=1)[0]).engines


def test_reading_the_configuration_imports_no_library_of_models(tmp_path: Path) -> None:
    before = {name for name in sys.modules if name.partition(".")[0] in {"pydantic_ai", "openai", "anthropic"}}
    loaded(tmp_path)
    after = {name for name in sys.modules if name.partition(".")[0] in {"pydantic_ai", "openai", "anthropic"}}
    assert after == before


def test_the_configuration_in_force_names_the_key_and_does_not_hold_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-a-long-secret-value")
    (tmp_path / "key").chmod(0o600)
    text = effective_document(loaded(tmp_path)).data
    assert b'"secret":"key"' in text
    assert b"sk-a-long" not in text


def test_a_plugin_may_not_write_where_a_grammar_is(tmp_path: Path) -> None:
    (tmp_path / "dice").mkdir()
    for name in ("grammars", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "grammars/answer.gbnf").write_text(GRAMMAR)
    text = changed("answer.gbnf", "grammars/answer.gbnf") + '[[plugin]]\npath = "dice"\nwrite = ["{}"]\n'
    with pytest.raises(ConfigError, match="the file of a grammar"):
        loaded(tmp_path, text.replace("{}", "grammars"))
    assert loaded(tmp_path, text.replace("{}", "data")).plugins


def test_a_change_takes_a_restart(tmp_path: Path) -> None:
    config = loaded(tmp_path)
    assert needs_restart(config, loaded(tmp_path)) == ()
    assert needs_restart(config, loaded(tmp_path, changed("qwen2.5", "qwen3"))) == ("engine",)
    assert needs_restart(config, loaded(tmp_path, changed("2.5\n", "3.5\n"))) == ("orchestration",)
    assert needs_restart(config, loaded(tmp_path, changed('file = "key"', 'file = "other"'))) == ("secrets.key",)
