"""Reads fumehood.toml, checks it and resolves its paths and grants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fumehood_sandbox import Limits

from fumehood_server.config.callers import PUBLIC_FILES, caller_files, client_files, read_callers, read_tls
from fumehood_server.config.checkpoints import CheckpointPlaces, read_checkpoints
from fumehood_server.config.command_files import command_files
from fumehood_server.config.config import (
    CONFIG_NAME,
    DEFAULT_LOG_BYTES_PER_SECOND,
    DEFAULT_OUTPUT_BYTES,
    LOCK_NAME,
    SANDBOX_LIMITS,
    SIDECAR_LIMITS,
    TOKEN_FILE,
    ApprovalsConfig,
    JournalConfig,
    LimitsConfig,
    PluginConfig,
    SandboxConfig,
    ServerConfig,
    SidecarConfig,
    SidecarLimits,
)
from fumehood_server.config.config_file import (
    CgroupUse,
    ConfigFile,
    JournalStore,
    JournalTable,
    LimitsTable,
    PluginTable,
    RetryTable,
    ServerTable,
    SocketMode,
)
from fumehood_server.config.database import Database, read_database
from fumehood_server.config.database_files import DatabaseFiles
from fumehood_server.config.egress import read_denied, read_egress, read_granted, read_private
from fumehood_server.config.engines import check_granted, grammar_files, read_engines, read_orchestration
from fumehood_server.config.grants import (
    GrantError,
    Protected,
    check_links,
    protected_code,
    protected_paths,
    resolve_grants,
)
from fumehood_server.config.hooks import read_hooks, read_middleware
from fumehood_server.config.listen import ListenError, SocketAccess, parse_all, read_group
from fumehood_server.config.listeners import ReachableListenerError, check_unreachable
from fumehood_server.config.mcp import read_mcp
from fumehood_server.config.mounts import read_mounts
from fumehood_server.config.one_process import most_workers
from fumehood_server.config.policy import read_rules
from fumehood_server.config.quotas import read_quotas
from fumehood_server.config.secrets import check_secret_links, read_secrets
from fumehood_server.config.tables import read_table
from fumehood_server.config.telemetry import read_telemetry
from fumehood_server.config.toml_source import Key, TomlSource, read_toml
from fumehood_server.config.webhook import read_webhook
from fumehood_server.errors import ConfigError
from fumehood_server.model.batches import BatchConfig
from fumehood_server.model.plugin import Grants, ToolGrant
from fumehood_server.model.retries import RetryConfig


def find_config(explicit: Path | None) -> Path | None:
    """The file to read: `explicit`, else fumehood.toml of the working directory, else None.

    Raises:
        ConfigError: `explicit` names a file that isn't there.
    """
    if explicit is not None:
        if not explicit.exists():
            raise ConfigError(explicit, "no such file", hint="leave it out to run without plugins")
        return explicit
    here = Path.cwd() / CONFIG_NAME
    return here if here.exists() else None


def load_config(path: Path | None, *, allow_anonymous: bool = False) -> SidecarConfig:
    """Read one file, or make the default configuration of the working directory when there is none.

    `allow_anonymous` says so where the file doesn't.

    Raises:
        ConfigError: the file can't be honoured as it stands; the error names the line and what to write.
    """
    if path is None:
        return default_config(Path.cwd(), allow_anonymous=allow_anonymous)
    named, path = path.absolute(), path.resolve()
    source = read_toml(path)
    return _convert(read_table(ConfigFile, source), source, path.parent, named=named, allow_anonymous=allow_anonymous)


def default_config(folder: Path, *, named: Path | None = None, allow_anonymous: bool = False) -> SidecarConfig:
    """The configuration without a file. Nothing is granted, and no plugin is named.

    `named` is where a file is to be written: it is protected already.

    Raises:
        ConfigError: the path of the folder is too long for a socket within it.
    """
    source = TomlSource(path=named or folder / CONFIG_NAME, data={}, text="", error=ConfigError)
    return _convert(ConfigFile(), source, folder, named=named, allow_anonymous=allow_anonymous)


def _convert(
    file: ConfigFile, source: TomlSource, folder: Path, *, named: Path | None = None, allow_anonymous: bool = False
) -> SidecarConfig:
    """`named` is the path by which the file was named. None: there is no file, and none is to be."""
    server = _server(file.server, source, folder, allow_anonymous=allow_anonymous)
    callers = read_callers(
        file.caller, source, folder, listen=server.listen, tls=server.tls, allow_anonymous=server.allow_anonymous
    )
    folders = [(folder / each.path).resolve() for each in file.plugin]
    for index, each in enumerate(folders):
        if each in folders[:index]:
            raise source.problem(
                ("plugin", index, "path"), f'"{each}" is named twice', "one [[plugin]] for each folder"
            )
    _check_state_dir(server.state_dir, folders, source)
    secrets = read_secrets(file, source, folder)
    webhook = read_webhook(file, source, secrets=secrets, callers=callers)
    checkpoints = read_checkpoints(file.journal.checkpoints, source, folder)
    database = read_database(file.journal, source, folder)
    mcp = read_mcp(file.mcp, source, state_dir=server.state_dir, tls=server.tls, callers=callers)
    engines = read_engines(file, source, secrets=secrets)
    check_granted(file.plugin, source, engines)
    orchestration = read_orchestration(file.orchestration, source, folder, engines=engines)
    config = SidecarConfig(
        path=None if named is None else source.path,
        folder=folder,
        lock_path=folder / LOCK_NAME,
        server=server,
        limits=_limits(file.limits, source),
        sandbox=SandboxConfig(minimum=file.sandbox.minimum, cgroups=file.sandbox.cgroups is not CgroupUse.OFF),
        journal=_journal(file.journal, checkpoints, database, source),
        retry=_retry(file.retry, source),
        batch=BatchConfig(max_concurrent=file.batch.max_concurrent, max_calls=file.batch.max_calls),
        callers=callers,
        secrets=secrets,
        egress=read_egress(file.egress, source),
        telemetry=read_telemetry(file.telemetry, source),
        rules=read_rules(file.policy.rule, source),
        quotas=read_quotas(file.policy.quota, source, journal=file.journal.store),
        approvals=ApprovalsConfig(
            decide_within_s=file.approvals.decide_within_s,
            use_within_s=file.approvals.use_within_s,
            max_open=file.approvals.max_open,
            standing_max_s=file.approvals.standing_max_s,
            webhook=webhook,
        ),
        mcp=mcp,
        hooks=read_hooks(file.hook, callers, source),
        middleware=read_middleware(file.middleware, source),
        engines=engines,
        orchestration=orchestration,
    )
    return _with_plugins(config, file, source, named)


def _with_plugins(config: SidecarConfig, file: ConfigFile, source: TomlSource, named: Path | None) -> SidecarConfig:
    """The rest of the configuration with its plugins: what each is granted is held against it."""
    database_files = DatabaseFiles() if config.journal.database is None else config.journal.database.files
    protected = _protected(config, file, named, database_files)
    has_writers = any(table.write for table in file.plugin)
    code = protected_code([each.name for each in file.middleware]) if has_writers else ()
    refused = (*protected, *code)
    plugins = tuple(_plugin(table, index, source, config.folder, refused) for index, table in enumerate(file.plugin))
    _check_links(file, plugins, source, config.folder)
    secrets = {f"secrets.{name}": each.file for name, each in config.secrets.items() if each.file is not None}
    database = ({"journal.store": each} for each in database_files.secret)
    for files in (secrets | _own_files(config, file), *database, *_client_files(config, file, named)):
        check_secret_links(
            files,
            source,
            config.folder,
            public=PUBLIC_FILES,
            plugin_folders=[plugin.path for plugin in plugins],
            writable=[path for plugin in plugins for path in plugin.grants.write],
        )
    config = replace(config, plugins=plugins, protected=protected)
    try:
        check_unreachable(config)
    except ReachableListenerError as exc:
        raise source.problem(("plugin", exc.plugin, *exc.key), exc.problem, exc.hint) from exc
    return config


def _protected(
    config: SidecarConfig, file: ConfigFile, named: Path | None, database_files: DatabaseFiles
) -> tuple[Protected, ...]:
    """What no grant may overlap, beside code. Paths are as the file has them, with their symlinks."""
    database, webhook, checkpoints = config.journal.database, config.approvals.webhook, config.journal.checkpoints
    secrets = {name: each.file for name, each in config.secrets.items() if each.file is not None}
    client = [each for files in _client_files(config, file, named) for each in files.items()]
    sockets = [each.path for each in config.server.listen if each.path is not None]
    if webhook is not None and webhook.replies is not None and webhook.replies.listen.path is not None:
        sockets.append(webhook.replies.listen.path)
    return protected_paths(
        state_dir=config.server.state_dir,
        lock_path=config.lock_path,
        config_path=named,
        plugin_folders=[config.folder / each.path for each in file.plugin],
        secret_files={**secrets, "tokens": config.server.token_file, **_own_files(config, file)},
        sockets=sockets,
        checkpoint_file=checkpoints.file,
        checkpoint_command=command_files(checkpoints.command, config.folder),
        database=database_files,
        config_is_secret=database is not None and database.has_password,
        grammars=grammar_files(file.orchestration, config.folder),
        client_secret=[path for key, path in client if key not in PUBLIC_FILES],
        client_public=[path for key, path in client if key in PUBLIC_FILES],
    )


def _own_files(config: SidecarConfig, file: ConfigFile) -> dict[str, Path]:
    """The journal's password, and the files by which callers are known, by their dotted keys."""
    password = None if config.journal.database is None else config.journal.database.password_file
    tokens = None if file.server.token_file is None else config.server.token_file
    return {**({} if password is None else {"journal.password": password}), **caller_files(config.server.tls, tokens)}


