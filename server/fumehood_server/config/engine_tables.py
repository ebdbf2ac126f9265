"""Schema of `[[engine]]` and `[orchestration]` of fumehood.toml."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fumehood_server.config.tables import Table, check_with, one_of, refused

MAX_ENGINES = 64
MAX_GRAMMARS = 64
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_MOST_COUNTED = 2**53
_MIB = 1024**2


class Provider(StrEnum):
    """Whose API an engine is asked by."""

    OPENAI = "openai"
    """Chat completions, which vLLM, llama.cpp, Ollama and most providers speak too."""
    ANTHROPIC = "anthropic"


class Constraint(StrEnum):
    """What an engine can hold its decoding to."""

    SCHEMA = "schema"
    GRAMMAR = "grammar"


class GrammarDialect(StrEnum):
    """How a server wants to be told of a grammar."""

    LLAMA_CPP = "llama.cpp"
    """`grammar` of the request."""
    VLLM = "vllm"
    """`structured_outputs.grammar` of the request, from version 0.12."""


def _model(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        raise refused("a name that can't be shown", "write the model's name as its provider does")
    return value


class EngineTable(Table):
    """`[[engine]]`."""

    name: str = Field(pattern=_NAME)
    provider: Annotated[Provider, one_of(Provider, "provider")]
    model: Annotated[str, check_with(_model)] = Field(min_length=1, max_length=256)
    base_url: str | None = Field(default=None, min_length=1, max_length=2048)
    allow_plaintext: bool = False
    secret: str | None = Field(default=None, min_length=1)
    timeout_s: float = Field(default=120.0, gt=0, le=3600)
    max_concurrent: int = Field(default=8, ge=1, le=1024)
    attempts: int = Field(default=3, ge=1, le=10)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    context_tokens: int | None = Field(default=None, ge=256, le=100_000_000)
    input_price: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    output_price: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    constrains: list[Annotated[Constraint, one_of(Constraint, "constraint")]] = Field(default=[], max_length=2)
    grammar_dialect: Annotated[GrammarDialect, one_of(GrammarDialect, "dialect")] | None = None


class OrchestrationTable(Table):
    """`[orchestration]`."""

    engine: str | None = Field(default=None, min_length=1)
    max_runs: int = Field(default=64, ge=1, le=10_000)
    max_iterations: int = Field(default=20, ge=1, le=1000)
    timeout_s: float = Field(default=600.0, gt=0, le=86_400)
    max_tokens: int | None = Field(default=None, ge=1, le=_MOST_COUNTED)
    max_cost: float | None = Field(default=None, gt=0, le=1e9, allow_inf_nan=False)
    max_tool_calls: int | None = Field(default=None, ge=1, le=_MOST_COUNTED)
    vendor_options: bool = False
    grammars: dict[str, str] = Field(default={}, max_length=MAX_GRAMMARS)
    history_messages: int = Field(default=200, ge=1, le=100_000)
    history_bytes: int = Field(default=256 * 1024, ge=1024, le=64 * _MIB)
