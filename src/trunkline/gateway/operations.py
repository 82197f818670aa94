"""An operator's changes to a running gateway: reloads, servers that are added, removed and reconnected, services that
register, and tokens for sessions.

A change takes effect as a whole or not at all: a file with errors leaves everything as it is.
"""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from trunkline.config.added import AddedServer, keep_added, load_added, read_added
from trunkline.config.found import plugins_file
from trunkline.config.gateway import GatewaySettings, needs_token
from trunkline.config.leased import read_leased
from trunkline.config.load import Loaded
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import (
    CONFIG_UNREADABLE,
    DRAINING,
    INVALID_PARAMS,
    NOT_TRUSTED,
    RELOAD_REFUSED,
    SERVER_EXISTS,
    SOURCE_DISABLED,
    STATE_NOT_WRITTEN,
    TOKEN_REQUIRED,
    TOO_MANY_SESSIONS,
    UNKNOWN_SERVER,
    GatewayError,
    Problem,
)
from trunkline.core.names import RESERVED_SOURCE
from trunkline.gateway.composition import GatewayRuntime
from trunkline.gateway.source_reconciler import Changes
from trunkline.router.status import server_statuses
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.source_context import is_token
from trunkline.sources import section_kinds

Load = Callable[[], Loaded]
LIVE_KEYS: Final = frozenset(
    {"token", "operator_token", "allowed_hosts", "naming", "max_name", "meta_tools"}
    | {"disclosure", "require_provisioning", "context_tokens", "search"}
)
"""Keys of `gateway` that a reload changes; the others wait for the next start."""
_LONGEST_SESSION: Final = 256
_EVERYBODY: Final = "*"


