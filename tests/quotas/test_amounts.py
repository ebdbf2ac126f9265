"""Which quotas count a call, what it takes of them, and which quotas are refused in fumehood.toml."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from fumehood_sandbox import Level
from fumehood_server.cli.doctor_quotas import quota_findings
from fumehood_server.config.load import load_config
from fumehood_server.errors import ConfigError
from fumehood_server.model.call import CallContext, CallRequest
from fumehood_server.model.caller import ANONYMOUS
from fumehood_server.model.quotas import Charge, Counted, Per, Quota, UncountableError
from fumehood_server.policy import QuotaSet

from tests.calls.fake import tool
from tests.plugins.support import configure


def request(text: str = "{}", *, caller: str = "", session: str = "") -> CallRequest:
    return CallRequest(
        call_id="c",
        tool="pay",
        arguments_json=text,
        context=CallContext(session_id=session),
        timeout_s=None,
        caller_deadline=None,
        identity=replace(ANONYMOUS, name=caller),
    )


def quota(name: str = "q", counts: Counted = Counted.CALLS, **more: object) -> Quota:
    given: dict[str, object] = {"limit": Decimal(100), "window_us": 60_000_000, **more}
    return Quota(name=name, counts=counts, **given)  # type: ignore[arg-type] # its own keywords


def charge(found: Quota, text: str = "{}", **who: str) -> Charge:
    (made,) = QuotaSet([found]).charges([found], request(text, **who), text)
    return made


def amount(text: str, pointer: str = "/amount", **more: object) -> Decimal | str:
    try:
        return charge(quota(counts=Counted.SUM, pointer=pointer, **more), text).amount
    except UncountableError as exc:
        return exc.problem


TOO_LONG = "it is no number of at most 40 digits before and after its point"


def test_an_amount_is_exact_or_refused() -> None:
    said = {
        text: amount(f'{{"amount": {text}}}')
        for text in (
            *("5", "0.1", "1.0000000000000001", "1e2", "-0.0", "1E+39", "1e-40", "9" * 40),
            *("-1", "-0.1", "-1e-300"),
            *('"5"', "true", "[1]", "{}", '"NaN"'),
            *("null",),
            *("1e308", "1e40", "1e-41", "9" * 41, "NaN", "-Infinity", "1e99999999999999999999"),
        )
    }
    problems = {text: each for text, each in said.items() if isinstance(each, str)}
    assert {text: each for text, each in said.items() if not isinstance(each, str)} == {
        "5": 5,
        "0.1": Decimal("0.1"),
        "1.0000000000000001": Decimal("1.0000000000000001"),
        "1e2": 100,
        "-0.0": 0,
        "1E+39": 10**39,
        "1e-40": Decimal("1e-40"),
        "9" * 40: Decimal("9" * 40),
    }
    assert problems == {
        **dict.fromkeys(("-1", "-0.1"), "it is negative"),
        **dict.fromkeys(('"5"', "true", "[1]", "{}", '"NaN"'), "it is no number"),
        "null": "it is missing",
        **dict.fromkeys(
            ("-1e-300", "1e308", "1e40", "1e-41", "9" * 41, "NaN", "-Infinity", "1e99999999999999999999"), TOO_LONG
        ),
    }
    assert amount("{}") == "it is missing"
    assert amount("{}", missing_is_zero=True) == 0
    assert amount('{"amount": null}', missing_is_zero=True) == 0
    assert amount('{"amount": ' + "9" * 1_048_576 + "}") == TOO_LONG
    assert amount('{"amount": ' + "[" * 100_000 + "]" * 100_000 + "}") == "it is missing"


def test_a_star_sums_all_and_an_element_without_an_amount_is_refused() -> None:
    pointer = "/items/*/price"
    assert amount('{"items": [{"price": 0.1}, {"price": 0.2}]}', pointer) == Decimal("0.3")
    assert amount('{"items": []}', pointer) == 0
    assert amount('{"items": [{"price": 1}, {}]}', pointer) == "it is missing"
    assert amount('{"items": [{"price": 9}, {"price": -8}]}', pointer) == "it is negative"
    for price, count, said in (
        ("1", 1_000, 1_000),
        ("1", 1_001, "it has more than 1,000 values"),
        ("1e39", 1_000, 10**42),
    ):
        items = ",".join([f'{{"price": {price}}}'] * count)
        assert amount(f'{{"items": [{items}]}}', pointer) == said


def test_bytes_are_those_of_the_text_and_others_count_one() -> None:
    assert charge(quota(counts=Counted.BYTES), '{"a":"é"}').amount == 10
    assert charge(quota()).amount == 1
    assert charge(quota(counts=Counted.IN_FLIGHT)).amount == 1


def test_what_is_counted_apart_has_counters_of_its_own() -> None:
    def counter(*per: Per, name: str = "q", **who: str) -> str:
        return charge(quota(name, per=per), **who).counter

    both = {"caller": "ada", "session": "s"}
    assert counter(**both) == counter(caller="bob", session="t")
    assert counter(Per.CALLER, **both) == counter(Per.CALLER, caller="ada", session="t")
    assert counter(Per.CALLER, **both) != counter(Per.CALLER, caller="bob", session="s")
    assert counter(Per.SESSION, **both) != counter(Per.SESSION, caller="ada", session="t")
    # An id of a session is the caller's own word: it can't use up another caller's.
    assert counter(Per.SESSION, **both) != counter(Per.SESSION, caller="bob", session="s")
    assert counter(Per.TOOL, **both) == counter(Per.TOOL, caller="bob")
    assert counter(**both) != counter(name="other", **both)
    assert counter(Per.CALLER, caller="") != counter()


def test_a_quota_counts_what_every_matcher_fits() -> None:
    pay = tool("pay", level=Level.WRITE)
    quotas = [
        quota("all"),
        quota("by_name", tools=("pay",)),
        quota("by_start", tools=("pa*",)),
        quota("by_level", side_effects=("write", "external")),
        quota("by_plugin", plugins=(pay.plugin,)),
        quota("by_caller", callers=("ada",)),
        quota("nameless", callers=("",)),
        quota("other_name", tools=("payer",)),
        quota("other_level", tools=("pay",), side_effects=("none",)),
        quota("other_plugin", plugins=("x",)),
    ]
    some = QuotaSet(quotas)
    usual = ["all", "by_name", "by_start", "by_level", "by_plugin"]
    assert [each.name for each in some.counting(pay, "ada")] == [*usual, "by_caller"]
    assert [each.name for each in some.counting(pay, "")] == [*usual, "nameless"]
    some.take_up(quotas[:1])
    assert [each.name for each in some.counting(pay, "ada")] == ["all"]


GOOD = 'name = "q"\ncalls = 5\nwindow = "1h"\n'


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('name = "q"\n', '[[policy.quota]] "q" counts nothing'),
        ('name = "q"\ntokens = 5\nwindow = "1d"\ntools = ["a"]\n', "which `tools` says nothing of"),
        ('name = "q"\ncost = 5\nwindow = "1d"\nper = ["tool"]\n', "which `per` says nothing of"),
        ('name = "q"\ncalls = 5\nwindow = "1d"\nengines = ["a"]\n', "which `engines` says nothing of"),
        ('name = "q"\ncost = 0\nwindow = "1d"\n', "`cost` in"),
        ('name = "q"\ninferences = 5\n', "`window` is missing"),
        (f"{GOOD}bytes = 5\n", '[[policy.quota]] "q" counts `calls` and `bytes`'),
        ('name = "q"\ncalls = 5\n', '`window` is missing in [[policy.quota]] "q"'),
        ('name = "q"\nin_flight = 5\nwindow = "1h"\n', "counts calls in flight, which have no `window`"),
        ('name = "q"\ncalls = 0\nwindow = "1h"\n', "`calls` in [[policy.quota]] must be at least 1"),
        ('name = "q"\ncalls = 5\nwindow = "1 h"\n', '"1 h" is no window of a quota'),
        ('name = "q"\ncalls = 5\nwindow = "367d"\n', '"367d" is no window of a quota'),
        ('name = "q"\nsum = "amount"\nmax = 5\nwindow = "1d"\n', '"amount" is no JSON pointer'),
        ('name = "q"\nsum = "/a"\nwindow = "1d"\n', "`max` is missing"),
        ('name = "q"\nsum = "/a"\nmax = "1e999"\nwindow = "1d"\n', '`max` in [[policy.quota]] "q" must be more than 0'),
        ('name = "q"\nsum = "/a"\nmax = nan\nwindow = "1d"\n', '`max` in [[policy.quota]] "q" must be more than 0'),
        (f"{GOOD}max = 5\n", '`max` in [[policy.quota]] "q" speaks of a `sum`'),
        (f'{GOOD}missing = "zero"\n', '`missing` in [[policy.quota]] "q" speaks of a `sum`'),
        (f'{GOOD}per = ["user"]\n', 'unknown key of a quota "user"'),
        (f"{GOOD}[[policy.quota]]\n{GOOD}", 'two quotas have the name "q"'),
        (f'{GOOD}[journal]\nstore = "off"\n', "is counted in the journal"),
    ],
)
def test_a_quota_that_could_not_be_honoured_is_refused_at_start(tmp_path: Path, lines: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(configure(tmp_path, f"[[policy.quota]]\n{lines}"))
    assert problem in str(caught.value)


def test_the_largest_and_smallest_of_a_sum_are_read_exactly(tmp_path: Path) -> None:
    text = '[[policy.quota]]\nname = "{}"\nsum = "/a"\nmax = {}\nwindow = "7d"\nper = ["session", "tool"]\n'
    given = {"whole": "5", "part": "0.1", "text": '"499.990000000000000001"'}
    config = load_config(configure(tmp_path, "".join(text.format(name, each) for name, each in given.items())))
    assert [str(each.limit) for each in config.quotas] == ["5", "0.1", "499.990000000000000001"]
    assert {(each.per, each.window_us) for each in config.quotas} == {((Per.TOOL, Per.SESSION), 604_800_000_000)}


def test_doctor_tells_of_quotas_that_count_nobody(tmp_path: Path) -> None:
    text = '[[policy.quota]]\nname = "{}"\nin_flight = 1\n{}\n'
    quotas = {
        "good": 'callers = ["ada", ""]\nplugins = ["bank"]\nper = ["caller"]',
        "nobody": 'callers = ["eve"]',
        "nothing": 'plugins = ["bonk"]',
    }
    lines = '[[caller]]\nname = "ada"\n' + "".join(text.format(name, each) for name, each in quotas.items())
    found = [*quota_findings(load_config(configure(tmp_path, lines)), ["bank"])]
    assert [(each.feature, each.status) for each in found] == [
        ("quotas", "ok"),
        ("quota nobody", "note"),
        ("quota nothing", "note"),
    ]
    assert [*quota_findings(load_config(configure(tmp_path, "")), ["bank"])] == []
