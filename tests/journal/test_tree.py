"""The tree in tiles has the roots and proofs of the tree itself, also after it was loaded again."""

from __future__ import annotations

import pytest
from fumehood_evidence import merkle
from fumehood_server.journal.tree import Tree

SIZE = 66_000
"""More than a tile of tiles."""
BODIES = [b"event %d" % number for number in range(SIZE)]
AT = (0, 1, 255, 256, 257, 511, 512, 65_535, 65_536, SIZE - 1)


@pytest.fixture(scope="module")
def grown() -> tuple[Tree, dict[tuple[int, int], bytes]]:
    tree, tiles = Tree(), {}
    for body in BODIES:
        tiles.update({(tile.level, tile.index): tile.hashes for tile in tree.append(body)})
    return tree, tiles


def root(size: int) -> bytes:
    return merkle.root_of(map(merkle.leaf_hash, BODIES[:size]))


def test_root_is_that_of_the_whole_tree(grown: tuple[Tree, dict[tuple[int, int], bytes]]) -> None:
    tree, tiles = grown
    assert tree.root() == root(SIZE)
    assert max(level for level, _ in tiles) == 1


def test_proofs_from_tiles_hold(grown: tuple[Tree, dict[tuple[int, int], bytes]]) -> None:
    tree, tiles = grown
    subtree = tree.reader(lambda level, index: tiles.get((level, index)))
    for index in AT:
        proof = merkle.inclusion_proof(index, SIZE, subtree)
        merkle.verify_inclusion(merkle.leaf_hash(BODIES[index]), index, SIZE, proof, tree.root())
    for old in AT:
        proof = merkle.consistency_proof(old, SIZE, subtree)
        merkle.verify_consistency(old, root(old), SIZE, tree.root(), proof)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_535, 65_536, 65_537])
def test_a_loaded_tree_grows_on(size: int) -> None:
    first, tiles = Tree(), {}
    for body in BODIES[:size]:
        tiles.update({(tile.level, tile.index): tile.hashes for tile in first.append(body)})
    again = Tree.load(size, lambda level, index: tiles.get((level, index)), BODIES[size - size % 256 : size])
    for body in BODIES[size : size + 300]:
        first.append(body)
        again.append(body)
    assert again.root() == first.root() == root(size + 300)


def test_a_tree_without_its_tiles_or_tail_is_not_loaded() -> None:
    with pytest.raises(ValueError, match="tile 0 of level 0 is missing"):
        Tree.load(256, lambda _level, _index: None, [])
    with pytest.raises(ValueError, match="1 events follow"):
        Tree.load(2, lambda _level, _index: None, BODIES[:1])