def _client_files(config: SidecarConfig, file: ConfigFile, named: Path | None) -> list[dict[str, Path]]:
    """Those of `[client]`, for commands in the folder of fumehood.toml, and where it is a symlink in that one's too."""
    folders = {config.folder, config.folder if named is None else named.parent}
    return [client_files(file.client, each) for each in sorted(folders)]


_DAY_S = 86_400


def _check_state_dir(state_dir: Path, folders: Sequence[Path], source: TomlSource) -> None:
    """Refuse state within what is pinned: each start would change it. Plugins never hold a `.fumehood`."""
    real, mounts = state_dir.resolve(), read_mounts()
    for folder in folders:
        is_left_out = real.is_relative_to(folder) and ".fumehood" in real.relative_to(folder).parts
        if mounts.holds(folder, real) and not is_left_out:
            problem = f'`state_dir` "{real}" lies in the plugin\'s folder "{folder}"'
            raise source.problem(("server", "state_dir"), problem, 'name a folder outside of it, or ".fumehood"')


def _retry(table: RetryTable, source: TomlSource) -> RetryConfig:
    if table.default_attempts > table.max_attempts:
        problem = f"`default_attempts` in [retry] is above the {table.max_attempts} of `max_attempts`"
        raise source.problem(("retry", "default_attempts"), problem, "lower it, or raise `max_attempts`")
    return RetryConfig(default_attempts=table.default_attempts, max_attempts=table.max_attempts)