class Operations:
    """Changes a running gateway. `folder` holds what must survive a restart."""

    def __init__(self, gateway: GatewayRuntime, load: Load, folder: Path) -> None:
        self.on_settings: list[Callable[[Settings], None]] = []
        """Called before a configuration is put to use, with what it says."""
        self.put_off: Callable[[], bool] = lambda: False
        """Whether what the file says may be the work of a command that runs now."""
        self._gateway = gateway
        self._events = gateway.events
        self._load = load
        self._folder = folder
        self._settings = gateway.settings
        self._started_with = gateway.settings.gateway
        self.listen: BindAddress | None = None
        """Where the HTTP door is open, whatever a changed file says; None without one."""
        self._leases = Leases(self._lease_ended)
        self._added: dict[str, AddedServer] = {}
        self._kept: set[str] = set()
        self._removed: set[str] = set()
        self._is_refused = False

    def close(self) -> None:
        self._leases.close()

    def start(self) -> None:
        """Start all servers, including those that were added permanently over the API."""
        self._bring_back()
        self._apply()

    def _bring_back(self) -> None:
        bodies, fault = load_added(self._folder)
        if fault:
            self._events.note("warning", "operator", fault)
        for body in bodies:
            try:
                server = self._read(body)
            except GatewayError as error:
                self._events.note("warning", "operator", f"A kept server is left out: {error.problem.message}")
                continue
            self._added[server.name] = server
            self._kept.add(server.name)

    # -- the file -------------------------------------------------------------------------------------------------

    def reload(self, *, because: str = "operator") -> dict[str, object]:
        """Apply the configuration file as it is now. Where it has errors, raises GatewayError and changes nothing."""
        self._must_go_on()
        if because == "operator" and self.put_off():
            message = "The configuration has changed while a command runs that may have done so; the old one stays live"
            hint = "it is read by itself after that"
            raise GatewayError(Problem(code=RELOAD_REFUSED, message=message, hint=hint, retryable=True))
        try:
            loaded = self._load_again()
        except GatewayError as error:
            raise self._refused(because, (error.problem,)) from None
        settings = loaded.settings
        if settings is None:
            raise self._refused(because, loaded.problems)
        if self.listen is not None and needs_token(self.listen, settings.gateway.token):
            raise self._refused(because, (_opens_the_door(self.listen, settings.path),))
        if because != "file":  # somebody asks for what the file says, all of it
            self._removed.clear()
        waiting = _waits_for_restart(self._started_with, settings.gateway)
        # some programs keep much else in the file with their servers, and write it all the time
        is_news = because != "file" or self._is_refused or settings != self._settings
        self._settings = settings
        self._is_refused = False
        changes = self._apply()
        level = "info" if is_news else "debug"
        self._events.note(level, "reloaded", f"Configuration reloaded: {changes}", because=because)
        if waiting and is_news:
            message = f"`{'`, `'.join(waiting)}` of `gateway` changed: that takes effect at the next start"
            self._events.note("warning", "reloaded", message)
        warnings = [str(problem) for problem in loaded.problems]
        return {"status": "reloaded", **_told(changes), "needsRestart": waiting, "warnings": warnings}

    def _load_again(self) -> Loaded:
        """Only what can be read without waiting: a pipe in place of a file would stop everything until it is fed."""
        path = self._settings.path
        for file in (path, plugins_file(path)):
            with contextlib.suppress(OSError):  # the loader says why
                if not stat.S_ISREG(file.stat().st_mode):
                    message = "The file cannot be read again: it is not a plain file"
                    raise GatewayError(Problem(code=CONFIG_UNREADABLE, message=message, where=str(file)))
        return self._load()

    def try_reload(self, because: str) -> None:
        """For a signal or a changed file: what is wrong has been logged, and nobody waits for an answer."""
        try:
            self.reload(because=because)
        except GatewayError:
            return

    def trust_changed(self) -> None:
        """What was refused may be trusted now."""
        if self._is_refused:
            self.try_reload("file")

    def _refused(self, because: str, problems: Iterable[Problem]) -> GatewayError:
        errors = tuple(problem for problem in problems if problem.severity == "error")
        wrong = f"has {len(errors)} error{'' if len(errors) == 1 else 's'}"
        if any(problem.code is NOT_TRUSTED for problem in errors):
            wrong = "is not trusted as it is now"
        message = f"The configuration {wrong}; the old one stays live"
        hint = f"`trunkline check {self._settings.path}` shows them"
        self._is_refused = True
        first = errors[0] if errors else None
        self._events.note(
            "error",
            "reload_refused",
            f"{message}: {first}" if first else message,
            code=RELOAD_REFUSED.id,
            because=because,
        )
        return GatewayError(Problem(code=RELOAD_REFUSED, message=message, hint=hint), errors)

    # -- single servers -------------------------------------------------------------------------------------------

    def add_server(self, body: bytes, *, persist: bool) -> dict[str, object]:
        self._must_go_on()
        server = self._read(body)
        name = server.name
        if name in self._sources():
            raise _already_there(name)
        if persist:
            self._keep(name, server.body)
        self._added[name] = server
        self._apply()
        until = "for good" if persist else "until the next start"
        self._events.note("info", "operator", f"Server {name} added over the API, {until}", source=name)
        return {"name": name, "persisted": persist}

    def remove_server(self, name: str) -> dict[str, object]:
        self._must_exist(name)
        if name in self._kept:
            self._keep(name, None)
        self._added.pop(name, None)
        self._leases.release(name)
        from_file = name in self._settings.sources
        if from_file:
            self._removed.add(name)
        self._apply()
        self._events.note("info", "operator", f"Server {name} removed over the API", source=name)
        if not from_file:
            return {"name": name}
        hint = f"it stands in `{self._settings.path}` and comes back with a reload or the next start"
        return {"name": name, "hint": hint}

    def reconnect(self, name: str) -> dict[str, object]:
        self._must_exist(name)
        if not self._sources()[name].enabled:
            message, hint = f"Server {name} is switched off", "set `enabled: true` for it"
            raise GatewayError(Problem(code=SOURCE_DISABLED, message=message, source=name, hint=hint))
        self._gateway.reconciler.reconnect(name)
        self._events.note("info", "operator", f"Server {name} is connected anew over the API", source=name)
        return {"name": name}

    def _read(self, body: bytes) -> AddedServer:
        return read_added(body, section_kinds(), self.listen or self._started_with.listen)

    def _must_go_on(self) -> None:
        if self._gateway.router.draining:
            raise GatewayError(Problem(code=DRAINING, message="The gateway is shutting down"))

    def _must_exist(self, name: str) -> None:
        self._must_go_on()
        if name not in self._sources() or name == RESERVED_SOURCE:
            message, hint = f"There is no server `{name}`", ""
            if any(status.name == name for status in server_statuses(self._gateway.router)):
                message, hint = f"`{name}` is an app that dialled in", "it comes and goes by itself"
            raise GatewayError(Problem(code=UNKNOWN_SERVER, message=message, source=name, hint=hint))

    def _keep(self, name: str, body: bytes | None) -> None:
        """Write down that an added server outlives a restart, or no longer does."""
        try:
            keep_added(self._folder, name, body)
        except OSError as error:
            message = f"The list of servers to keep cannot be written: {error.strerror or error}"
            hint = f"make `{self._folder}` writable" + (", or leave out `persist`" if body is not None else "")
            raise GatewayError(Problem(code=STATE_NOT_WRITTEN, message=message, source=name, hint=hint)) from None
        if body is None:
            self._kept.discard(name)
        else:
            self._kept.add(name)

    # -- services and their tokens ----------------------------------------------------------------------------------

    def register_service(self, name: str, body: bytes) -> tuple[dict[str, object], bool]:
        """A service is there for as long as its lease lasts; to register it again renews that. Whether it is new."""
        self._must_go_on()
        leased = read_leased(name, body, section_kinds()["service"])
        known = self._from_file().keys() | self._added.keys()
        if name in known or (name not in self._leases.sections and name in self._gateway.router.admissions):
            raise _already_there(name)
        is_new = self._leases.hold(name, leased.section, leased.lease_s)
        changes = self._apply()
        if is_new:
            self._events.note("info", "operator", f"Service {name} registered over the API", source=name)
        return {"name": name, "lease": leased.lease_s, "changed": name not in changes.unchanged}, is_new

    def leave_service(self, name: str) -> dict[str, object]:
        self._must_go_on()
        if not self._leases.release(name):
            problem = Problem(code=UNKNOWN_SERVER, message=f"No service `{name}` is registered", source=name)
            raise GatewayError(problem)
        self._apply()
        self._events.note("info", "operator", f"Service {name} left over the API", source=name)
        return {"name": name}

    def _lease_ended(self, name: str) -> None:
        """One whose name the file has taken meanwhile is out already."""
        if not self._gateway.router.draining and name not in self._from_file():
            self._apply()
            self._events.note("warning", "operator", f"Service {name} is taken out: its lease ended", source=name)

    def put_session_token(self, session: str, body: bytes) -> dict[str, object]:
        """The token that services are shown on behalf of a session. It is kept in memory, and nobody gets to see it."""
        self._must_go_on()
        _check_session(session)
        if not self._gateway.session_tokens.put(session, _token_in(body)):
            raise GatewayError(Problem(code=TOO_MANY_SESSIONS, message="There are too many tokens of sessions already"))
        self._token_changed(session)
        return {"sessionId": self._gateway.session_tokens.alias(session)}

    def drop_session_token(self, session: str) -> dict[str, object]:
        _check_session(session)
        self._token_changed(session)
        return {"removed": self._gateway.session_tokens.drop(session)}

    def _token_changed(self, session: str) -> None:
        """What a service told with one token is not for whoever shows another, or none."""
        self._gateway.router.cache.forget(None if session == _EVERYBODY else session)

    # -- putting it to use ----------------------------------------------------------------------------------------

    def _from_file(self) -> dict[str, SourceSection]:
        return {name: section for name, section in self._settings.sources.items() if name not in self._removed}

    def _sources(self) -> dict[str, SourceSection]:
        """The file's servers, then those that were added; the file has the last word about a name."""
        sources = self._from_file()
        added = {name: server.section for name, server in self._added.items()} | dict(self._leases.sections)
        return sources | {name: section for name, section in added.items() if name not in sources}

    def _apply(self) -> Changes:
        sources, of_file = self._sources(), self._from_file()
        # Services come and go with ever new tokens: whoever remembers secrets for good must not learn all of those.
        lasting = {name: section for name, section in sources.items() if section is not self._leases.sections.get(name)}
        for subscriber in self.on_settings:
            subscriber(replace(self._settings, sources=lasting))
        return self._gateway.adopt(replace(self._settings, sources=sources), sources.keys() - of_file.keys())


