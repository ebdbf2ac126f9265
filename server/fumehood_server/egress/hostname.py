"""Canonical host names: names in ASCII (UTS 46, IDNA 2008), IP addresses in canonical form, all else refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from fumehood_server.egress.errors import EgressRefusedError, Reason

_MAX_NAME = 253
"""Longest name in ASCII: RFC 1035 section 2.3.4, less the length bytes at both ends."""
_MAX_INPUT = 1024
"""Longest text that is parsed: IDNA mapping takes time for each character."""
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_RESERVED = ("localhost",)
"""RFC 6761 section 6.3: resolvers answer such names with loopback by themselves."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host in canonical form. Made by `canonical_host` alone.

    `name` is a lower-case ASCII name, or the canonical text of `address`, without brackets. `address` is set when the
    host was written as an IP address.
    """

    name: str
    address: IPv4Address | IPv6Address | None = None

    def __str__(self) -> str:
        return f"[{self.name}]" if isinstance(self.address, IPv6Address) else self.name


def canonical_host(text: str) -> Host:
    """Read a host as it stands in a URL or an entry: a name, a dotted IPv4 address, or an IPv6 address in brackets.

    Names beyond ASCII are mapped by UTS 46 (non-transitional, STD3 rules) to IDNA 2008 A-labels. A trailing dot is
    refused, since it would be a second spelling. So is every IPv4 address not written as four plain decimal numbers
    (`127.1`, `2130706433`, `0x7f.1`, `0177.0.0.1`, full-width digits): what follows the WHATWG URL standard reads an
    address where others read a name. Zone identifiers are refused: they name interfaces of this machine.

    Raises:
        EgressRefusedError: `HOST_INVALID`, or `HOST_RESERVED` for `localhost` and what ends in `.localhost`.
    """
    if not text or len(text) > _MAX_INPUT:
        raise _invalid(text, "is empty" if not text else "is too long")
    if not text.isprintable():  # UTS 46 maps some of what can't be seen to nothing
        raise _invalid(text, "has a character that can't be seen")
    if text.startswith("["):
        return _bracketed(text)
    name = _ascii_name(text)
    if len(name) > _MAX_NAME:
        raise _invalid(text, f"is longer than {_MAX_NAME} characters")
    if not _NAME.fullmatch(name):
        raise _invalid(text, "may have only letters, digits, hyphens and dots, with letters or digits beside each dot")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return _dotted(text)
    if name.rpartition(".")[2] in _RESERVED:
        message = f'the host "{name}" means this machine, and is never asked by name: use its address, if granted'
        raise EgressRefusedError(Reason.HOST_RESERVED, message)
    return Host(name)


def _bracketed(text: str) -> Host:
    if not text.endswith("]"):
        raise _invalid(text, "has an opening bracket and no closing one")
    inner = text[1:-1]
    if "%" in inner:
        raise _invalid(text, "has a zone identifier")
    try:
        address = IPv6Address(inner)
    except AddressValueError:
        raise _invalid(text, "is not an IPv6 address") from None
    return Host(str(address), address)


def _dotted(text: str) -> Host:
    try:
        address = IPv4Address(text)  # strict: four decimal numbers without leading zeros
    except AddressValueError:
        raise _invalid(text, "ends in a number and is not an IPv4 address of four plain decimal numbers") from None
    return Host(str(address), address)


def _ascii_name(text: str) -> str:
    """The name in lower-case ASCII. Names that hold A-labels are mapped as well, so that those are checked."""
    if text.isascii() and "xn--" not in text.lower():
        return text.lower()
    import idna  # noqa: PLC0415 - its tables take time and memory, and few names need them

    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError:  # idna.IDNAError is one
        raise _invalid(text, "is not a valid internationalised name") from None


def _invalid(text: str, why: str) -> EgressRefusedError:
    return EgressRefusedError(Reason.HOST_INVALID, f'the host "{text[:80]}" {why}')
