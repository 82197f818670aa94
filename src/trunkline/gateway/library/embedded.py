"""Runs a gateway inside another program: its configuration, its log, and the implementation of `Gateway`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from trunkline.config.files import find_config
from trunkline.config.load import LoadedConfig, load_config, load_text
from trunkline.config.settings import Settings
from trunkline.core.call import Caller
from trunkline.core.errors import CONFIG_UNREADABLE, LITERAL_SECRET, WRONG_TYPE, Problem
from trunkline.core.events import Events, LogEvent
from trunkline.core.source import Health
from trunkline.gateway import composition
from trunkline.gateway.library.errors import ConfigurationError
from trunkline.gateway.library.results import Tool, tool_of
from trunkline.router.catalog import Catalog
from trunkline.runtime.deadlines import TimeLimit
from trunkline.search.finder import SearchResult, server_tools
from trunkline.sources import section_kinds
from trunkline.telemetry.redaction import Redactor

_SEARCH_S: Final = 30.0


class EmbeddedGateway:
    """A gateway that runs from its creation to `close`. Raises ConfigurationError before anything has started."""

    def __init__(self, config: Config) -> None:
        settings, warnings = read_config(config)
        events, redact = Events(), Redactor(settings.secrets(), settings.names())
        events.health.append(self._health_changed)
        StandardLog(events, redact).warn(warnings)
        self.loop = asyncio.get_running_loop()
        self.request_bytes = settings.gateway.limits.request_bytes
        self._health_event = asyncio.Event()
        self._closing = False
        self._searches: set[asyncio.Future[SearchResult]] = set()
        self._listed_tools: tuple[Catalog, int, list[Tool]] | None = None
        self._gateway = composition.GatewayRuntime(settings, events, redact=redact)
        self.router = self._gateway.router
        self._tracer = composition.make_gateway_tracer(settings, events, redact)
        if self._tracer is not None:
            self._tracer.attach(self.router)
        self._gateway.start()

    async def close(self) -> None:
        """End everything, even if the caller is cancelled: nothing else would end the processes."""
        self._closing = True
        self._health_event.set()
        for found in self._searches:
            if not found.done():
                found.set_exception(RuntimeError("the gateway was closed during the search"))
        closing = self.loop.create_task(self._close())
        cancelled: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.wait([closing])
            except asyncio.CancelledError as error:
                cancelled = error
        closing.result()
        if cancelled is not None:
            raise cancelled

    async def _close(self) -> None:
        await self._gateway.close()
        if self._tracer is not None:
            await self._tracer.close()

    # -- waiting --------------------------------------------------------------------------------------------------

    async def published(self) -> None:
        """Wait until every server has listed its tools or its start-up wait is over."""
        published: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.router.when_published(lambda: None if published.done() else published.set_result(None))
        await published

    async def settled(self) -> None:
        """Wait until no server is starting, or until `close`."""
        servers = self.router.registry.servers
        while not self._closing and any(admission.health.state == "starting" for admission in servers().values()):
            self._health_event.clear()
            await self._health_event.wait()

    def _health_changed(self, source: str, health: Health) -> None:
        self._health_event.set()

    # -- tools ----------------------------------------------------------------------------------------------------

    def tools(self, caller: Caller) -> list[Tool]:
        """The tools a caller sees, decoded once for each change of the list."""
        catalog = self.router.views.of(caller)
        if self._listed_tools is None or self._listed_tools[:2] != (catalog, catalog.version):
            self._listed_tools = (catalog, catalog.version, [tool_of(entry) for entry in server_tools(catalog)])
        return self._listed_tools[2]

    async def search(self, caller: Caller, query: str, limit: int) -> list[Tool]:
        found: asyncio.Future[SearchResult] = asyncio.get_running_loop().create_future()
        self._searches.add(found)
        try:
            async with TimeLimit(_SEARCH_S):
                find = self._gateway.discovery.find
                find(caller, query, [], lambda hits: None if found.done() else found.set_result(hits))
                return [tool_of(entry) for entry in (await found).entries[: max(limit, 0)]]
        finally:
            self._searches.discard(found)


# -- the log: events go to the logger `trunkline` of the standard library, for the program to handle ------------------

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FINE_STATES: Final = frozenset({"starting", "ready", "disabled"})

log: Final = logging.getLogger("trunkline")


class StandardLog:
    """Writes the gateway's events to the logger, but not calls, whose results the caller has."""

    def __init__(self, events: Events, redact: Callable[[str], str]) -> None:
        self._redact = redact
        events.health.append(self._health_changed)
        events.noted.append(self._noted)

    def warn(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            log.warning("%s", self._redact(str(problem)))

    def _health_changed(self, source: str, health: Health) -> None:
        level = logging.INFO if health.state in _FINE_STATES else logging.WARNING
        reason = f": {health.reason}" if health.reason else ""
        log.log(level, "%s", self._redact(f"{source} is {health.state}{reason}"))

    def _noted(self, note: LogEvent) -> None:
        log.log(_LEVELS[note.level], "%s", self._redact(note.message))


# -- the configuration ------------------------------------------------------------------------------------------------

Config = str | os.PathLike[str] | Mapping[str, Any] | None

_NAME: Final = "trunkline.json"
_SHOWN_AS: Final = "config"


def read_config(config: Config) -> tuple[Settings, tuple[Problem, ...]]:
    """Read a file, a mapping with the same keys, or (None) the file in the usual place. Returns settings and warnings.

    Raises ConfigurationError."""
    loaded = _of_mapping(config) if isinstance(config, Mapping) else _from_file(config)
    if loaded.settings is None:
        raise ConfigurationError(loaded.problems, loaded.text)
    return loaded.settings, loaded.problems


def _from_file(path: str | os.PathLike[str] | None) -> LoadedConfig:
    found = find_config(None if path is None else Path(path).expanduser(), Path.cwd(), Path.home())
    if found is None:
        hint = 'name one: `Gateway("trunkline.yaml")`, or give its keys as a dict'
        raise ConfigurationError([Problem(code=CONFIG_UNREADABLE, message="No configuration file found", hint=hint)])
    return load_config(found, environ=os.environ, kinds=section_kinds())


def _of_mapping(config: Mapping[str, Any]) -> LoadedConfig:
    """Read a mapping as if it were a file in the working folder. Secrets in it cause no warning."""
    try:
        text = json.dumps(dict(config), indent=2, default=_plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        problem = Problem(
            code=WRONG_TYPE, message=f"It may only contain strings, numbers, lists and dicts: {error}", where=_SHOWN_AS
        )
        raise ConfigurationError([problem]) from None
    loaded = load_text(text, Path.cwd() / _NAME, environ=os.environ, kinds=section_kinds())
    problems = (replace(problem, where=_SHOWN_AS) for problem in loaded.problems if problem.code is not LITERAL_SECRET)
    return replace(loaded, problems=tuple(problems))


def _plain(value: Any) -> Any:
    """Encode paths and mappings, which programs pass besides JSON's own types."""
    if isinstance(value, os.PathLike):
        return os.fspath(cast(os.PathLike[str], value))
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, Any], value))
    raise TypeError(f"{type(value).__name__} is not allowed")
