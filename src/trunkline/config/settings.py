"""The `gateway` section, and the settings of a whole configuration file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from trunkline.config.files import ConfigFile, Origin
from trunkline.config.reader import ReferencedVariable
from trunkline.config.secret_detection import secrets_in, secrets_in_environment
from trunkline.config.section import NestedSection, Section, SectionNodes, key
from trunkline.config.sources import NOTHING, ONE_DAY_S, SourceSection
from trunkline.config.value_types import (
    TEXTS,
    Boolean,
    Choice,
    FilePath,
    Integer,
    ListenAddress,
    ListOf,
    MapOf,
    Seconds,
    Text,
)
from trunkline.core.bind_address import MAX_PORT, BindAddress
from trunkline.core.errors import BAD_VALUE, CONFLICTING_KEYS, MISSING_KEY, TOKEN_REQUIRED, GatewayError, Problem
from trunkline.core.unfinished_bytes import DEFAULT_BYTES
from trunkline.runtime.state_files import gateway_key, gateways_folder

STATE_DIR: Final = "~/.local/state/trunkline"
_TOKEN_MESSAGE: Final = "Listening beyond this machine needs a `token`"
_TOKEN_HINT: Final = "set `token: ${TRUNKLINE_TOKEN}`, or listen on `127.0.0.1`"
_GIB: Final = 1024**3


def _check_host(host: str) -> str | None:
    return "A host is a name or an address, without `http://` or a path" if not host or "/" in host else None


def _check_token(token: str) -> str | None:
    one_word = token.isascii() and token.isprintable() and " " not in token
    return None if one_word else "A token must be a single word of plain ASCII"


def _check_tag(tag: str) -> str | None:
    return None if tag.strip() else "A tag cannot be empty"


def check_collector_url(url: str) -> tuple[str, str] | None:
    """What is wrong with the URL of a collector, and a hint; None if it is fine."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "This is not a URL", "write it like `http://127.0.0.1:4318`"
    if not usable:
        return "A collector's URL needs `http://` or `https://` and a host", "write it like `http://127.0.0.1:4318`"
    if parts.username is not None or parts.password is not None:
        return "A collector's URL must not contain credentials", "put them into `OTEL_EXPORTER_OTLP_HEADERS`"
    return None


class SearchSettings(Section):
    """How tools are searched."""

    semantic: bool = key(Boolean(), default=True, doc="Search by meaning as well as by words")
    pinned: tuple[str, ...] = key(TEXTS, default=(), doc="Tools that are always shown")
    tags: Mapping[str, tuple[str, ...]] = key(
        MapOf(TEXTS, check_name=_check_tag), default=NOTHING, doc="Tags, each with the patterns of its tools"
    )
    show_all_to: tuple[str, ...] = key(
        TEXTS,
        default=("claude-code",),
        doc="Clients that search by themselves and get the whole list when `disclosure` is `auto`",
    )


class LogSettings(Section):
    """What is logged, and how."""

    level: str = key(Choice("debug", "info", "warning", "error"), default="info", doc="The lowest level that is logged")
    format: str = key(
        Choice("auto", "human", "json"), default="auto", doc="`auto` is `human` on a terminal and `json` elsewhere"
    )
    show_commands: bool = key(Boolean(), default=False, doc="Log the commands that Bash runs, with secrets masked")


class TelemetrySettings(Section):
    """Where traces go."""

    exporter: str = key(Choice("none", "otlp", "console", "file"), default="none", doc="How traces are exported")
    endpoint: str = key(Text(), default="", doc="Destination: a URL for `otlp`, a path for `file`")

    @classmethod
    def check(cls, values: Mapping[str, Any], nodes: SectionNodes) -> None:
        exporter, endpoint = values.get("exporter"), values.get("endpoint", "")
        if exporter == "file" and not endpoint:
            message = "`exporter: file` needs the path of a file"
            nodes.reader.error(MISSING_KEY, nodes.of("exporter"), message, "set `endpoint` to it")
        elif exporter == "otlp" and endpoint and (wrong := check_collector_url(endpoint)):
            nodes.reader.error(BAD_VALUE, nodes.of("endpoint"), *wrong)


