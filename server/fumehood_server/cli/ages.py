"""Ages as they are typed at the command line: a number and a unit."""

from __future__ import annotations

import re

from fumehood_server.cli.failure import CommandError

_AGE = re.compile(r"([1-9]\d{0,5})([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def age_s(text: str) -> int:
    """Seconds.

    Raises:
        CommandError: it is no age.
    """
    found = _AGE.fullmatch(text)
    if found is None:
        raise CommandError(f'"{text}" is no age', "Write a number and d, h, m or s, such as 30d.")
    return int(found[1]) * _UNITS_S[found[2]]
