"""Argument templates of `cli` tools: make a program's argv of a call's arguments, without a shell.

A template is an array. An element is a string, or `{if = "NAME", args = [strings]}`, whose strings stand only when the
argument NAME is given and is neither false nor null. Within a string `{NAME}` is the argument's value; `{{` and `}}`
are braces. A string whose argument is an array stands once for each of its items.

What a caller sends must not become an option. So a string that begins with a value may not come to begin with "-",
unless a literal "--" stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")
SHAPE = 'an element is a string or {if = "NAME", args = ["..."]}'
END_OF_OPTIONS = "--"
NO_TEXT = "neither text, a number nor true or false"


class TemplateError(Exception):
    """A template is malformed. The plugin's author must mend the element at `place`, such as "argv.2"."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem


class ArgumentError(Exception):
    """An argument can't be put into the command. The caller must change the argument `name`."""

    def __init__(self, name: str, rule: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.rule = rule
        self.problem = problem


class _Word:
    """One string of a template: literal parts at even places, names of arguments at odd ones."""

    __slots__ = ("condition", "parts", "place")

    def __init__(self, parts: tuple[str, ...], condition: str | None, place: str) -> None:
        self.parts = parts
        self.condition = condition
        self.place = place

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[1::2]


class Template:
    """A parsed argument template."""

    __slots__ = ("_words",)

    def __init__(self, argv: Sequence[object]) -> None:
        """Read a template as TOML gives it.

        Raises:
            TemplateError: an element is malformed.
        """
        self._words = tuple(_parse_words(argv))

    def problems(self, properties: Mapping[str, object], required: Iterable[str]) -> list[tuple[str, str, str]]:
        """What is wrong with the template beside the input schema's top level: place, name and problem of each.

        An argument that may be missing stands only beneath an `if` of its own, or has a default in the schema.
        """
        always = set(required) | {
            name for name, schema in properties.items() if isinstance(schema, Mapping) and "default" in schema
        }
        found: dict[tuple[str, str, str], None] = {}
        for word in self._words:
            for name in (*word.names, *([word.condition] if word.condition else ())):
                if name not in properties:
                    found[word.place, name, f'"{name}" is not a property of the input schema'] = None
            for name in word.names:
                if name in properties and name not in always and name != word.condition:
                    problem = f'"{name}" may be missing: require it, give it a default, or put it beneath an `if` of it'
                    found[word.place, name, problem] = None
                if name in properties and not is_text(properties[name], arrays=True):
                    problem = f'"{name}" is {NO_TEXT}, nor an array of those: it can\'t stand in a command'
                    found[word.place, name, problem] = None
        return list(found)

    def render(self, arguments: Mapping[str, object]) -> list[str]:
        """The program's arguments for a call's. Numbers are given as text, the way that they were sent.

        Raises:
            ArgumentError: an argument would become an option, or can't stand in a command.
        """
        out: list[str] = []
        options_ended = False
        for word in self._words:
            if word.condition is not None and arguments.get(word.condition) in (None, False):
                continue
            if word.parts == (END_OF_OPTIONS,):
                options_ended = True
            for text in _render_word(word, arguments):
                if not options_ended and not word.parts[0] and word.names and text.startswith("-"):
                    raise ArgumentError(
                        word.names[0],
                        "option",
                        'must not begin with "-", where the program would take it for an option',
                    )
                out.append(text)
        return out


class TextTemplate:
    """One string of a template that stands alone: the program's stdin, a variable or its working folder."""

    __slots__ = ("_word",)

    def __init__(self, text: str, place: str) -> None:
        """Read it. `place` is its key in the manifest.

        Raises:
            TemplateError: it is malformed.
        """
        self._word = _parse_word(text, None, place)

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that it holds."""
        return self._word.names

    def render(self, arguments: Mapping[str, object]) -> str | None:
        """The text for a call's arguments; None where one of them is missing or null.

        Raises:
            ArgumentError: an argument is neither text, a number nor true or false.
        """
        values = [arguments.get(name) for name in self._word.names]
        return None if None in values else _join_parts(self._word, values)


def is_text(schema: object, *, arrays: bool) -> bool:
    """Whether values that a property's schema takes can stand in a text, as far as its `type` tells.

    `arrays`: one whose items can, does too.
    """
    types = schema.get("type") if isinstance(schema, Mapping) else None
    given = {each for each in (types if isinstance(types, list) else [types]) if isinstance(each, str)}
    if isinstance(schema, Mapping) and arrays and "array" in given:
        return is_text(schema.get("items"), arrays=False)
    return not given or bool(given & {"string", "number", "integer", "boolean"})


def _parse_words(argv: Sequence[object]) -> Iterable[_Word]:
    for index, element in enumerate(argv):
        place = f"argv.{index}"
        if isinstance(element, str):
            yield _parse_word(element, None, place)
            continue
        if not isinstance(element, Mapping) or set(element) != {"if", "args"}:
            raise TemplateError(place, f"is not an element of a template: {SHAPE}")
        condition, strings = element["if"], element["args"]
        if not isinstance(condition, str) or not isinstance(strings, list):
            raise TemplateError(place, f"is not an element of a template: {SHAPE}")
        for string in strings:
            if not isinstance(string, str):
                raise TemplateError(place, f"`args` holds what is no string: {SHAPE}")
            yield _parse_word(string, condition, place)


def _parse_word(string: str, condition: str | None, place: str) -> _Word:
    parts = [""]
    end = 0
    for match in _TOKEN.finditer(string):
        parts[-1] += string[end : match.start()]
        end = match.end()
        if match[1] is not None:
            parts += [match[1], ""]
        elif match[0] in ("{{", "}}"):
            parts[-1] += match[0][0]
        else:
            raise TemplateError(place, f"a lone {match[0]} in {string!r}: write {match[0] * 2} for a brace")
    parts[-1] += string[end:]
    if "\0" in string:
        raise TemplateError(place, "holds a NUL character, which no program's argument can")
    return _Word(tuple(parts), condition, place)


def _render_word(word: _Word, arguments: Mapping[str, object]) -> Iterable[str]:
    values: list[object] = [arguments.get(name) for name in word.names]
    lists = [index for index, value in enumerate(values) if isinstance(value, list)]
    if len(lists) > 1:
        raise ArgumentError(word.names[lists[1]], "type", "is a second array within one element of the command")
    for name, value in zip(word.names, values, strict=True):
        if value is None:
            raise ArgumentError(name, "required", "is missing, and the command has no place without it")
    if not lists:
        yield _join_parts(word, values)
        return
    items = values[lists[0]]
    for item in items if isinstance(items, list) else ():
        yield _join_parts(word, [item if index == lists[0] else value for index, value in enumerate(values)])


def _join_parts(word: _Word, values: list[object]) -> str:
    out = word.parts[0]
    for index, value in enumerate(values):
        name = word.names[index]
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, str | int | float):
            text = str(value)
        else:
            raise ArgumentError(name, "type", f"can't stand in a command: it is {NO_TEXT}")
        if "\0" in text:
            raise ArgumentError(name, "pattern", "holds a NUL character, which no program's argument can")
        out += text + word.parts[2 * index + 2]
    return out