class LimitSettings(Section):
    """Limits, none of which can be switched off."""

    message_bytes: int = key(
        Integer(minimum=4096, maximum=_GIB), default=16_777_216, doc="Largest message a server may send"
    )
    request_bytes: int = key(
        Integer(minimum=1024, maximum=_GIB), default=4_194_304, doc="Largest request a client may send"
    )
    header_bytes: int = key(
        Integer(minimum=1024, maximum=16_777_216), default=65_536, doc="Largest head of an HTTP message"
    )
    unfinished_bytes: int = key(
        Integer(minimum=65_536, maximum=64 * _GIB),
        default=DEFAULT_BYTES,
        doc="Memory for incomplete messages of all clients and apps; above it, the oldest is dropped. "
        "Large calls, waiting or running, have a limit of the same size, above which calls are refused",
    )
    connections: int = key(Integer(minimum=1), default=4096, doc="HTTP connections open at once")
    in_flight_per_source: int = key(Integer(minimum=1), default=1024, doc="Calls one source works on at once")
    in_flight_per_client: int = key(Integer(minimum=1), default=256, doc="Calls one client may have open at once")
    in_flight: int = key(
        Integer(minimum=1),
        default=4096,
        doc="Calls that all clients without a session may have open at once; each of their connections carries one",
    )
    queue_per_source: int = key(Integer(minimum=1), default=1024, doc="Calls that may wait for one source")
    sessions: int = key(Integer(minimum=1), default=1000, doc="Client sessions open at once")
    session_idle: float = key(
        Seconds(maximum=30 * ONE_DAY_S), default=1800.0, doc="Seconds after which an unused session ends"
    )
    sessions_per_source: int = key(
        Integer(minimum=1),
        default=32,
        doc="Clients that may have a server of their own at once, for each source",
        formerly="lanes_per_source",
    )
    source_session_idle: float = key(
        Seconds(maximum=30 * ONE_DAY_S),
        default=1800.0,
        doc="Seconds after which an unused server of a client ends",
        formerly="lane_idle",
    )
    call_seconds: float = key(
        Seconds(maximum=ONE_DAY_S),
        default=900.0,
        doc="Seconds a call may take at most, even with progress, not counting time its client takes to answer",
    )
    server_request_seconds: float = key(
        Seconds(maximum=ONE_DAY_S),
        default=600.0,
        doc="Seconds a client and its user may take to answer a server's request during a call",
        formerly="question_seconds",
    )
    cache_bytes: int = key(
        Integer(minimum=1024, maximum=_GIB),
        default=67_108_864,
        doc="Memory for cached results, of all sources together",
    )


class GatewaySettings(Section):
    """Settings of the gateway as a whole."""

    listen: BindAddress = key(
        ListenAddress(),
        default=BindAddress("127.0.0.1", 4747),
        doc="`host:port` to listen on for HTTP; beyond loopback it needs a `token`",
    )
    allowed_hosts: tuple[str, ...] = key(
        ListOf(Text(check=_check_host)), default=(), doc="Further `Host` names to accept, such as those of an ingress"
    )
    token: str = key(
        Text(check=_check_token), default="", doc="Bearer token that clients must present; empty for none", secret=True
    )
    operator_token: str = key(
        Text(check=_check_token),
        default="",
        doc="Bearer token for the operator's routes; generated at start if not given",
        secret=True,
    )
    disclosure: str = key(
        Choice("all", "search", "auto"),
        default="auto",
        doc="What a client's list of tools contains: everything, or what it found by searching",
    )
    require_provisioning: bool = key(
        Boolean(),
        default=True,
        doc="Whether `execute_tool` and REST only run tools that were discovered or provisioned before",
    )
    context_tokens: int = key(
        Integer(minimum=100, maximum=100_000_000),
        default=4000,
        doc="Tokens of tool definitions that a session may hold unless it requests more",
    )
    search: SearchSettings = key(NestedSection(SearchSettings), default=SearchSettings(), doc="How tools are found")
    naming: str = key(
        Choice("prefixed", "original"),
        default="prefixed",
        doc="Whether tool names start with their source's prefix",
    )
    max_name: int = key(Integer(minimum=16, maximum=128), default=48, doc="Longest name of a tool")
    meta_tools: bool = key(Boolean(), default=True, doc="Whether clients see the gateway's own tools")
    start_wait: float = key(
        Seconds(maximum=60.0, allow_zero=True),
        default=1.5,
        doc="Seconds a first list of tools waits for servers not seen before",
    )
    state_dir: Path = key(FilePath(), default=Path(STATE_DIR), doc="The folder for persistent state")
    log: LogSettings = key(NestedSection(LogSettings), default=LogSettings(), doc="What is logged, and how")
    telemetry: TelemetrySettings = key(
        NestedSection(TelemetrySettings), default=TelemetrySettings(), doc="Where traces go"
    )
    socket: Path | None = key(FilePath(), default=None, doc="A Unix socket to listen on besides the port")
    limits: LimitSettings = key(NestedSection(LimitSettings), default=LimitSettings(), doc="Limits")

    @classmethod
    def check(cls, values: Mapping[str, Any], nodes: SectionNodes) -> None:
        if {"listen", "token"} <= values.keys() and needs_token(values["listen"], values["token"]):
            nodes.reader.error(TOKEN_REQUIRED, nodes.of("listen"), _TOKEN_MESSAGE, _TOKEN_HINT)
        token = values.get("token")
        if token and token == values.get("operator_token"):
            message = "`operator_token` is the same as `token`, so every client would be the operator"
            nodes.reader.error(
                CONFLICTING_KEYS, nodes.of("operator_token"), message, "use a different token for the operator"
            )
        if values.get("disclosure") == "search" and values.get("meta_tools") is False:
            message = "`disclosure: search` shows tools to search with, and `meta_tools: false` hides them"
            nodes.reader.error(CONFLICTING_KEYS, nodes.of("disclosure"), message, "remove one of the two")


