"""Source of one secret: a file or an environment variable, read anew each time, so that it can be rotated."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.errors import FumehoodError
from fumehood_server.model.text import printable

MIN_SECRET_BYTES = 8
"""A shorter one can't be redacted without redacting ordinary words."""
MAX_SECRET_BYTES = 64 * 1024
"""A chain of certificates with its key takes a tenth of it."""

_FORBIDDEN_MODE = 0o027
"""The group may read, as Kubernetes' fsGroup has it, and not write. Others may do nothing."""


class SecretUnavailableError(FumehoodError):
    """A secret can't be had. The operator must act; `remedy` says how. The value is in none of the texts."""

    def __init__(self, code: str, problem: str, remedy: str) -> None:
        """`code` is a reason for being unavailable: "secret_missing" or "secret_unusable"."""
        super().__init__(problem)
        self.code = code
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """One `[secrets.NAME]`: a file, or a variable of the sidecar's own environment."""

    name: str
    file: Path | None = None
    """Absolute. Symlinks are followed when it is read: Kubernetes rotates secrets by pointing one elsewhere."""
    variable: str = ""
    """Empty: it is in a file."""

    def check_source(self) -> None:
        """Check, without reading it, that it could be read now.

        Raises:
            SecretUnavailableError: it couldn't.
        """
        if self.file is None:
            self._from_environment()
            return
        try:
            found = os.stat(self.file)  # noqa: PTH116 - for each listing
        except OSError as error:
            raise self._unreadable(self.file, error) from error
        self._check_file(self.file, found)

    def read_value(self) -> bytes:
        """The value as it is now. Blocks for as long as its file system does.

        Raises:
            SecretUnavailableError: it can't be had.
        """
        if self.file is None:
            return self._from_environment()
        try:
            # O_NONBLOCK: opening a FIFO must not wait for a writer.
            descriptor = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                self._check_file(self.file, os.fstat(descriptor))
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    value = file.read(MAX_SECRET_BYTES + 2)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._unreadable(self.file, error) from error
        # Editors and `echo` end a file with a newline that isn't part of the secret.
        value = value.removesuffix(b"\n").removesuffix(b"\r")
        self._check_length(len(value))
        return value

    def _from_environment(self) -> bytes:
        value = os.environb.get(os.fsencode(self.variable))
        if value is None:
            problem = (
                f"the secret {self.name} is in the variable {self.variable}, which the sidecar's environment lacks"
            )
            raise SecretUnavailableError("secret_missing", problem, "set it where the sidecar is started")
        self._check_length(len(value))
        return value

    def _check_file(self, path: Path, found: os.stat_result) -> None:
        where = f"the secret {self.name} is in {printable(path)}, which"
        if not stat.S_ISREG(found.st_mode):
            raise SecretUnavailableError("secret_unusable", f"{where} is not a regular file", "name a file")
        if found.st_mode & _FORBIDDEN_MODE:
            problem = f"{where} others may use: its mode is {stat.S_IMODE(found.st_mode):04o}"
            raise SecretUnavailableError(
                "secret_unusable", problem, "chmod 600, or defaultMode: 0400 of a Kubernetes or Docker secret"
            )
        if found.st_uid not in {0, os.geteuid()}:
            problem = f"{where} belongs to user {found.st_uid}: neither to root nor to the sidecar's own"
            raise SecretUnavailableError("secret_unusable", problem, "chown it to the user that the sidecar runs as")
        # Two bytes more for CR LF, which isn't counted.
        if found.st_size > MAX_SECRET_BYTES + 2:
            self._check_length(found.st_size)
        if found.st_size < MIN_SECRET_BYTES:
            self._check_length(found.st_size)

    def _check_length(self, size: int) -> None:
        if size < MIN_SECRET_BYTES:
            problem = f"the secret {self.name} has {size} bytes, too few to be taken out of texts"
            raise SecretUnavailableError("secret_unusable", problem, f"use one of {MIN_SECRET_BYTES} bytes or more")
        if size > MAX_SECRET_BYTES:
            problem = f"the secret {self.name} has {size} bytes, and at most {MAX_SECRET_BYTES} are handed out"
            raise SecretUnavailableError("secret_unusable", problem, "keep large data in a granted file")

    def _unreadable(self, path: Path, error: OSError) -> SecretUnavailableError:
        problem = f"the secret {self.name} is in {printable(path)}, which can't be read: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            return SecretUnavailableError("secret_missing", problem, "create the file, with mode 600")
        return SecretUnavailableError("secret_unusable", problem, "let the sidecar's user read it")
