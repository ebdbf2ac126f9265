"""environment.json: what an environment held when it was built, beside its packages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

RECORD_NAME = "environment.json"
CONTENTS_NAME = "contents"
"""The folder of the packages, or of the plugin as it was built, beside the record."""
_LIMIT_BYTES = 4 * 1024 * 1024


class _RecordFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    contents: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    packages: list[str]
    sdk_requirements: list[str]


@dataclass(frozen=True, slots=True)
class Record:
    """One environment as it was built."""

    contents: str
    """`contents_digest` of its folder."""
    packages: tuple[str, ...]
    """As NAME==VERSION, for people."""
    sdk_requirements: tuple[str, ...]
    """What its packages require of the SDK's distributions, which another sidecar may have in other versions."""


def read_record(environment: Path) -> Record | None:
    """The record of the environment in this folder. None: there is none, or not one that this program wrote."""
    try:
        with (environment / RECORD_NAME).open("rb") as file:
            made = _RecordFile.model_validate_json(file.read(_LIMIT_BYTES))
    except (OSError, ValidationError):
        return None
    return Record(made.contents, tuple(made.packages), tuple(made.sdk_requirements))


def write_record(environment: Path, record: Record) -> None:
    """Write the record. It comes last: a folder without one is no environment."""
    fields = {
        "contents": record.contents,
        "packages": record.packages,
        "sdk_requirements": record.sdk_requirements,
    }
    (environment / RECORD_NAME).write_text(json.dumps(fields, indent=2) + "\n")
