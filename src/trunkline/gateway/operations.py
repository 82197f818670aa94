"""An operator's changes to a running gateway: reloads; adding, removing and reconnecting servers; registered services;
and tokens of sessions.

A change takes effect completely or not at all: a file with errors changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from trunkline.config.files import plugins_file
from trunkline.config.load import LoadedConfig
from trunkline.config.registration import (
    AddedServer,
    load_added_servers,
    read_added_server,
    read_leased_service,
    save_added_server,
)
from trunkline.config.settings import GatewaySettings, Settings, needs_token
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
from trunkline.gateway.source_reconciler import SourceChanges
from trunkline.router.status import server_statuses
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.source_context import is_token
from trunkline.sources import section_kinds

LoadConfig = Callable[[], LoadedConfig]
LIVE_KEYS: Final = frozenset(
    {"token", "operator_token", "allowed_hosts", "naming", "max_name", "meta_tools"}
    | {"disclosure", "require_provisioning", "context_tokens", "search"}
)
"""Keys of `gateway` that a reload applies; changes of the others need a restart."""
_LONGEST_SESSION: Final = 256
_EVERYBODY: Final = "*"


class Operations:
    """Changes a running gateway. `folder` holds what must survive restarts."""

    def __init__(self, gateway: GatewayRuntime, load: LoadConfig, folder: Path) -> None:
        self.on_settings: list[Callable[[Settings], None]] = []
        """Called with a configuration before it is applied."""
        self.reload_postponed: Callable[[], bool] = lambda: False
        """Whether a running command may have changed the file."""
        self._gateway = gateway
        self._events = gateway.events
        self._load = load
        self._folder = folder
        self._settings = gateway.settings
        self._started_with = gateway.settings.gateway
        self.listen: BindAddress | None = None
        """The address that HTTP is served at, whatever a changed file says; None without HTTP."""
        self._leases = ServiceLeases(self._lease_ended)
        self._added: dict[str, AddedServer] = {}
        self._persisted: set[str] = set()
        self._removed: set[str] = set()
        self._is_refused = False

    def close(self) -> None:
        self._leases.close()

    def start(self) -> None:
        """Start all servers, including those added permanently over the API."""
        self._restore_added()
        self._apply()

    def _restore_added(self) -> None:
        bodies, fault = load_added_servers(self._folder)
        if fault:
            self._events.note("warning", "operator", fault)
        for body in bodies:
            try:
                server = self._read(body)
            except GatewayError as error:
                self._events.note(
                    "warning", "operator", f"A server added over the API is skipped: {error.problem.message}"
                )
                continue
            self._added[server.name] = server
            self._persisted.add(server.name)

    # -- the file -------------------------------------------------------------------------------------------------

    def reload(self, *, because: str = "operator") -> dict[str, object]:
        """Apply the configuration file as it is now. If it has errors, raises GatewayError and changes nothing."""
        self._refuse_if_draining()
        if because == "operator" and self.reload_postponed():
            message = "A running command may have changed the configuration; the old one stays in effect"
            hint = "it is reloaded automatically when the command ends"
            raise GatewayError(Problem(code=RELOAD_REFUSED, message=message, hint=hint, retryable=True))
        try:
            loaded = self._load_again()
        except GatewayError as error:
            raise self._refused(because, (error.problem,)) from None
        settings = loaded.settings
        if settings is None:
            raise self._refused(because, loaded.problems)
        if self.listen is not None and needs_token(self.listen, settings.gateway.token):
            raise self._refused(because, (_unprotected(self.listen, settings.path),))
        if because != "file":  # an explicit reload also brings back servers removed over the API
            self._removed.clear()
        needs_restart = _keys_needing_restart(self._started_with, settings.gateway)
        # some programs keep other data in the same file, and write it all the time
        is_changed = because != "file" or self._is_refused or settings != self._settings
        self._settings = settings
        self._is_refused = False
        changes = self._apply()
        level = "info" if is_changed else "debug"
        self._events.note(level, "reloaded", f"Configuration reloaded: {changes}", because=because)
        if needs_restart and is_changed:
            message = f"`{'`, `'.join(needs_restart)}` of `gateway` changed: that takes effect after a restart"
            self._events.note("warning", "reloaded", message)
        warnings = [str(problem) for problem in loaded.problems]
        return {"status": "reloaded", **changes.as_json(), "needsRestart": needs_restart, "warnings": warnings}

    def _load_again(self) -> LoadedConfig:
        """Only regular files: reading a pipe would block everything until somebody writes to it."""
        path = self._settings.path
        for file in (path, plugins_file(path)):
            with contextlib.suppress(OSError):  # the loader says why
                if not stat.S_ISREG(file.stat().st_mode):
                    message = "The file cannot be reloaded: it is not a regular file"
                    raise GatewayError(Problem(code=CONFIG_UNREADABLE, message=message, where=str(file)))
        return self._load()

    def try_reload(self, because: str) -> None:
        """Reload for a signal or a changed file: errors are only logged."""
        try:
            self.reload(because=because)
        except GatewayError:
            return

    def trust_changed(self) -> None:
        """Reload after a refusal, because the file may be trusted now."""
        if self._is_refused:
            self.try_reload("file")

    def _refused(self, because: str, problems: Iterable[Problem]) -> GatewayError:
        errors = tuple(problem for problem in problems if problem.severity == "error")
        wrong = f"has {len(errors)} error{'' if len(errors) == 1 else 's'}"
        if any(problem.code is NOT_TRUSTED for problem in errors):
            wrong = "is not trusted"
        message = f"The configuration {wrong}; the old one stays in effect"
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
        self._refuse_if_draining()
        server = self._read(body)
        name = server.name
        if name in self._sources():
            raise _already_there(name)
        if persist:
            self._persist(name, server.body)
        self._added[name] = server
        self._apply()
        until = "permanently" if persist else "until the next start"
        self._events.note("info", "operator", f"Server {name} added over the API, {until}", source=name)
        return {"name": name, "persisted": persist}

    def remove_server(self, name: str) -> dict[str, object]:
        self._require_server(name)
        if name in self._persisted:
            self._persist(name, None)
        self._added.pop(name, None)
        self._leases.release(name)
        from_file = name in self._settings.sources
        if from_file:
            self._removed.add(name)
        self._apply()
        self._events.note("info", "operator", f"Server {name} removed over the API", source=name)
        if not from_file:
            return {"name": name}
        hint = f"it is still in `{self._settings.path}`, so a reload or restart brings it back"
        return {"name": name, "hint": hint}

    def reconnect(self, name: str) -> dict[str, object]:
        self._require_server(name)
        if not self._sources()[name].enabled:
            message, hint = f"Server {name} is disabled", "set `enabled: true` for it"
            raise GatewayError(Problem(code=SOURCE_DISABLED, message=message, source=name, hint=hint))
        self._gateway.reconciler.reconnect(name)
        self._events.note("info", "operator", f"Server {name} reconnected over the API", source=name)
        return {"name": name}

    def _read(self, body: bytes) -> AddedServer:
        return read_added_server(body, section_kinds(), self.listen or self._started_with.listen)

    def _refuse_if_draining(self) -> None:
        if self._gateway.router.draining:
            raise GatewayError(Problem(code=DRAINING, message="The gateway is shutting down"))

    def _require_server(self, name: str) -> None:
        self._refuse_if_draining()
        if name not in self._sources() or name == RESERVED_SOURCE:
            message, hint = f"There is no server `{name}`", ""
            if any(status.name == name for status in server_statuses(self._gateway.router)):
                message, hint = f"`{name}` is a connected app", "it can only disconnect by itself"
            raise GatewayError(Problem(code=UNKNOWN_SERVER, message=message, source=name, hint=hint))

    def _persist(self, name: str, body: bytes | None) -> None:
        """Save a server for the next start, or remove it from those saved."""
        try:
            save_added_server(self._folder, name, body)
        except OSError as error:
            message = f"The list of added servers cannot be written: {error.strerror or error}"
            hint = f"make `{self._folder}` writable" + (", or omit `persist`" if body is not None else "")
            raise GatewayError(Problem(code=STATE_NOT_WRITTEN, message=message, source=name, hint=hint)) from None
        if body is None:
            self._persisted.discard(name)
        else:
            self._persisted.add(name)

    # -- services and their tokens ----------------------------------------------------------------------------------

    def register_service(self, name: str, body: bytes) -> tuple[dict[str, object], bool]:
        """Add a service until its lease ends, or renew the lease. The second result says whether it is new."""
        self._refuse_if_draining()
        leased = read_leased_service(name, body, section_kinds()["service"])
        known = self._from_file().keys() | self._added.keys()
        if name in known or (name not in self._leases.sections and name in self._gateway.router.admissions):
            raise _already_there(name)
        is_new = self._leases.hold(name, leased.section, leased.lease_s)
        changes = self._apply()
        if is_new:
            self._events.note("info", "operator", f"Service {name} registered over the API", source=name)
        return {"name": name, "lease": leased.lease_s, "changed": name not in changes.unchanged}, is_new

    def leave_service(self, name: str) -> dict[str, object]:
        self._refuse_if_draining()
        if not self._leases.release(name):
            problem = Problem(code=UNKNOWN_SERVER, message=f"No service `{name}` is registered", source=name)
            raise GatewayError(problem)
        self._apply()
        self._events.note("info", "operator", f"Service {name} unregistered over the API", source=name)
        return {"name": name}

    def _lease_ended(self, name: str) -> None:
        """A service whose name the file has taken is removed already."""
        if not self._gateway.router.draining and name not in self._from_file():
            self._apply()
            self._events.note("warning", "operator", f"Service {name} removed: its lease ended", source=name)

    def put_session_token(self, session: str, body: bytes) -> dict[str, object]:
        """Set the token sent to services on behalf of a session. It is kept in memory only, and never shown."""
        self._refuse_if_draining()
        _check_session(session)
        if not self._gateway.session_tokens.put(session, _token_in(body)):
            raise GatewayError(Problem(code=TOO_MANY_SESSIONS, message="Too many sessions have tokens already"))
        self._token_changed(session)
        return {"sessionId": self._gateway.session_tokens.alias(session)}

    def drop_session_token(self, session: str) -> dict[str, object]:
        _check_session(session)
        self._token_changed(session)
        return {"removed": self._gateway.session_tokens.drop(session)}

    def _token_changed(self, session: str) -> None:
        """Drop cached results: what a service answered for one token is not for another."""
        self._gateway.router.cache.forget(None if session == _EVERYBODY else session)

    # -- applying it ----------------------------------------------------------------------------------------------

    def _from_file(self) -> dict[str, SourceSection]:
        return {name: section for name, section in self._settings.sources.items() if name not in self._removed}

    def _sources(self) -> dict[str, SourceSection]:
        """The file's servers, then those that were added; the file wins if both have a name."""
        sources = self._from_file()
        added = {name: server.section for name, server in self._added.items()} | self._leases.sections
        return sources | {name: section for name, section in added.items() if name not in sources}

    def _apply(self) -> SourceChanges:
        sources, of_file = self._sources(), self._from_file()
        # services register with ever new tokens, which subscribers that remember secrets must not collect
        leased = self._leases.sections
        lasting = {name: section for name, section in sources.items() if section is not leased.get(name)}
        for subscriber in self.on_settings:
            subscriber(replace(self._settings, sources=lasting))
        return self._gateway.adopt(replace(self._settings, sources=sources), sources.keys() - of_file.keys())


