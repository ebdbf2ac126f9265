"""Variable-length integers of protobuf's encoding: seven bits a byte, the lowest first."""

from __future__ import annotations

from fumehood_sdk.errors import WireError

CONTINUES = 0x80
"""The bit that says that another byte follows."""
MAX_VARINT_BYTES = 10
"""A 64-bit number needs no more."""
_MASK_64 = (1 << 64) - 1


def encode(value: int) -> bytes:
    """Encode a number from 0 to 2^64 - 1."""
    if value < CONTINUES:
        return _SMALL[value]
    out = bytearray()
    while value >= CONTINUES:
        out.append(value & 0x7F | CONTINUES)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    """Read a number from `data[position:end]`. Returns it and the position behind it.

    Raises:
        WireError: the bytes end within it, or it is longer than a 64-bit number can be.
    """
    value = 0
    shift = 0
    for here in range(position, min(end, position + MAX_VARINT_BYTES)):
        byte = data[here]
        value |= (byte & 0x7F) << shift
        if byte < CONTINUES:
            return value & _MASK_64, here + 1
        shift += 7
    raise WireError("a varint does not end")


_SMALL = [bytes((value,)) for value in range(CONTINUES)]
