"""docs/errors.md is made from the tables in the code, and these are whole."""

from __future__ import annotations

from fumehood_server.model.taxonomy import MEANINGS, Code

from tests.docs.test_protocol_page import sent_codes
from tools.errors_page import PAGE, page


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make gen"


def test_each_code_has_a_meaning_that_says_who_can_do_what() -> None:
    assert set(MEANINGS) == set(Code)
    assert [code for code, meaning in MEANINGS.items() if not meaning.when or not meaning.act] == []


def test_each_code_is_sent_by_something() -> None:
    assert {code.value for code in Code} == sent_codes()
