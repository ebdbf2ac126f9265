"""The protocol's sources: each element has a comment, and the committed code is what they generate."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from tests.repository.test_layout import ROOT

PROTOS = ROOT / "protos"
SOURCES = sorted(path.relative_to(PROTOS).as_posix() for path in PROTOS.glob("fumehood/v1/*.proto"))


def described(folder: Path, *sources: str) -> descriptor_pb2.FileDescriptorSet:
    out = folder / "described.binpb"
    command = (sys.executable, "-m", "grpc_tools.protoc", "-I", ".", "--include_source_info", f"-o{out}", *sources)
    subprocess.run(command, cwd=PROTOS if sources[0].startswith("fumehood") else folder, check=True)
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def elements(message: Any, path: tuple[int, ...], name: str) -> Iterator[tuple[tuple[int, ...], str]]:
    """Each named thing below a descriptor, by its path as `SourceCodeInfo.Location` writes it."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_repeated or field.message_type is None or "name" not in field.message_type.fields_by_name:
            continue
        for index, item in enumerate(getattr(message, field.name)):
            here = (*path, field.number, index)
            yield here, f"{name}.{item.name}"
            yield from elements(item, here, f"{name}.{item.name}")


def uncommented(files: descriptor_pb2.FileDescriptorSet) -> list[str]:
    found: list[str] = []
    for file in files.file:
        comments = {tuple(each.path): each.leading_comments.strip() for each in file.source_code_info.location}
        # A proto3 `optional` field has a oneof that nobody wrote.
        found += [name for path, name in elements(file, (), file.name) if "._" not in name and not comments.get(path)]
    return found


def test_every_element_of_the_protocol_is_commented(tmp_path: Path) -> None:
    assert uncommented(described(tmp_path, *SOURCES)) == []


def test_an_element_without_a_comment_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text(
        'syntax = "proto3";\npackage a;\n// Said.\nmessage M {\n  // Said.\n  string said = 1;\n  string bare = 2;\n}\n'
        "enum E {\n  // Said.\n  E_UNSPECIFIED = 0;\n}\n",
        encoding="utf-8",
    )
    assert uncommented(described(tmp_path, "a.proto")) == ["a.proto.M.bare", "a.proto.E"]


@pytest.mark.timeout(60)
def test_the_generated_code_is_what_the_protos_generate() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        [ROOT / "tools" / "gen.sh", "--check"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": path},
    )
    assert run.returncode == 0, run.stdout + run.stderr


OPTIONS = ("go_package", "java_package", "java_multiple_files", "java_outer_classname")


def unusable_elsewhere(files: descriptor_pb2.FileDescriptorSet) -> list[str]:
    """What of the options for Go and Java is missing, and each class of a file that has the name of a message's."""
    names: set[str] = set()
    for file in files.file:
        for kind in (file.message_type, file.enum_type, file.service):
            names |= {each.name for each in kind}
    found: list[str] = []
    for file in files.file:
        found += [f"{file.name}: {name}" for name in OPTIONS if not getattr(file.options, name)]
        if file.options.java_outer_classname in names:
            found.append(f"{file.name}: {file.options.java_outer_classname} is a message too")
    return found


def test_go_and_java_have_packages_and_no_class_of_a_file_has_a_message_s_name(tmp_path: Path) -> None:
    files = described(tmp_path, *SOURCES)
    assert unusable_elsewhere(files) == []
    assert len({(each.options.go_package, each.options.java_package) for each in files.file}) == 1


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"go_package": '"a;a"', "java_package": '"a"', "java_multiple_files": "true"}, ["java_outer_classname"]),
        ({"java_outer_classname": '"ErrorProto"'}, ["go_package", "java_package", "java_multiple_files"]),
        (dict.fromkeys(OPTIONS[:2], '"a"') | {OPTIONS[2]: "true", OPTIONS[3]: '"Error"'}, ["Error is a message too"]),
        (dict.fromkeys(OPTIONS[:2], '"a"') | {OPTIONS[2]: "true", OPTIONS[3]: '"ErrorProto"'}, []),
    ],
)
def test_an_option_that_is_missing_or_clashes_is_found(
    tmp_path: Path, options: dict[str, str], found: list[str]
) -> None:
    lines = "".join(f"option {name} = {value};\n" for name, value in options.items())
    (tmp_path / "error.proto").write_text(f'syntax = "proto3";\npackage a;\n{lines}message Error {{}}\n')
    assert unusable_elsewhere(described(tmp_path, "error.proto")) == [f"error.proto: {each}" for each in found]
