"""Who decides on grants: a person at the terminal, one by one, or nobody, who gets the narrowest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from pathlib import Path

import click
from fumehood_sandbox import Level

from fumehood_server.cli.mcp_import.host_configuration import InputVariable
from fumehood_server.cli.mcp_import.places import NamedHost, NamedPath
from fumehood_server.cli.mcp_import.plan import PlannedSecret
from fumehood_server.model.text import visible


class PathGrant(StrEnum):
    """What may be done with a path."""

    NO = "no"
    READ = "read"
    WRITE = "write"


class Asker(ABC):
    """Decides on what one server may do."""

    asks: bool
    """Whether somebody is there to be asked."""

    @abstractmethod
    def agrees(self, question: str) -> bool:
        """Whether to go on."""

    @abstractmethod
    def input(self, variable: InputVariable) -> str | None:
        """The value of an input that is no password; None: there is none."""

    @abstractmethod
    def path(self, server: str, named: NamedPath, *, suggested: PathGrant) -> PathGrant:
        """What may be done with a path that the configuration names."""

    @abstractmethod
    def host(self, server: str, named: NamedHost) -> bool:
        """Whether a host that the configuration names may be reached, at the addresses that are not public as well."""

    @abstractmethod
    def secret(self, server: str, secret: PlannedSecret) -> bool:
        """Whether a secret may be handed over."""

    @abstractmethod
    def value(self, secret: PlannedSecret) -> str | None:
        """The value of a secret that the configuration asks for; None: it is set later."""

    @abstractmethod
    def replaces(self, server: str, secret: PlannedSecret, path: Path) -> bool:
        """Whether the configuration's value is to replace another that is kept in the file."""

    @abstractmethod
    def level(self, server: str, counts: dict[Level, int]) -> Level:
        """The highest level of its tools that may be called. `counts` says how many there are of each."""


class Narrowest(Asker):
    """Nobody is asked: what the configuration itself names is granted, paths for reading alone."""

    asks = False

    def agrees(self, question: str) -> bool:  # noqa: ARG002 - as the others take it
        """Go on."""
        return True

    def input(self, variable: InputVariable) -> str | None:  # noqa: ARG002 - likewise
        """None."""
        return None

    def path(self, server: str, named: NamedPath, *, suggested: PathGrant) -> PathGrant:  # noqa: ARG002 - as the others
        """Reading. Of what isn't there, nothing: the folder around it is more than was named."""
        return PathGrant.READ if named.is_there else PathGrant.NO

    def host(self, server: str, named: NamedHost) -> bool:  # noqa: ARG002 - as the others take it
        """Granted, since the configuration names it: but no address within a network that it doesn't name."""
        return not named.private

    def secret(self, server: str, secret: PlannedSecret) -> bool:  # noqa: ARG002 - likewise
        """Handed over: the configuration does."""
        return True

    def value(self, secret: PlannedSecret) -> str | None:  # noqa: ARG002 - likewise
        """Set later."""
        return None

    def replaces(self, server: str, secret: PlannedSecret, path: Path) -> bool:  # noqa: ARG002 - likewise
        """No: the value that is kept may be another server's."""
        return False

    def level(self, server: str, counts: dict[Level, int]) -> Level:  # noqa: ARG002 - likewise
        """The lowest of `read` and above that it has a tool of."""
        return lowest_useful(counts)


class Terminal(Asker):
    """A person at a terminal. Enter takes the narrower answer."""

    asks = True

    def agrees(self, question: str) -> bool:
        """Ask."""
        return click.confirm(visible(question), default=False, err=True)

    def input(self, variable: InputVariable) -> str | None:
        """Ask."""
        text = visible(variable.description or variable.name)
        if variable.options:
            answer: str = click.prompt(text, type=click.Choice(list(variable.options)), err=True)
            return answer
        return str(click.prompt(text, err=True))

    def path(self, server: str, named: NamedPath, *, suggested: PathGrant) -> PathGrant:
        """Ask."""
        if not named.is_there:
            make = "" if named.folder.is_dir() else "make and "
            file = "" if named.is_folder else f" around {named.path.name}"
            place = f"{make}grant the folder {named.folder}{file}, which isn't there yet"
        elif named.is_folder:
            place = str(named.path)
        else:
            place = f"{named.path} (to write: the folder around it)"
        answer = click.prompt(
            visible(f"{server}: {place}, {named.where}"),
            type=click.Choice([each.value for each in PathGrant]),
            default=suggested.value,
            err=True,
        )
        return PathGrant(answer)

    def host(self, server: str, named: NamedHost) -> bool:
        """Ask."""
        private = [each.rpartition("=")[2] for each in named.private]
        where = f"{named.where}, which is {', '.join(private)}, not public" if private else named.where
        return click.confirm(visible(f"{server}: may it reach {named.host}, {where}?"), default=False, err=True)

    def secret(self, server: str, secret: PlannedSecret) -> bool:
        """Ask."""
        question = f"{server}: may it have the secret in {secret.variable}?"
        return click.confirm(visible(question), default=False, err=True)

    def value(self, secret: PlannedSecret) -> str | None:
        """Ask, without showing what is typed."""
        text = f"Value of {secret.variable} (Enter: set it later)"
        answer: str = click.prompt(visible(text), default="", hide_input=True, show_default=False, err=True)
        return answer or None

    def replaces(self, server: str, secret: PlannedSecret, path: Path) -> bool:
        """Ask."""
        question = f"{server}: {path} holds another value for {secret.variable}. Replace it?"
        return click.confirm(visible(question), default=False, err=True)

    def level(self, server: str, counts: dict[Level, int]) -> Level:
        """Ask."""
        listed = ", ".join(f"{number} {level}" for level, number in counts.items() if number)
        lowest = lowest_useful(counts)
        levels = [each for each in Level if each is lowest or (each is not Level.NONE and not lowest.allows(each))]
        if all(lowest.allows(level) for level, number in counts.items() if number):
            return lowest
        answer = click.prompt(
            visible(f"{server}: tools by level: {listed}. Up to which may be called?"),
            type=click.Choice([each.value for each in levels]),
            default=lowest.value,
            err=True,
        )
        return Level(answer)


def lowest_useful(counts: dict[Level, int]) -> Level:
    """The lowest level, from `read` on, at which there is a tool to call."""
    levels = [level for level in Level if counts.get(level)]
    lowest = levels[0] if levels else Level.READ
    return lowest if not Level.READ.allows(lowest) else Level.READ