def _journal(
    table: JournalTable, checkpoints: CheckpointPlaces, database: Database | None, source: TomlSource
) -> JournalConfig:
    if table.keep_events_d and table.keep_events_d * _DAY_S < table.call_id_window_s:
        problem = f"`keep_events_d` in [journal] is less than the {table.call_id_window_s:,} s of `call_id_window_s`"
        hint = "a call whose events are gone would run again under its id: keep them at least as long"
        raise source.problem(("journal", "keep_events_d"), problem, hint)
    return JournalConfig(
        store=JournalStore(table.store) if database is None else JournalStore.POSTGRESQL,
        database=database,
        required=table.required,
        call_id_window_s=table.call_id_window_s,
        checkpoints=checkpoints,
        keep_payloads_d=table.keep_payloads_d,
        keep_events_d=table.keep_events_d,
        payloads=table.payloads,
    )


def _server(table: ServerTable, source: TomlSource, folder: Path, *, allow_anonymous: bool) -> ServerConfig:
    try:
        listen = parse_all(table.listen, folder)
    except ListenError as exc:
        raise source.problem(("server", "listen", exc.index), exc.problem, exc.hint) from exc
    return ServerConfig(
        listen=listen,
        socket_access=_socket_access(table, source),
        state_dir=folder / table.state_dir,
        allow_anonymous=table.allow_anonymous or allow_anonymous,
        token_file=folder / (table.token_file or Path(table.state_dir) / TOKEN_FILE),
        tls=read_tls(table.tls, folder),
        idle_stop_s=table.idle_stop_s,
        start_timeout_s=table.start_timeout_s,
        max_concurrent_calls=table.max_concurrent_calls,
        max_arguments_bytes=table.max_arguments_bytes,
        drain_s=table.drain_s,
        keepalive_s=table.keepalive_s,
        max_connections=table.max_connections,
        connection_idle_s=table.connection_idle_s,
        log_level=table.log_level,
        reflection=table.reflection,
    )


