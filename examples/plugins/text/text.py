"""Looks at texts. None of it needs more than the text itself, so every tool is at level `none`."""

import difflib
from collections import Counter
from typing import Annotated

from fumehood_sdk import Context, Plugin
from pydantic import BaseModel, Field

plugin = Plugin("text", version="1.0.0")

MAX_CHARACTERS = 200_000

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]


class WordCount(BaseModel):
    """How long a text is, and what it is made of."""

    characters: int
    words: int
    lines: int
    most_common: dict[str, int]


class Difference(BaseModel):
    """What turns one text into another."""

    unified_diff: str
    added_lines: int
    removed_lines: int
    similarity: float


class Count(BaseModel):
    """How far a count came."""

    counted: int


@plugin.tool(side_effects="none", idempotent=True)
def word_count(text: Text, most_common: Annotated[int, Field(ge=0, le=100)] = 5) -> WordCount:
    """Count the characters, words and lines of a text, and find its most common words.

    Args:
        text: The text.
        most_common: How many of the most common words to return.
    """
    words = text.split()
    common = Counter(word.strip(".,;:!?\"'()").lower() for word in words)
    return WordCount(
        characters=len(text),
        words=len(words),
        lines=len(text.splitlines()),
        most_common=dict(common.most_common(most_common)),
    )


@plugin.tool(side_effects="none", idempotent=True, timeout_s=10)
def diff_text(before: Text, after: Text, context_lines: Annotated[int, Field(ge=0, le=20)] = 3) -> Difference:
    """Compare two texts line by line. Returns a unified diff and how alike they are, from 0 to 1.

    Args:
        before: The old text.
        after: The new text.
        context_lines: How many unchanged lines to show around each change.
    """
    old, new = before.splitlines(), after.splitlines()
    lines = list(difflib.unified_diff(old, new, "before", "after", n=context_lines, lineterm=""))
    return Difference(
        unified_diff="\n".join(lines),
        added_lines=sum(line.startswith("+") for line in lines[2:]),
        removed_lines=sum(line.startswith("-") for line in lines[2:]),
        similarity=difflib.SequenceMatcher(None, old, new).ratio(),
    )


@plugin.tool(side_effects="none", idempotent=True, timeout_s=60)
def slow_count(
    upto: Annotated[int, Field(ge=1, le=10_000)],
    ctx: Context,
    delay_ms: Annotated[int, Field(ge=0, le=10_000)] = 200,
) -> Count:
    """Count slowly, telling the progress: a stand-in for any long job. It stops at once when the call is cancelled.

    Args:
        upto: The number to count to.
        delay_ms: Milliseconds to wait before each number.
    """
    for number in range(1, upto + 1):
        ctx.sleep(delay_ms / 1000)
        ctx.update(f"counted {number}", progress=number, total=upto)
    return Count(counted=upto)
