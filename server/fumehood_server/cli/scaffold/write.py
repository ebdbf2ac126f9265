"""Fills a template: every file of its folder, `$names` replaced in text and in file names."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

TEMPLATES = {
    ("python", "python"): "python",
    ("executable", "python"): "executable-python",
    ("executable", "node"): "executable-node",
}
"""Template by kind and language."""

_SUFFIX = ".tmpl"
_TAKEN = frozenset({"fumehood", "fumehood_sdk", "pydantic", "google", "annotated_types", "typing_extensions"})
_PROTOS = ("plugin.proto", "tool.proto", "content.proto")
"""`plugin.proto` and what it imports."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a template's `$names` stand for."""

    plugin: str
    module: str
    """An identifier that hides no module of Python or of the SDK."""
    tool: str
    title: str


def names(plugin: str) -> Names:
    """The names that follow from a plugin's own, which the manifest's rule allows."""
    module = plugin.replace("-", "_")
    tool = f"{module[:58]}_hello"
    if module in sys.stdlib_module_names or module in _TAKEN:
        module = f"{module}_plugin"
    return Names(plugin=plugin, module=module, tool=tool, title=plugin.replace("-", " ").replace("_", " ").capitalize())


def write(template: str, folder: Path, words: Names) -> list[Path]:
    """Write the template to `folder`, which must not exist, and return what was written, sorted.

    Raises:
        OSError: it can't be written; what was begun is removed.
    """
    folder.mkdir(parents=True)
    try:
        _copy(resources.files(__package__) / template, folder, words)
        if template == "executable-python":
            (folder / "protocol.binpb").write_bytes(protocol_descriptors())
        if template == "executable-node":
            _copy_protos(folder / "proto" / "fumehood" / "v1")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _copy(source: Traversable, target: Path, words: Names) -> None:
    for each in source.iterdir():
        name = Template(each.name.removesuffix(_SUFFIX).replace("__", "$")).substitute(asdict(words))
        if each.name.endswith(_SUFFIX):
            (target / name).write_text(Template(each.read_text(encoding="utf-8")).substitute(asdict(words)))


def protocol_descriptors() -> bytes:
    """The protocol of plugins as a `FileDescriptorSet`: what protoc would make of plugin.proto, imports included."""
    from fumehood.v1 import plugin_pb2

    found: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        for dependency in file.dependencies:
            add(dependency)
        found.setdefault(file.name, file)

    add(plugin_pb2.DESCRIPTOR)
    result = FileDescriptorSet()
    for file in found.values():
        result.file.add().ParseFromString(file.serialized_pb)
    return result.SerializeToString(deterministic=True)


def _copy_protos(target: Path) -> None:
    target.mkdir(parents=True)
    for name in _PROTOS:
        source = resources.files("fumehood.v1") / name
        (target / name).write_bytes(source.read_bytes())