def _already_there(name: str) -> GatewayError:
    message = f"There is a server `{name}` already"
    return GatewayError(Problem(code=SERVER_EXISTS, message=message, source=name, hint="remove it first"))


def _check_session(session: str) -> None:
    if not 0 < len(session) <= _LONGEST_SESSION or not session.isprintable():
        raise GatewayError(Problem(code=INVALID_PARAMS, message="The path does not name a session"))


def _token_in(body: bytes) -> str:
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    token = cast(dict[str, Any], said).get("token") if isinstance(said, dict) and len(said) == 1 else None  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(token, str) or not is_token(token):
        hint = 'send {"token": "…"}, one word of plain characters'
        raise GatewayError(Problem(code=INVALID_PARAMS, message="The body does not hold a token", hint=hint))
    return token


def _opens_the_door(listen: BindAddress, path: Path) -> Problem:
    """Where to listen waits for the next start, tokens do not: without one, everybody could come in until then."""
    message = f"Without `token` the gateway would be open to others: it listens on `{listen}` until its next start"
    hint = "keep a `token` until it was started anew on `127.0.0.1`"
    return Problem(code=TOKEN_REQUIRED, message=message, where=str(path), hint=hint)


def _waits_for_restart(running: GatewaySettings, new: GatewaySettings) -> list[str]:
    keys = [name for name in running.declared if name not in LIVE_KEYS]
    return [name for name in keys if getattr(running, name) != getattr(new, name)]


def _told(changes: Changes) -> dict[str, object]:
    return {
        "added": list(changes.added),
        "replaced": list(changes.replaced),
        "adjusted": list(changes.adjusted),
        "removed": list(changes.removed),
        "unchanged": len(changes.unchanged),
    }


class Leases:
    """Services that registered over the API: each is removed when its lease ends, unless it is renewed before."""

    def __init__(self, on_ended: Callable[[str], None]) -> None:
        self._on_ended = on_ended
        self._sections: dict[str, SourceSection] = {}
        self._timers: dict[str, Deadline] = {}

    @property
    def sections(self) -> Mapping[str, SourceSection]:
        return self._sections

    def hold(self, name: str, section: SourceSection, lease_s: float) -> bool:
        """Add a service or renew its lease. Returns whether it is new."""
        is_new = name not in self._sections
        self._cancel(name)
        self._sections[name] = section
        self._timers[name] = Deadline(lease_s, partial(self._ended, name))
        return is_new

    def release(self, name: str) -> bool:
        """Remove a service. Returns whether there was one."""
        self._cancel(name)
        return self._sections.pop(name, None) is not None

    def close(self) -> None:
        for name in list(self._sections):
            self.release(name)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _ended(self, name: str) -> None:
        if self.release(name):
            self._on_ended(name)