def needs_token(listen: BindAddress, token: str) -> bool:
    """Whether listening on this address needs a token that is not set."""
    return not listen.is_loopback and not token


def with_listen(settings: GatewaySettings, *, host: str | None, port: int | None) -> GatewaySettings:
    """The settings with the address of a command line. Raises GatewayError if that cannot be listened on."""
    host = settings.listen.host if host is None else host.removeprefix("[").removesuffix("]")
    listen = BindAddress(host, settings.listen.port if port is None else port)
    if not listen.host or "/" in listen.host or listen.port not in range(MAX_PORT + 1):
        raise GatewayError(Problem(code=BAD_VALUE, message=f"`{listen}` is not an address to listen on"))
    if needs_token(listen, settings.token):
        raise GatewayError(Problem(code=TOKEN_REQUIRED, message=_TOKEN_MESSAGE, where=str(listen), hint=_TOKEN_HINT))
    return settings.replace(listen=listen)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a configuration file: everything the gateway is built from.

    `sources` is in file order: of tools with equal names the earlier one wins. `referenced_variables` are the variables
    that the file refers to, with their values, and `files` are those that values were taken from.
    """

    path: Path
    gateway: GatewaySettings
    sources: Mapping[str, SourceSection]
    referenced_variables: frozenset[ReferencedVariable] = field(default=frozenset(), repr=False)
    files: frozenset[Path] = frozenset()
    origin: Origin = "named"

    def with_commands_shown(self) -> Settings:
        """The settings with `log.show_commands` on."""
        gateway = self.gateway
        return replace(self, gateway=gateway.replace(log=gateway.log.replace(show_commands=True)))

    @property
    def file(self) -> ConfigFile:
        """The file to load again for its current settings."""
        return ConfigFile(self.path, self.origin)

    def secrets(self, environ: Mapping[str, str] = os.environ) -> set[str]:
        """Every secret of the configuration and of the environment that its programs inherit."""
        secrets = {*secrets_of(self.gateway), *secrets_in_environment(environ)}
        for variable, value in self.referenced_variables:
            secrets.update(secrets_in(variable, value, from_outside=True))
        for section in self.sources.values():
            secrets.update(secrets_of(section))
        for inherited in {getattr(section, "inherit_env", ()) for section in self.sources.values()} - {()}:
            secrets.update(secrets_in_environment(environ, inherited))
        return secrets

    def names(self) -> set[str]:
        """The names of servers and tools, which are not secret even if a variable has the same value."""
        names = set(self.sources)
        for section in self.sources.values():
            tools = section.tools
            names.update((section.prefix, *tools.allow, *tools.deny, *tools.rename, *tools.rename.values()))
            names.update(tool.name for tool in getattr(section, "declare", ()))
        return names


def secrets_of(section: Section) -> Iterator[str]:
    """The secrets in a section and the sections within it."""
    for name, declared in section.declared.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from secrets_of(value)
        elif declared.secret:
            yield from secrets_in("token" if name == "tokens" else name, value)


def gateway_folder(settings: Settings) -> Path:
    """Where the gateway of this configuration file keeps its state. The folder may not exist yet."""
    return gateways_folder(settings.gateway.state_dir) / gateway_key(settings.path)
