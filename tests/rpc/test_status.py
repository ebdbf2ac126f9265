from __future__ import annotations

from fumehood.v1 import error_pb2, tool_pb2
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1 import tool_service_pb2 as tool_pb
from fumehood_sandbox import Level
from fumehood_server.errors import RefusalReason
from fumehood_server.model.plugin import PluginState
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.model.tool import ExecutionMode, Isolation, Permission
from fumehood_server.rpc.journal_service import JournalService
from fumehood_server.rpc.plugin_messages import STATES
from fumehood_server.rpc.plugin_service import PluginService
from fumehood_server.rpc.result_messages import SIDE_EFFECTS
from fumehood_server.rpc.status import CATEGORIES, REFUSALS
from fumehood_server.rpc.tool_messages import EXECUTION_MODES, ISOLATIONS, PERMISSIONS
from fumehood_server.rpc.tool_service import ToolService


def test_every_refusal_has_a_status() -> None:
    assert set(REFUSALS) == set(RefusalReason)


def test_every_code_has_a_category_and_every_category_a_number() -> None:
    assert {code.category for code in Code} == set(Category) == set(CATEGORIES)
    assert sorted(CATEGORIES.values()) == sorted(set(error_pb2.FailureCategory.values()) - {0})


def test_every_word_of_ours_has_its_number() -> None:
    for table, words, numbers in (
        (SIDE_EFFECTS, Level, tool_pb2.SideEffects),
        (PERMISSIONS, Permission, tool_pb2.Permission),
        (ISOLATIONS, Isolation, tool_pb2.Isolation),
        (EXECUTION_MODES, ExecutionMode, tool_pb2.ExecutionMode),
        (STATES, PluginState, plugin_pb.PluginState),
    ):
        assert set(table) == set(words)
        assert sorted(table.values()) == sorted(set(numbers.values()) - {0})


def test_every_method_of_the_protocol_is_served() -> None:
    for servicer, descriptor in (
        (ToolService, tool_pb.DESCRIPTOR),
        (PluginService, plugin_pb.DESCRIPTOR),
        (JournalService, journal_pb.DESCRIPTOR),
    ):
        (service,) = descriptor.services_by_name.values()
        served = {name for name in vars(servicer) if not name.startswith("_")} - {"service"}
        assert served == {_snake(method.name) for method in service.methods}


def _snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name).lstrip("_")
