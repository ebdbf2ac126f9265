"""pydantic's compiled half, taken without its Python: one and the same module for whoever imports it later."""

from __future__ import annotations

import subprocess
import sys

import pytest

USE = """
assert SchemaValidator({"type": "int"}).validate_json(b"3") == 3
try:
    SchemaValidator({"type": "int"}).validate_json(b"x")
except ValidationError as error:
    assert error.errors(include_url=False)[0]["type"] == "json_invalid"
else:
    raise AssertionError
"""
ALONE = """
import sys
from fumehood_sdk.schema.core import SchemaValidator, ValidationError
alone = "pydantic_core" not in sys.modules
"""
SAME = """
import pydantic, pydantic_core
from pydantic_core import _pydantic_core
assert pydantic_core.SchemaValidator is _pydantic_core.SchemaValidator is SchemaValidator
assert pydantic.ValidationError is ValidationError
class Model(pydantic.BaseModel):
    x: int
assert Model.model_validate_json('{"x": 1}').x == 1
"""
NEEDS_ITS_PACKAGE = """
import importlib.machinery, sys
class Loader(importlib.machinery.ExtensionFileLoader):
    def create_module(self, spec):
        if "pydantic_core" not in sys.modules:
            raise ImportError("the package comes first")
        return super().create_module(spec)
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "pydantic_core._pydantic_core":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = Loader(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder)
"""


def _run(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_it_works_without_the_package_which_gets_it_when_it_is_imported() -> None:
    assert _run(f"{ALONE}{USE}{SAME}print(alone)") == "True"


@pytest.mark.parametrize("first", ["import pydantic_core\n", "import pydantic\npydantic.BaseModel\n"])
def test_a_package_that_is_there_already_is_used(first: str) -> None:
    assert _run(f"{first}{ALONE}{USE}{SAME}print(alone)") == "False"


def test_a_release_that_needs_its_package_first_gets_it() -> None:
    assert _run(f"{NEEDS_ITS_PACKAGE}{ALONE}{USE}{SAME}print(alone)") == "False"
