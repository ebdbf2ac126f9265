"""Checks `one_process` in `[[plugin]]`: what would give its tools a second process is refused beside it."""

from __future__ import annotations

from fumehood_server.config.config_file import PluginTable
from fumehood_server.config.toml_source import Key, TomlSource


def most_workers(table: PluginTable, key: Key, source: TomlSource) -> int:
    """How many processes of one worker spec may run at a time: 1 with `one_process`, else `max_workers`.

    Raises:
        ConfigError: `max_workers`, or the `hosts` of one tool, contradict `one_process`.
    """
    if not table.one_process:
        return table.max_workers
    if "max_workers" in table.model_fields_set and table.max_workers > 1:
        problem = f"`max_workers = {table.max_workers}` contradicts `one_process` in the same [[plugin]]"
        raise source.problem((*key, "max_workers"), problem, "remove one of them")
    for name, grant in table.tools.items():
        if grant.hosts is not None:
            problem = f"`hosts` in [plugin.tools.{name}] would need a second process, beside `one_process`"
            raise source.problem((*key, "tools", name, "hosts"), problem, "name them in `hosts` of its [[plugin]]")
    return 1
