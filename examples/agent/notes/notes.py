"""Adds lines to a file of notes. Twice is not once, so that a repetition would be seen."""

from pathlib import Path
from typing import Annotated

from fumehood_sdk import Context, Field, Plugin

plugin = Plugin("notes", version="1.0.0")


@plugin.tool(side_effects="write", requires=["write"], timeout_s=10)
def add_note(text: Annotated[str, Field(min_length=1, max_length=2000)], ctx: Context) -> str:
    """Add a line to the notes.

    Args:
        text: What to note, in one sentence.
    """
    with Path(ctx.writable_paths[0], "notes.txt").open("a", encoding="utf-8") as file:
        file.write(" ".join(text.split()) + "\n")
    return "It is noted. Answer the question now."
