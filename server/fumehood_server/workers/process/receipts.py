"""The receipt of a worker: what the sandbox says of its process, and what the sidecar adds to that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fumehood_sandbox import Layer

from fumehood_server.workers.limits import process_tree

if TYPE_CHECKING:
    from fumehood_sandbox import Receipt

    from fumehood_server.workers.limits.meter import Meter

_ONE_CALL = Layer("isolation", "call: a sandbox of its own, made before and ended after")


_ALL_LEVELS = Layer(
    "levels",
    "one process for the tools of every level, at the highest, with what they leave running: the operator's",
    weaker=True,
)


def receipt_of(receipt: Receipt, meter: Meter, *, one_call: bool, all_levels: bool = False) -> Receipt:
    """What holds a worker's process: with the watchdog where it has something to watch, and the isolation of a call.

    The same object where there is nothing to add, so that who serialises it need do so once.
    """
    layers = receipt.layers
    if not (meter.bounds_memory and meter.bounds_processes):
        layers = (*layers, process_tree.LAYER)
    if one_call and not receipt.one_call:  # a forked one says it already
        layers = (*layers, _ONE_CALL)
    if all_levels:
        layers = (*layers, _ALL_LEVELS)
    return receipt if layers is receipt.layers else replace(receipt, layers=layers)
