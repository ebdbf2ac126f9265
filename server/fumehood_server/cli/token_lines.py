"""What the commands of tokens share: where the file is, times as text, failures with what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fumehood_server.callers.token_file import TokenFileError
from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.config import SidecarConfig, find_config, load_config


def find_tokens(config_path: Path | None) -> tuple[SidecarConfig, Path]:
    """The configuration, and the file of its tokens, which need not exist.

    Raises:
        ConfigError: the configuration is wrong.
    """
    config = load_config(find_config(config_path))
    return config, config.server.token_file


def time_text(seconds: int | None) -> str:
    """POSIX time in words (RFC 3339). Empty: never."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@contextlib.contextmanager
def token_failures() -> Iterator[None]:
    """A file that can't be used as the command's failure.

    Raises:
        CommandError: it can't be.
    """
    try:
        yield
    except TokenFileError as error:
        raise CommandError(
            str(error),
            error.remedy,
            code="TOKENS_UNUSABLE",
            status=ExitStatus.FAILED,
            details={"file": str(error.path)},
        ) from error
