"""The bounds that README.md names are those that the benchmark holds the sidecar to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _held_to() -> set[tuple[str, float]]:
    """Of each `Target(name, value, limit, at_least=…)` in the scenarios."""
    found = set()
    for path in sorted((ROOT / "bench" / "scenarios").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Target":
                at_least = any(keyword.arg == "at_least" for keyword in node.keywords)
                found.add(("at least" if at_least else "at most", float(ast.literal_eval(node.args[2]))))
    return found


def test_readme_names_the_bounds_of_the_benchmark_and_no_other() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    table = page.split("| measured | beside | bound |")[1].split("\n\n")[0]
    named = {(word, float(number)) for word, number in re.findall(r"\| (at most|at least) ([\d.]+)", table)}
    assert len(named) > 10
    assert named == _held_to()
