"""The receipt: which layers are in force around a launched process."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_sandbox.level import Level


@dataclass(frozen=True, slots=True)
class Layer:
    """One mechanism that is in force."""

    name: str
    """Stable name: "namespaces", "identity", "seccomp", "landlock", "rlimits", "environment", "descriptors"…"""
    detail: str
    """What it was set to, for people."""
    weaker: bool = False
    """Whether it is a fallback that the operator allowed in place of the first choice."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Receipt:
    """The layers in force around one process, and the policy that they carry out.

    Made by `launch` after the last layer was applied, from what each step reported: a layer that isn't in force isn't
    named.
    """

    level: Level
    backend: str
    """What made the sandbox: "bubblewrap", or "landlock" where there are no namespaces."""
    policy_digest: str
    layers: tuple[Layer, ...]
    """Outermost first."""

    @property
    def one_call(self) -> bool:
        """Whether the process serves one call and no other."""
        return "isolation" in [layer.name for layer in self.layers]

    @property
    def weaker(self) -> tuple[str, ...]:
        """Names of the layers for which a fallback stands in."""
        return tuple(layer.name for layer in self.layers if layer.weaker)
