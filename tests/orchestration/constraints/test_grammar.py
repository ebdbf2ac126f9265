"""Texts under grammars in GBNF. Each grammar stands with texts that it takes, and texts that it does not."""

from __future__ import annotations

import pytest
from fumehood_server.validation.budget import PROCESS
from fumehood_server.validation.checking import check_document
from fumehood_server.validation.documents import Accepted, Document, Flaw, Kind, Rejected, Verdict
from fumehood_server.validation.model_text.gbnf import MAX_GRAMMAR_CHARS
from fumehood_server.validation.schemas import Validators
from hypothesis import given
from hypothesis import strategies as st

JSON = r"""
# What llama.cpp brings along, in our own words.
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (
    string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws   # escapes
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


def held(grammar: str, text: str) -> Verdict:
    return check_document(Document(Kind.MODEL_TEXT, "", grammar, text), Validators(), PROCESS)


@pytest.mark.parametrize(
    ("grammar", "takes", "leaves"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "ye", "yes ", "Yes"]),
        ('root ::= [a-z]+ "x"', ["abx", "xx", "axbx"], ["x", "axb"]),
        ('root ::= word "x"\nword ::= [a-z]+', ["abx", "xx"], ["x", "axb"]),
        ('root ::= a b\na ::= "x"*\nb ::= "x" "y"', ["xy", "xxy"], ["y", "xyx"]),
        ('root ::= "ab" "c" | "a" "bd"', ["abc", "abd"], ["ab", "abcd"]),
        (
            'root ::= sum\nsum ::= term (("+"|"-") term)*\nterm ::= [0-9]+ | "(" sum ")"',
            ["1", "(1+22)-3"],
            ["1+", "(1"],
        ),
        ('root ::= s\ns ::= "a" s "b" | ""', ["", "aabb"], ["aab"]),
        ('root ::= s\ns ::= s "a" | "a"', ["a", "aaaa"], ["", "ab"]),
        (r'root ::= "\u00e9" [\u3041-\u309f] [^\n]*', ["éぁ", "éぁé x"], ["eぁ", "éぁ\n"]),
        (r'root ::= "\u0041" "\x42" "\U0001F600"', ["AB😀"], ["AB"]),
        (r'root ::= "a/b" [/] "\"" [^"\\]', ['a/b/"c'], ['a/b/""', 'a/b/"\\']),
        (r"root ::= [-+*/] [\]a] [a-]", ["-]-", "/aa"], ["a]-", "-]b"]),
        ("root ::= . .", ["a\n", "é😀"], ["a", "abc"]),
        ('root ::= "a"{2,3} "b"{2} "c"{1,} "d"{0,1}', ["aabbc", "aaabbccd"], ["abbc", "aabbbc", "aabb", "aabbcdd"]),
        ('root ::= (("a"*)*)* ""', ["", "aaa"], ["b"]),
        ('root ::= a-b aB UP\na-b ::= "1"\naB ::= "2"\nUP ::= "3"', ["123"], ["132"]),
        ('root ::= "a" # said\n# so\n\nother ::= "b" |\n  "c"', ["a"], ["b"]),
        ('root ::= (\n  "a"\n  | "b" # or\n)\n', ["a", "b"], ["ab"]),
        (
            JSON,
            ['{"a": [1, 2.5e3, {"b": "c\\n\\u00e9"}], "d": true}', '{"é": null}\n', "{}"],
            ["[]", '{"a": 1,}', "{'a': 1}"],
        ),
    ],
)
def test_a_grammar_takes_its_texts_and_no_others(grammar: str, takes: list[str], leaves: list[str]) -> None:
    assert [text for text in takes if not isinstance(held(grammar, text), Accepted)] == []
    assert [text for text in leaves if isinstance(held(grammar, text), Accepted)] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yesterday", 'it leaves the grammar at character 3, at "terday"'),
        ("ye", "it ends before the grammar does"),
        ("yes\n", 'it leaves the grammar at character 3, at "\\n"'),
        ("yes\ud800", "it holds half of a surrogate pair"),
    ],
)
def test_the_place_where_a_text_leaves_its_grammar_is_told(text: str, message: str) -> None:
    assert held('root ::= "yes" | "no"', text) == Rejected(
        Flaw.DOES_NOT_FIT, faults=({"pointer": "", "rule": "grammar", "message": message},)
    )


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        ("", 'has no rule "root"'),
        ("answer", "::= is missing"),
        ('rot ::= "a"', 'has no rule "root"'),
        ("root ::= missing", 'has no rule "missing"'),
        ('root ::= "a"\nroot ::= "b"', "is there twice"),
        ('root ::= "a"\n | "b"', "a rule's name is missing"),
        ('root ::= "a', '" or ] is missing'),
        ("root ::= [a", '" or ] is missing'),
        ("root ::= []", "[] holds no character"),
        ("root ::= [z-a]", "a range ends before it begins"),
        ('root ::= ("a"', ") is missing"),
        ("root ::= " + "(" * 40, "brackets are deeper"),
        ('root ::= "a"{3000}', "can't be repeated so often"),
        ('root ::= "a"{3,2}', "can't be repeated so often"),
        ('root ::= "a"{x}', "the end of the line is missing"),
        (r'root ::= "\q"', "that is no escape"),
        (r'root ::= "\u12"', "that is no escape"),
        (r'root ::= "\ud800"', "there is no such character"),
        (r'root ::= "\UFFFFFFFF"', "there is no such character"),
        ("root ::= <think> .*", "names a token of a model"),
        ("root ::= !<[1000]> .*", "names a token of a model"),
        ('root ::= "' + "a" * MAX_GRAMMAR_CHARS + '"', "is longer than"),
    ],
)
def test_what_is_no_grammar_is_told_apart_from_a_text_that_leaves_one(grammar: str, problem: str) -> None:
    verdict = held(grammar, "a")
    assert isinstance(verdict, Rejected)
    assert verdict.flaw is Flaw.SCHEMA_UNUSABLE
    assert problem in verdict.problem


@given(st.text(alphabet='root:=|()[]{}*+?"\\^-ax10,#<> \n', max_size=40))
def test_no_grammar_makes_the_check_fail_otherwise(text: str) -> None:
    for grammar in (text, f"root ::= {text}"):
        assert isinstance(held(grammar, "a"), Accepted | Rejected)


@given(st.text(alphabet='{}[]":,1ae. \\n', max_size=20))
def test_no_text_makes_the_check_fail_otherwise(text: str) -> None:
    assert isinstance(held(JSON, text), Accepted | Rejected)
