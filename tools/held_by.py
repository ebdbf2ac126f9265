"""Writes the "held by" columns of docs/sandbox.md from the tests' marks; with --check, fails where they differ.

A row is `| S101 | promise | names |`. A name is a family of attacks (a file of tests/attacks/inside, whose attacks name
their promises), a file whose every test holds it (`pytestmark`), or a test (`@pytest.mark.promise("S101")`).
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sandbox.md"
ROW = re.compile(r"^(\| (S\d+) \| .+ \| )(.*)( \|)$", re.MULTILINE)
INSIDE = ROOT / "tests" / "attacks" / "inside"
TESTS = ("test_*.py", "cases_*.py")
"""Files of tests; the cases are run by a test that changes the user first."""


@dataclass(frozen=True)
class Marked:
    """A test and the promises that it holds."""

    path: Path
    """From the root."""
    name: str
    own: frozenset[str]
    files: frozenset[str]
    """Those that each test of its file holds."""
    is_slow: bool
    """No part of `make test`, in none of its cases."""
    is_asked_for: bool
    """Skipped unless a variable of the environment asks for it, as no part of `make check` does."""


def promises(page: str) -> list[str]:
    """The numbers of the page's promises."""
    return [number for _, number, _, _ in ROW.findall(page)]


@functools.cache
def all_tests() -> tuple[Marked, ...]:
    """Every test there is, file by file."""
    return tuple(_all_tests())


def _all_tests() -> Iterator[Marked]:
    for path in sorted(path for pattern in TESTS for path in (ROOT / "tests").rglob(pattern)):
        module = ast.parse(path.read_text(encoding="utf-8"))
        marks = [node.value for node in module.body if isinstance(node, ast.Assign) and _assigns(node, "pytestmark")]
        files = frozenset(number for value in marks for number in _numbers(value))
        all_slow = any(_is_slow(value) for value in marks)
        variables = _from_environment(module)
        all_asked_for = any(_is_asked_for(value, variables) for value in marks)
        for node in module.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                own = frozenset(number for decorator in node.decorator_list for number in _numbers(decorator))
                is_slow = all_slow or any(map(_is_slow, node.decorator_list))
                is_asked_for = all_asked_for or any(_is_asked_for(each, variables) for each in node.decorator_list)
                yield Marked(path.relative_to(ROOT), node.name, own, files, is_slow, is_asked_for)


def _assigns(node: ast.Assign, name: str) -> bool:
    return isinstance(node.targets[0], ast.Name) and node.targets[0].id == name


def _is_slow(expression: ast.expr) -> bool:
    """A mark of the whole test or file: those of single parameters leave others to `make test`."""
    each = expression.elts if isinstance(expression, ast.List | ast.Tuple) else [expression]
    return any(ast.unparse(node).startswith("pytest.mark.slow(") for node in each)


def _from_environment(module: ast.Module) -> frozenset[str]:
    """The names of a file whose values are variables of the environment or rest on such, as a mark does on its flag."""
    found: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.Assign) and _rests_on(node.value, found):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(found)


def _is_asked_for(expression: ast.expr, variables: AbstractSet[str]) -> bool:
    """A skip of the whole test or file for want of a variable: those of single parameters leave others to all runs."""
    each = expression.elts if isinstance(expression, ast.List | ast.Tuple) else [expression]
    marks = [node for node in each if isinstance(node, ast.Name) or ast.unparse(node).startswith("pytest.mark.skipif(")]
    return any(_rests_on(node, variables) for node in marks)


def _rests_on(expression: ast.expr, variables: AbstractSet[str]) -> bool:
    return any(
        (isinstance(node, ast.Call) and ast.unparse(node.func) in {"os.environ.get", "os.getenv"})
        or (isinstance(node, ast.Name) and node.id in variables)
        for node in ast.walk(expression)
    )


def _numbers(expression: ast.expr) -> Iterator[str]:
    """The arguments of every `pytest.mark.promise(…)` in it."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


@functools.cache
def held_by() -> dict[str, list[str]]:
    """By promise: the families of attacks, the files and the tests that hold it."""
    families, files, tests = (defaultdict[str, list[str]](list) for _ in range(3))
    for family in sorted(path.stem for path in INSIDE.glob("*.py")):
        for attack in getattr(import_module(f"tests.attacks.inside.{family}"), "ATTACKS", ()):
            families[attack.promise].append(family)
    for test in all_tests():
        for number in test.files:
            files[number].append(str(test.path))
        for number in test.own - test.files:
            tests[number].append(test.name)
    return {
        number: list(dict.fromkeys([*families[number], *files[number], *tests[number]]))
        for number in sorted({*families, *files, *tests})
    }


def written(page: str) -> str:
    """The page with its columns as the marks have them."""
    held = held_by()

    def row(found: re.Match[str]) -> str:
        before, number, _, after = found.groups()
        return before + ", ".join(f"`{name}`" for name in held.get(number, ())) + after

    return ROW.sub(row, page)


def main() -> int:
    """Write, or compare."""
    page = PAGE.read_text(encoding="utf-8")
    wanted = written(page)
    if "--check" in sys.argv[1:]:
        if page != wanted:
            sys.stderr.write("docs/sandbox.md names other tests than those that are marked: run `make gen`\n")
        return int(page != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
