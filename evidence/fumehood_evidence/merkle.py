"""Merkle trees over a log of records, as in Certificate Transparency (RFC 9162, section 2.1): hashes and proofs.

A tree of n leaves is the largest complete tree of a power of two below n beside the tree of the rest. Everything here
is arithmetic on hashes of 32 bytes: where they are kept is the caller's concern.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

from fumehood_evidence.errors import ProofError

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()
"""Root of the tree without leaves."""

SubtreeHash = Callable[[int, int], bytes]
"""Given `level` and `index`: the hash of the complete subtree over leaves `index << level` up to the next one."""


def leaf_hash(record: bytes) -> bytes:
    """Hash of one record."""
    return hashlib.sha256(b"\x00" + record).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash over two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Frontier:
    """The complete subtrees that a tree consists of, largest first: all that appending to it needs."""

    __slots__ = ("_subtrees", "size")

    def __init__(self, size: int = 0, subtrees: Iterable[bytes] = ()) -> None:
        """`subtrees` has one hash for each bit that is set in `size`, highest bit first.

        Raises:
            ValueError: it has not.
        """
        self.size = size
        self._subtrees = list(subtrees)
        if len(self._subtrees) != size.bit_count() or any(len(each) != HASH_BYTES for each in self._subtrees):
            raise ValueError(f"{len(self._subtrees)} subtrees are no tree of {size} leaves")

    def append(self, hashed_leaf: bytes) -> None:
        """Add one leaf, by its hash."""
        subtrees, size = self._subtrees, self.size
        while size & 1:  # complete subtrees of one size make one of twice the size
            hashed_leaf = hashlib.sha256(b"\x01" + subtrees.pop() + hashed_leaf).digest()
            size >>= 1
        subtrees.append(hashed_leaf)
        self.size += 1

    def root(self) -> bytes:
        """Root of the tree as it is."""
        return _joined(self._subtrees)

    def copy(self) -> Frontier:
        """One that grows for itself."""
        return Frontier(self.size, self._subtrees)


def root_of(hashed_leaves: Iterable[bytes]) -> bytes:
    """Root of the tree over these leaves."""
    level, sha256 = list(hashed_leaves), hashlib.sha256
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
        if len(level) & 1:
            above.append(level[-1])
        level = above
    return level[0] if level else EMPTY_ROOT


def inclusion_proof(index: int, size: int, subtree: SubtreeHash) -> list[bytes]:
    """Proof that leaf `index` is in the tree of `size` leaves, lowest sibling first (RFC 9162, section 2.1.3.1).

    Raises:
        ValueError: there is no such leaf.
    """
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size}")
    return _path(index, 0, size, subtree)


def consistency_proof(old_size: int, new_size: int, subtree: SubtreeHash) -> list[bytes]:
    """Proof that the tree of `old_size` leaves is the beginning of that of `new_size` (RFC 9162, section 2.1.4.1).

    Raises:
        ValueError: the older one is larger.
    """
    if not 0 <= old_size <= new_size:
        raise ValueError(f"a tree of {old_size} is not the beginning of one of {new_size}")
    if old_size in {0, new_size}:
        return []
    return _growth(old_size, 0, new_size, subtree, whole=True)


def verify_inclusion(hashed_leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Check that a leaf is in a tree at its place (RFC 9162, section 2.1.3.2).

    Raises:
        ProofError: the proof does not show it.
    """
    if not 0 <= index < size:
        raise ProofError(f"record {index} is not in a log of {size}")
    place, last, node = index, size - 1, hashed_leaf
    for sibling in proof:
        if last == 0:
            raise ProofError(f"the proof for record {index} is too long")
        if place & 1 or place == last:
            node = node_hash(sibling, node)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        place, last = place >> 1, last >> 1
    if last != 0:
        raise ProofError(f"the proof for record {index} is too short")
    if node != root:
        raise ProofError(f"record {index} is not what the log of {size} records has there")


def verify_consistency(old_size: int, old_root: bytes, new_size: int, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Check that a tree is the beginning of another (RFC 9162, section 2.1.4.2).

    Raises:
        ProofError: the proof does not show it.
    """
    if old_size > new_size:
        raise ProofError(f"a log of {old_size} records is not the beginning of one of {new_size}")
    if old_size in {0, new_size}:
        if proof or old_root != (new_root if old_size else EMPTY_ROOT):
            raise ProofError(f"the logs of {old_size} and {new_size} records are not the same")
        return
    if not proof:
        raise ProofError("the proof of consistency is empty")
    if _grown(old_size, new_size, old_root, proof) != (old_root, new_root):
        raise ProofError(f"the log of {old_size} records is not the beginning of that of {new_size}")


def _grown(old_size: int, new_size: int, old_root: bytes, proof: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The roots of both trees to which a proof of consistency leads."""
    steps = list(proof) if old_size & (old_size - 1) else [old_root, *proof]
    place, last = old_size - 1, new_size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old, new = steps[0], steps[0]
    for sibling in steps[1:]:
        if last == 0:
            raise ProofError("the proof of consistency is too long")
        if place & 1 or place == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        place, last = place >> 1, last >> 1
    if last != 0:
        raise ProofError("the proof of consistency is too short")
    return old, new


def range_root(start: int, end: int, subtree: SubtreeHash) -> bytes:
    """Root of the tree over leaves `start` to `end`, as it stands within a larger one: `start` is where one begins."""
    subtrees = []
    while start < end:
        level = (end - start).bit_length() - 1
        subtrees.append(subtree(level, start >> level))
        start += 1 << level
    return _joined(subtrees)


def _joined(subtrees: Sequence[bytes]) -> bytes:
    if not subtrees:
        return EMPTY_ROOT
    node = subtrees[-1]
    for left in reversed(subtrees[:-1]):
        node = node_hash(left, node)
    return node


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1


def _path(index: int, start: int, end: int, subtree: SubtreeHash) -> list[bytes]:
    if end - start == 1:
        return []
    middle = start + _split(end - start)
    if index < middle:
        return [*_path(index, start, middle, subtree), range_root(middle, end, subtree)]
    return [*_path(index, middle, end, subtree), range_root(start, middle, subtree)]


def _growth(old_size: int, start: int, end: int, subtree: SubtreeHash, *, whole: bool) -> list[bytes]:
    """Of leaves `start` to `end`, of which those before `old_size` are the older tree's. `whole`: so are all before."""
    if old_size == end:
        return [] if whole else [range_root(start, end, subtree)]
    middle = start + _split(end - start)
    if old_size <= middle:
        return [
            *_growth(old_size, start, middle, subtree, whole=whole),
            range_root(middle, end, subtree),
        ]
    return [
        *_growth(old_size, middle, end, subtree, whole=False),
        range_root(start, middle, subtree),
    ]