def _socket_access(table: ServerTable, source: TomlSource) -> SocketAccess:
    mode = table.socket_mode
    if table.socket_group is None:
        return SocketAccess(mode=int(mode or SocketMode.OWNER, 8))
    if mode is SocketMode.OWNER:
        problem = f'`socket_mode` in [server] is "{mode}", so that nobody of `socket_group` may connect'
        raise source.problem(
            ("server", "socket_mode"), problem, f'write "{SocketMode.GROUP}", or leave out one of them'
        )
    try:
        group_id = read_group(table.socket_group)
    except ListenError as exc:
        raise source.problem(("server", "socket_group"), exc.problem, exc.hint) from exc
    return SocketAccess(mode=int(mode or SocketMode.GROUP, 8), group_id=group_id, group=table.socket_group)


def _limits(table: LimitsTable, source: TomlSource) -> LimitsConfig:
    given = table.default.model_dump(exclude_none=True)
    caps = table.cap.model_dump()
    for name, value in given.items():
        if value > caps[name]:
            key = ("limits", "default", name)
            raise source.problem(key, f"`{name}` in [limits.default] is above its cap of {caps[name]}", "lower it")
    own = SidecarLimits(
        output_bytes=given.pop("output_bytes", DEFAULT_OUTPUT_BYTES),
        log_bytes_per_second=given.pop(
            "log_bytes_per_second", min(DEFAULT_LOG_BYTES_PER_SECOND, table.cap.log_bytes_per_second)
        ),
    )
    return LimitsConfig(
        default=Limits(**given),
        default_own=own,
        cap=Limits(**{name: caps[name] for name in SANDBOX_LIMITS}),
        cap_own=SidecarLimits(**{name: caps[name] for name in SIDECAR_LIMITS}),
        cap_timeout_s=table.cap.timeout_s,
    )


def _plugin(
    table: PluginTable, index: int, source: TomlSource, folder: Path, protected: Sequence[Protected]
) -> PluginConfig:
    key = ("plugin", index)
    try:
        read, write = resolve_grants(table.read, table.write, folder=folder, protected=protected)
    except GrantError as exc:
        raise _grant_problem(exc, key, source) from exc
    return PluginConfig(
        path=(folder / table.path).resolve(),
        grants=Grants(
            max_side_effects=table.max_side_effects,
            read=read,
            write=write,
            hosts=read_granted(table.hosts, (*key, "hosts"), source),
            deny_hosts=read_denied(table.deny_hosts, (*key, "deny_hosts"), source),
            private=read_private(table.allow_private, (*key, "allow_private"), source),
            engine=table.engine or "",
        ),
        build_hosts=read_granted(table.build_hosts, (*key, "build_hosts"), source),
        max_workers=most_workers(table, key, source),
        secrets=tuple(sorted(set(table.secrets))),
        one_process=table.one_process,
        list_with_grants=table.list_with_grants,
        tools={
            name: ToolGrant(
                permission=grant.permission,
                timeout_s=grant.timeout_s,
                idle_timeout_s=grant.idle_timeout_s,
                isolation=grant.isolation,
                alias=grant.alias or "",
                payloads=grant.payloads,
                cache_s=grant.cache_s,
                cache_shared=grant.cache_shared,
                side_effects=grant.side_effects,
                idempotent=grant.idempotent,
                secrets=tuple(sorted(set(grant.secrets))),
                hosts=None
                if grant.hosts is None
                else read_granted(grant.hosts, (*key, "tools", name, "hosts"), source),
            )
            for name, grant in table.tools.items()
        },
        line=source.line(key),
        prefix=table.prefix,
        tool_lines={name: source.line((*key, "tools", name)) for name in table.tools},
    )


def _check_links(file: ConfigFile, plugins: Sequence[PluginConfig], source: TomlSource, folder: Path) -> None:
    """Refuse a grant whose path goes through a symlink that any plugin could have made."""
    writable = [path for plugin in plugins for path in plugin.grants.write]
    for index, table in enumerate(file.plugin):
        try:
            check_links("read", table.read, folder=folder, writable=writable)
            check_links("write", table.write, folder=folder, writable=writable)
        except GrantError as exc:
            raise _grant_problem(exc, ("plugin", index), source) from exc


def _grant_problem(exc: GrantError, key: Key, source: TomlSource) -> ConfigError:
    return source.problem((*key, exc.key, exc.index), f"`{exc.key}` in [[plugin]]: {exc.problem}", exc.hint)
