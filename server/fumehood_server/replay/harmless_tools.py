"""The tools of a plugin in the `none` sandbox without any grant, whatever they declare."""

from __future__ import annotations

from collections.abc import Mapping

from fumehood_sandbox import Level

from fumehood_server.config.config import SidecarConfig
from fumehood_server.model.plugin import Grants, RegisteredTool
from fumehood_server.model.tool import Permission
from fumehood_server.plugins.definition_verifier import DefinitionVerifier
from fumehood_server.plugins.definitions import definition_digest
from fumehood_server.plugins.loading import LoadedPlugin
from fumehood_server.plugins.specs import NOTHING, SpecMaker, build_program


def harmless_tools(config: SidecarConfig, loaded: LoadedPlugin) -> Mapping[str, RegisteredTool]:
    """By the digest of their definitions.

    Raises:
        ConfigError: its program can't be run.
    """
    manifest = loaded.manifest
    maker = SpecMaker(
        manifest=manifest,
        digest=loaded.digest,
        built=build_program(manifest, loaded.run_folder, loaded.packages),
        grants=Grants(max_side_effects=Level.NONE),
        limits=config.limits,
        sandbox=config.sandbox,
        max_workers=2,
        verifier=DefinitionVerifier(loaded) if manifest.kind.describes_itself else None,
    )
    return {
        digest: RegisteredTool(
            definition=definition,
            definition_digest=digest,
            plugin=manifest.name,
            plugin_version=manifest.version,
            permission=Permission.ALLOW,
            timeout_s=min(definition.timeout_s, config.limits.cap_timeout_s),
            spec=maker.spec(Level.NONE, definition.limits, NOTHING, definition.isolation),
        )
        for definition in loaded.tools
        for digest in (definition_digest(definition),)
    }
