"""The status pipe: what a stage tells the launcher, a line at a time."""

import os

from fumehood_sandbox.kernel.constants import STAGE_FAILED_STATUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def report(status: int, *fields: str) -> None:
    """Write one line to the launcher."""
    line = "\t".join(field.replace("\t", " ").replace("\n", " ") for field in fields) + "\n"
    os.write(status, line.encode("utf-8", "backslashreplace"))


def fail(status: int, *fields: str) -> "NoReturn":
    """Report a failed step and end this process."""
    try:
        report(status, "error", *fields)
    finally:  # the launcher may be gone
        os._exit(STAGE_FAILED_STATUS)
