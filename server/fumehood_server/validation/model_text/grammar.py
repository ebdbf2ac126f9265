"""Holds a text against a grammar in GBNF, by llguidance's Earley parser."""

from __future__ import annotations

import functools
import json

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from fumehood_server.validation.documents import Accepted, Document, Flaw, Rejected, Verdict
from fumehood_server.validation.explanation import fault_json
from fumehood_server.validation.model_text.gbnf import GrammarError, lark_of

_LIMITS = LLParserLimits(max_grammar_size=200_000, max_items_in_row=20_000, verbose_errors=False)
_MAX_SHOWN_CHARS = 40
_END = 256


class _Bytes:
    """A tokenizer whose tokens are bytes."""

    tokens = (*(bytes([each]) for each in range(_END)), b"<|end|>")
    special_token_ids = (_END,)
    eos_token_id = _END
    bos_token_id = None

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


def check_grammar(document: Document) -> Verdict:
    """Whether the whole text follows the grammar, which stands in the schema's place.

    The flaw of a grammar that is none is SCHEMA_UNUSABLE.
    """
    try:
        grammar = _compiled(document.schema_json)
    except GrammarError as exc:
        return Rejected(Flaw.SCHEMA_UNUSABLE, str(exc))
    try:
        data = document.text.encode()
    except UnicodeEncodeError:
        return _fault("it holds half of a surrogate pair")
    matcher = LLMatcher(_tokenizer(), grammar, log_level=0, limits=_LIMITS)
    taken = matcher.try_consume_tokens(list(data))
    if matcher.is_error():
        return _fault("it can't be checked: the grammar is too complex for so long a text")
    if taken < len(data):
        at = len(data[:taken].decode(errors="ignore"))
        shown = document.text[at : at + _MAX_SHOWN_CHARS]
        return _fault(f"it leaves the grammar at character {at}, at {json.dumps(shown, ensure_ascii=False)}")
    return Accepted(document.text) if matcher.is_accepting() else _fault("it ends before the grammar does")


@functools.lru_cache(maxsize=16)
def _compiled(text: str) -> str:
    """A grammar in the form of llguidance.

    Raises:
        GrammarError: it is none.
    """
    grammar = LLMatcher.grammar_from_lark(lark_of(text))
    problem = LLMatcher.validate_grammar(grammar, _tokenizer(), limits=_LIMITS)
    if problem and not problem.startswith("WARNING"):
        raise GrammarError(f"can't be used: {problem.splitlines()[0][:200]}")
    return grammar


@functools.cache
def _tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=_END + 1, eos_token=_END, slices=[])


def _fault(message: str) -> Rejected:
    return Rejected(Flaw.DOES_NOT_FIT, faults=(fault_json("", "grammar", message),))
