"""Code that a plugin runs at its import, where a process for each call is forked: it may make one set of namespaces.

There it has every capability over what it has made. Every attack is tried with them.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import grpc
import pytest
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_sandbox.seccomp import FORK_FLAGS

from tests.attacks.arena import FAMILIES, INSIDE, LURE, LURE_KEY, attacks, lacking, lay_out, lures
from tests.attacks.inside.kit import DONE
from tests.rpc.support import call
from tests.sidecar import running_sidecar, write_plugin

_CODE = '''
import ctypes
import json
import os

from fumehood_sdk import Plugin
from tests.attacks.inside.kit import answer
from tests.attacks.inside.runner import run_all

plugin = Plugin("importer", version="1.0.0")


def attack() -> dict[str, list[str]]:
    read, write = os.pipe()
    pid = answer("clone", {flags}, 0, 0, ctypes.byref(ctypes.c_int()), 0)
    if pid == 0:
        os.close(read)
        try:
            answers = json.dumps(run_all(json.loads({arena!r}))).encode()
            while answers:
                answers = answers[os.write(write, answers):]
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        found = stream.read()
    if pid > 0:
        os.waitpid(pid, 0)
    return json.loads(found or "{{}}")


FOUND = attack()


@plugin.tool(side_effects="none", isolation="call", timeout_s=90)
def look() -> dict[str, list[str]]:
    """Tell what became of the attacks."""
    return FOUND
'''
_OVER_ITSELF = {
    # What a new user namespace is: capabilities, over itself and what it owns.
    *(f"identity/Cap{name}_is_empty" for name in ("Prm", "Eff", "Bnd")),
    "identity/take_capabilities",
    "identity/change_the_secure_bits",
    # The first process that it sees is its own.
    *(f"processes/{name}_first_process" for name in ("signal", "kill", "queue_signal")),
    "processes/signal_everybody",
    "inheritance/session_of_the_launcher",  # a number of outside the namespace: 0
    # A worker's, as in test_hostile_plugin.py.
    "inheritance/environment",
    "inheritance/descriptors",
    "inheritance/descriptors_that_lead_outside",
}


@pytest.mark.slow("every attack once more")
@pytest.mark.promise("S301")
def test_capabilities_over_new_namespaces_get_an_import_no_further(tmp_path: Path) -> None:
    lay_out(tmp_path)
    arena = {
        "families": FAMILIES,
        "level": "none",
        "read": "",
        "write": "",
        "outside": str(tmp_path / "outside"),
        "home": str(tmp_path / "home"),
        "outside_pids": [os.getpid()],
        "host_uid": os.getuid(),
        "lure": LURE,
        "lure_key": LURE_KEY,
        "lure_port": 0,
    }
    plugin = write_plugin(tmp_path / "plugin", "importer", _CODE.format(flags=FORK_FLAGS, arena=json.dumps(arena)))
    shutil.copytree(INSIDE, plugin / "tests" / "attacks" / "inside")
    with lures(tmp_path), running_sidecar([plugin]) as sidecar, grpc.insecure_channel(sidecar.target) as channel:
        result = ToolServiceStub(channel).CallTool(call("look"), timeout=90).result
    assert not result.is_error, result
    found: dict[str, list[str]] = json.loads(result.details_json)
    known = attacks("none")
    further = {name for name, (attacked, _) in found.items() if attacked not in known[name].denied}
    # It has the capabilities, so the attacks were made with them; and they are all that it has.
    assert {"identity/take_capabilities", "identity/CapEff_is_empty"} <= further
    assert {name for name in further - _OVER_ITSELF if not lacking(name, found[name][0])} == set()
    assert sum(control == DONE for _, control in found.values()) > len(found) * 0.9
