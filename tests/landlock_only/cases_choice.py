"""When the backend is chosen, and what the receipt says of it. Run by `test_cases.py`, by two users."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from fumehood_sandbox import (
    Backend,
    Executable,
    Level,
    Policy,
    SandboxUnavailableError,
    bubblewraps,
    launch,
    system_runtime,
)

from tests.landlock_only.harness import policy

pytestmark = pytest.mark.promise("S904")

_TRUE = Executable(("/bin/true",))


def _policy() -> Policy:
    return policy(runtime=system_runtime())


def test_receipt_names_what_is_weaker_and_what_is_not() -> None:
    with launch(_policy(), _TRUE, backend=Backend.LANDLOCK) as process:
        receipt = process.receipt
    assert receipt.backend == "landlock"
    assert receipt.level is Level.NONE
    assert receipt.policy_digest == _policy().digest()
    shared_with_the_launcher = () if os.geteuid() == 0 else ("identity",)
    outer = ("file system", "processes", "network", "ipc", "scratch")
    assert receipt.weaker == (*outer, "rlimits", *shared_with_the_launcher, "cpus")
    layers = {layer.name: layer.detail for layer in receipt.layers}
    assert layers["scratch"].startswith("unbounded")
    assert {"landlock", "seccomp", "capabilities", "descriptors", "environment"} <= set(layers)
    assert "namespaces" not in layers


def test_namespaces_are_used_where_they_can_be_had_whatever_the_minimum() -> None:
    if all(each.problem for each in bubblewraps()):
        pytest.skip("no bubblewrap can make namespaces here")
    with launch(_policy(), _TRUE) as process:
        assert process.receipt.backend == "bubblewrap"
        assert "namespaces" not in process.receipt.weaker


def test_minimum_of_namespaces_refuses_less_also_when_asked_for_by_name() -> None:
    given = replace(_policy(), minimum=Backend.NAMESPACES)
    with pytest.raises(SandboxUnavailableError, match="minimum") as caught:
        launch(given, _TRUE, backend=Backend.LANDLOCK)
    assert caught.value.feature == "namespaces"


def test_minimum_is_part_of_the_policy() -> None:
    assert _policy().digest() != replace(_policy(), minimum=Backend.NAMESPACES).digest()


def test_relay_is_refused_and_the_level_without_one_is_held() -> None:
    """Sockets for the relay alone need a network namespace; requests by the wire need no socket."""
    external = replace(_policy(), level=Level.EXTERNAL)
    with launch(external, _TRUE, backend=Backend.LANDLOCK) as process:
        assert process.receipt.level is Level.EXTERNAL
    with pytest.raises(SandboxUnavailableError, match="relay") as caught:
        launch(replace(external, relay=True), _TRUE, backend=Backend.LANDLOCK)
    assert caught.value.feature == "network namespace"
