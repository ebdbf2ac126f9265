"""The Merkle tree over the journal's events as it grows, in tiles (C2SP tlog-tiles): 256 hashes of one level each.

A complete tile is kept for good; those at the tree's right edge are in memory. So a proof in a log of a million events
reads three tiles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fumehood_evidence.merkle import HASH_BYTES, Frontier, leaf_hash, root_of

TILE_BITS = 8
TILE_HASHES = 1 << TILE_BITS


@dataclass(frozen=True, slots=True)
class Tile:
    """A complete tile."""

    level: int
    """0: hashes of events. Each level above has a hash for each tile of the one below."""
    index: int
    """Its place among those of its level."""
    hashes: bytes
    """256 hashes of 32 bytes."""


ReadTile = Callable[[int, int], bytes | None]
"""Given level and index: the hashes of a complete tile, None where there is none."""


class Tree:
    """The tree's right edge: grows by events, and gives each tile once it is complete."""

    __slots__ = ("_edge", "size")

    def __init__(self) -> None:
        """Of no events."""
        self.size = 0
        self._edge: list[list[bytes]] = [[]]

    @classmethod
    def load(cls, size: int, read_tile: ReadTile, tail: Iterable[bytes]) -> Tree:
        """The tree of `size` events, from complete tiles and the events after the last of them.

        Raises:
            ValueError: a tile is missing, or the tail is not as long as it must be.
        """
        tree = cls()
        level, complete = 0, size >> TILE_BITS
        while complete:
            level += 1
            start = complete & ~(TILE_HASHES - 1)
            tree._edge.append(
                [_root(read_tile(level - 1, index), level - 1, index) for index in range(start, complete)]
            )
            complete >>= TILE_BITS
        tree._edge[0] = [leaf_hash(body) for body in tail]
        tree.size = size
        if len(tree._edge[0]) != size & (TILE_HASHES - 1):
            raise ValueError(f"{len(tree._edge[0])} events follow the last tile of a log of {size}")
        return tree

    def append(self, body: bytes) -> Sequence[Tile]:
        """Add an event. Returns the tiles that it completes, lowest level first."""
        return self.append_hash(leaf_hash(body))

    def append_hash(self, hashed: bytes) -> Sequence[Tile]:
        """Add an event of which only the leaf's hash is left."""
        edge = self._edge
        edge[0].append(hashed)
        self.size += 1
        if len(edge[0]) < TILE_HASHES:
            return ()
        tiles = []
        for level in range(len(edge)):
            if len(edge[level]) < TILE_HASHES:
                break
            tiles.append(Tile(level, (self.size >> TILE_BITS * (level + 1)) - 1, b"".join(edge[level])))
            if level + 1 == len(edge):
                edge.append([])
            edge[level + 1].append(_complete_root(tiles[-1].hashes))
            edge[level] = []
        return tiles

    def copy(self) -> Tree:
        """One that grows for itself: for a transaction that may fail."""
        tree = Tree()
        tree.size, tree._edge = self.size, [[*hashes] for hashes in self._edge]
        return tree

    def root(self) -> bytes:
        """The root over all events."""
        return self._frontier().root()

    def _frontier(self) -> Frontier:
        subtrees = []
        for hashes in reversed(self._edge):
            start = 0
            while start < len(hashes):
                count = 1 << (len(hashes) - start).bit_length() - 1
                subtrees.append(root_of(hashes[start : start + count]))
                start += count
        return Frontier(self.size, subtrees)

    def reader(self, read_tile: ReadTile) -> Callable[[int, int], bytes]:
        """Hashes of complete subtrees by level and index, for proofs: from complete tiles and the edge as it is now."""
        edge = [[*hashes] for hashes in self._edge]

        def subtree(level: int, index: int) -> bytes:
            tile_level, within = divmod(level, TILE_BITS)
            first = index << within
            tile = first >> TILE_BITS
            offset = first & (TILE_HASHES - 1)
            data = read_tile(tile_level, tile)
            hashes = _split(data) if data is not None else edge[tile_level]
            found = hashes[offset : offset + (1 << within)]
            if len(found) != 1 << within:
                raise ValueError(f"the tree has no subtree {index} of level {level}")
            return root_of(found)

        return subtree


def _root(hashes: bytes | None, level: int, index: int) -> bytes:
    if hashes is None:
        raise ValueError(f"tile {index} of level {level} is missing")
    _split(hashes)
    return _complete_root(hashes)


def _complete_root(hashes: bytes) -> bytes:
    """Root over the hashes of a tile, level by level (RFC 9162, section 2.1.1): twice as fast as leaf by leaf."""
    sha256 = hashlib.sha256
    while len(hashes) > HASH_BYTES:
        pairs = range(0, len(hashes), 2 * HASH_BYTES)
        hashes = b"".join([sha256(b"\x01" + hashes[at : at + 2 * HASH_BYTES]).digest() for at in pairs])
    return hashes


def _split(hashes: bytes) -> list[bytes]:
    if len(hashes) != TILE_HASHES * HASH_BYTES:
        raise ValueError(f"a tile has {len(hashes)} bytes")
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]
