"""Writes a template's files, with `$names` replaced in their text and MODULE in their names."""

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
    ("cli", "python"): "cli",
}
"""Template by kind and language."""

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_SUFFIX = ".tmpl"
_TAKEN = frozenset({"fumehood", "fumehood_sdk", "pydantic", "google", "annotated_types", "typing_extensions"})


@dataclass(frozen=True, slots=True)
class Names:
    """The values of a template's `$names`."""

    plugin: str
    module: str
    """An identifier that shadows no module of Python or of the SDK."""
    tool: str
    title: str
    python: str
    """The Python that `env` finds inside, where PATH is the system's own."""


def template_names(plugin: str) -> Names:
    """The values for a plugin of this name, which must be valid in a manifest."""
    module = plugin.replace("-", "_")
    tool = f"{module[:58]}_hello"
    if module in sys.stdlib_module_names or module in _TAKEN:
        module = f"{module}_plugin"
    title = plugin.replace("-", " ").replace("_", " ").capitalize()
    python = shutil.which("python3", path=_SYSTEM_PATH) or "python3"
    return Names(plugin=plugin, module=module, tool=tool, title=title, python=python)


def write_template(template: str, folder: Path, words: Names) -> list[Path]:
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
            _copy_protos(folder / "proto")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _copy(source: Traversable, target: Path, words: Names) -> None:
    for each in source.iterdir():
        name = each.name.removesuffix(_SUFFIX).replace("MODULE", words.module)
        if each.name.endswith(_SUFFIX):
            text = Template(each.read_text(encoding="utf-8")).substitute(asdict(words))
            (target / name).write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                (target / name).chmod(0o755)


def protocol_descriptors() -> bytes:
    """The plugin protocol as a `FileDescriptorSet`: plugin.proto and its imports, as protoc writes them."""
    result = FileDescriptorSet()
    for file in _protocol_files():
        result.file.add().ParseFromString(file.serialized_pb)
    return result.SerializeToString(deterministic=True)


def _protocol_files() -> list[FileDescriptor]:
    """plugin.proto and what it imports, each after its own imports."""
    from fumehood.v1 import plugin_pb2

    found: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        for dependency in file.dependencies:
            add(dependency)
        found.setdefault(file.name, file)

    add(plugin_pb2.DESCRIPTOR)
    return list(found.values())


def _copy_protos(target: Path) -> None:
    """Copy our .proto files to the paths by which they import one another. protobufjs has protobuf's own."""
    package = "fumehood/v1"
    for file in _protocol_files():
        if file.name.startswith(package):
            (target / file.name).parent.mkdir(parents=True, exist_ok=True)
            source = resources.files("fumehood.v1") / file.name.removeprefix(f"{package}/")
            (target / file.name).write_bytes(source.read_bytes())
