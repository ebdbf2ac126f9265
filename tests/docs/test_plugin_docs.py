"""docs/configuration.md names every key, and its examples are taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fumehood_server.config import config_file, policy_tables
from fumehood_server.config.load import load_config
from fumehood_server.config.tables import Table
from fumehood_server.plugins import manifest_file

from tests.plugins.support import configure, manifest_of

DOCS = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
EXAMPLES = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)


@pytest.mark.parametrize(
    "table",
    [
        config_file.ServerTable,
        config_file.TlsTable,
        config_file.CallerTable,
        config_file.ClientTable,
        config_file.CapLimitsTable,
        config_file.PluginTable,
        config_file.ToolGrantTable,
        config_file.SecretTable,
        policy_tables.RuleTable,
        policy_tables.ConditionTable,
        policy_tables.QuotaTable,
        config_file.ApprovalsTable,
        config_file.WebhookTable,
        manifest_file.PluginTable,
        manifest_file.ToolTable,
        manifest_file.LimitsTable,
    ],
)
def test_every_key_is_documented(table: type[Table]) -> None:
    tables = {"tools", "limits", "webhook"}
    assert [name for name in table.model_fields if f"`{name}`" not in DOCS and name not in tables] == []


def test_every_reason_in_the_code_is_documented() -> None:
    folders = (Path(module.__file__).parent for module in (config_file, manifest_file))
    paths = (path for folder in folders for path in folder.glob("*.py"))
    codes = {code for path in paths for code in re.findall(r'Reason\(\s*"([a-z_]+)"', path.read_text())}
    assert len(codes) > 10
    assert [code for code in sorted(codes) if f"`{code}`" not in DOCS] == []


def test_the_examples_are_taken(tmp_path: Path) -> None:
    operators, authors = EXAMPLES
    for name in ("data", "build/notes", "plugins/files"):
        (tmp_path / name).mkdir(parents=True)
    assert load_config(configure(tmp_path, operators)).plugins[0].max_workers == 2
    (tmp_path / "plugin.toml").write_text(authors)
    assert manifest_of(tmp_path).tools[0].name == "search_text"