def _already_there(name: str) -> GatewayError:
    message = f"There is already a server `{name}`"
    return GatewayError(Problem(code=SERVER_EXISTS, message=message, source=name, hint="remove it first"))


def _check_session(session: str) -> None:
    if not 0 < len(session) <= _LONGEST_SESSION or not session.isprintable():
        raise GatewayError(Problem(code=INVALID_PARAMS, message="The path contains no valid session id"))


def _token_in(body: bytes) -> str:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    token = cast(dict[str, Any], value).get("token") if isinstance(value, dict) and len(value) == 1 else None  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(token, str) or not is_token(token):
        hint = 'send {"token": "…"} with a token of printable ASCII without spaces'
        raise GatewayError(Problem(code=INVALID_PARAMS, message="The body contains no valid token", hint=hint))
    return token


def _unprotected(listen: BindAddress, path: Path) -> Problem:
    """A changed address needs a restart, a removed token does not: until then the gateway would be open to everyone."""
    message = f"Without `token` anybody could use the gateway: it listens on `{listen}` until it is restarted"
    hint = "keep a `token` until it has been restarted on `127.0.0.1`"
    return Problem(code=TOKEN_REQUIRED, message=message, where=str(path), hint=hint)


def _keys_needing_restart(running: GatewaySettings, new: GatewaySettings) -> list[str]:
    keys = [name for name in running.declared if name not in LIVE_KEYS]
    return [name for name in keys if getattr(running, name) != getattr(new, name)]


class ServiceLeases:
    """Services that registered over the API: each is removed when its lease ends, unless it is renewed before."""

    def __init__(self, on_ended: Callable[[str], None]) -> None:
        self._on_ended = on_ended
        self._leases: dict[str, tuple[SourceSection, Deadline]] = {}

    @property
    def sections(self) -> dict[str, SourceSection]:
        return {name: section for name, (section, _) in self._leases.items()}

    def hold(self, name: str, section: SourceSection, lease_s: float) -> bool:
        """Add a service or renew its lease. Returns whether it is new."""
        before = self._leases.get(name)
        if before is not None:
            before[1].cancel()
        self._leases[name] = section, Deadline(lease_s, partial(self._ended, name))
        return before is None

    def release(self, name: str) -> bool:
        """Remove a service. Returns whether there was one."""
        lease = self._leases.pop(name, None)
        if lease is not None:
            lease[1].cancel()
        return lease is not None

    def close(self) -> None:
        for name in list(self._leases):
            self.release(name)

    def _ended(self, name: str) -> None:
        del self._leases[name]
        self._on_ended(name)
