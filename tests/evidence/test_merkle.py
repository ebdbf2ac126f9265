"""Trees and proofs are those of RFC 9162, and a proof of anything else is refused."""

from __future__ import annotations

import functools

import pytest
from fumehood_evidence import merkle
from fumehood_evidence.errors import ProofError

SIZES = range(1, 34)
LEAVES = [merkle.leaf_hash(bytes([number])) for number in range(max(SIZES))]
# The leaves and roots with which Certificate Transparency's implementations test themselves.
KNOWN_LEAVES = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
KNOWN_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
]


def subtree(level: int, index: int) -> bytes:
    return merkle.root_of(LEAVES[index << level : (index + 1) << level])


@functools.cache
def root(size: int) -> bytes:
    return merkle.root_of(LEAVES[:size])


def test_roots_are_those_that_others_compute() -> None:
    hashed = [merkle.leaf_hash(leaf) for leaf in KNOWN_LEAVES]
    assert [merkle.root_of(hashed[: size + 1]).hex() for size in range(len(hashed))] == KNOWN_ROOTS
    assert merkle.root_of([]) == merkle.EMPTY_ROOT


@pytest.mark.parametrize("size", [*range(1, 10), 16, 17, 31, 32, 33])
def test_every_leaf_is_proven_at_its_own_place_only(size: int) -> None:
    for index in range(size):
        proof = merkle.inclusion_proof(index, size, subtree)
        merkle.verify_inclusion(LEAVES[index], index, size, proof, root(size))
        for other in range(size):
            if other != index:
                with pytest.raises(ProofError):
                    merkle.verify_inclusion(LEAVES[index], other, size, proof, root(size))


@pytest.mark.parametrize("new", range(34))
def test_a_tree_is_proven_the_beginning_of_those_that_grew_from_it(new: int) -> None:
    wrong = bytes(merkle.HASH_BYTES)
    for old in range(new + 1):
        proof = merkle.consistency_proof(old, new, subtree)
        merkle.verify_consistency(old, root(old), new, root(new), proof)
        for roots in ((wrong, root(new)), (root(old), wrong)):
            if old == 0 and roots[0] == root(old):
                continue  # the empty tree is the beginning of every other
            with pytest.raises(ProofError):
                merkle.verify_consistency(old, roots[0], new, roots[1], proof)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 20, 33])
def test_changed_shortened_and_lengthened_proofs_are_refused(size: int) -> None:
    for index in range(size):
        proof = merkle.inclusion_proof(index, size, subtree)
        changed = [[*proof[:at], bytes(32), *proof[at + 1 :]] for at in range(len(proof))]
        for wrong in (*changed, [*proof, bytes(32)], *([proof[:-1]] if proof else [])):
            with pytest.raises(ProofError):
                merkle.verify_inclusion(LEAVES[index], index, size, wrong, root(size))


@pytest.mark.parametrize(("old", "new"), [(1, 2), (3, 7), (4, 8), (6, 20), (32, 33)])
def test_changed_shortened_and_lengthened_proofs_of_growth_are_refused(old: int, new: int) -> None:
    proof = merkle.consistency_proof(old, new, subtree)
    changed = [[*proof[:at], bytes(32), *proof[at + 1 :]] for at in range(len(proof))]
    for wrong in (*changed, [*proof, bytes(32)], proof[:-1], []):
        with pytest.raises(ProofError):
            merkle.verify_consistency(old, root(old), new, root(new), wrong)


def test_a_copy_of_a_frontier_grows_by_itself() -> None:
    for size in SIZES:
        kept = merkle.Frontier()
        for each in LEAVES[: size // 2]:
            kept.append(each)
        again = kept.copy()
        for each in LEAVES[size // 2 : size]:
            again.append(each)
        assert (kept.root(), again.root()) == (root(size // 2), root(size))


def test_what_is_no_tree_is_no_frontier() -> None:
    with pytest.raises(ValueError, match="2 subtrees are no tree of 4"):
        merkle.Frontier(4, [bytes(32), bytes(32)])
    with pytest.raises(ValueError, match="no tree"):
        merkle.Frontier(1, [b"short"])
