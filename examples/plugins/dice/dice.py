"""Rolls dice: the smallest plugin that is worth having."""

import secrets
from dataclasses import dataclass
from typing import Annotated, Literal

from fumehood_sdk import Context, Field, Plugin

plugin = Plugin("dice", version="1.0.0")


@dataclass
class Roll:
    """One roll."""

    total: int
    rolls: list[int]


@plugin.tool(side_effects="none")
def roll_dice(count: Annotated[int, Field(ge=1, le=10)], sides: Literal[4, 6, 8, 10, 12, 20], ctx: Context) -> Roll:
    """Roll dice. Returns sum and individual results.

    Args:
        count: How many dice to roll.
        sides: How many sides each of them has.
    """
    rolls = [secrets.randbelow(sides) + 1 for _ in range(count)]
    ctx.log.info("rolled", count=count, sides=sides)
    return Roll(total=sum(rolls), rolls=rolls)
