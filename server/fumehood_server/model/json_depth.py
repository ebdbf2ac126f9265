"""How deep a JSON value is nested."""

from __future__ import annotations


def is_deeper(value: object, most: int) -> bool:
    """Whether more objects and arrays than `most` lie in each other. Looks level by level, and recurses nowhere."""
    level = [value]
    for _ in range(most):
        nested = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [child for children in nested for child in children]
    return any(isinstance(each, dict | list) for each in level)
