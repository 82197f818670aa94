"""What an operator does to a running gateway: a changed file taken over, servers added, removed and reconnected.

A change is taken over as a whole or not at all: a file with errors leaves everything as it is, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from trunkline.app import Gateway
from trunkline.config.added import AddedServer, load_added, read_added, save_added
from trunkline.config.gateway import GatewaySettings
from trunkline.config.load import Loaded
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection
from trunkline.core.errors import (
    DRAINING,
    RELOAD_REFUSED,
    SERVER_EXISTS,
    STATE_NOT_WRITTEN,
    UNKNOWN_SERVER,
    GatewayError,
    Problem,
)
from trunkline.core.names import RESERVED_SOURCE
from trunkline.fleet import Changes
from trunkline.sources import section_kinds

Load = Callable[[], Loaded]
LIVE_KEYS: Final = frozenset({"token", "operator_token", "allowed_hosts", "naming", "max_name", "meta_tools"})
"""Keys of `gateway` that a reload changes; the others wait for the next start."""


class Operations:
    """`folder` is where this gateway keeps what must outlive a restart."""

    def __init__(self, gateway: Gateway, load: Load, folder: Path) -> None:
        self.on_settings: list[Callable[[Settings], None]] = []
        """Called before a configuration is put to use, with what it says."""
        self._gateway = gateway
        self._events = gateway.events
        self._load = load
        self._folder = folder
        self._settings = gateway.settings
        self._added: dict[str, AddedServer] = {}
        self._kept: set[str] = set()
        self._taken_out: set[str] = set()

    def start(self) -> None:
        """Start all servers, those that were added for good too."""
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
            if server.name not in self._settings.sources:
                self._added[server.name] = server
                self._kept.add(server.name)

    # -- the file -------------------------------------------------------------------------------------------------

    def reload(self, *, because: str = "operator") -> dict[str, object]:
        """Take the file over as it is now. Raises GatewayError where it has errors; then nothing has changed."""
        self._must_go_on()
        try:
            loaded = self._load()
        except GatewayError as error:
            raise self._refused(because, (error.problem,)) from None
        if loaded.settings is None:
            raise self._refused(because, loaded.problems)
        if because != "file":  # somebody asks for what the file says, all of it
            self._taken_out.clear()
        waiting = _waits_for_restart(self._settings.gateway, loaded.settings.gateway)
        self._settings = loaded.settings
        changes = self._apply()
        self._events.note("info", "reloaded", f"Configuration reloaded: {changes}", because=because)
        if waiting:
            message = f"`{'`, `'.join(waiting)}` of `gateway` changed: that takes effect at the next start"
            self._events.note("warning", "reloaded", message)
        warnings = [str(problem) for problem in loaded.problems]
        return {"status": "reloaded", **_told(changes), "needsRestart": waiting, "warnings": warnings}

    def try_reload(self, because: str) -> None:
        """For a signal or a changed file: what is wrong has been logged, and nobody waits for an answer."""
        try:
            self.reload(because=because)
        except GatewayError:
            return

    def _refused(self, because: str, problems: Iterable[Problem]) -> GatewayError:
        errors = tuple(problem for problem in problems if problem.severity == "error")
        message = f"The configuration has {len(errors)} error{'' if len(errors) == 1 else 's'}; the old one stays live"
        hint = f"`trunkline check {self._settings.path}` shows them"
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
            message = f"There is a server `{name}` already"
            raise GatewayError(Problem(code=SERVER_EXISTS, message=message, source=name, hint="remove it first"))
        self._added[name] = server
        if persist:
            self._keep(self._kept | {name}, undo=name)
        self._taken_out.discard(name)
        self._apply()
        until = "for good" if persist else "until the next start"
        self._events.note("info", "operator", f"Server {name} added over the API, {until}", source=name)
        return {"name": name, "persisted": persist}

    def remove_server(self, name: str) -> dict[str, object]:
        self._must_exist(name)
        from_file = name not in self._added
        if from_file:
            self._taken_out.add(name)
        else:
            del self._added[name]
            if name in self._kept:
                self._keep(self._kept - {name})
        self._apply()
        self._events.note("info", "operator", f"Server {name} removed over the API", source=name)
        if not from_file:
            return {"name": name}
        hint = f"it stands in `{self._settings.path}` and comes back with a reload or the next start"
        return {"name": name, "hint": hint}

    def reconnect(self, name: str) -> dict[str, object]:
        self._must_exist(name)
        self._gateway.fleet.reconnect(name)
        self._events.note("info", "operator", f"Server {name} is connected anew over the API", source=name)
        return {"name": name}

    def _read(self, body: bytes) -> AddedServer:
        return read_added(body, section_kinds(), self._settings.gateway.listen)

    def _must_go_on(self) -> None:
        if self._gateway.router.draining:
            raise GatewayError(Problem(code=DRAINING, message="The gateway is shutting down"))

    def _must_exist(self, name: str) -> None:
        self._must_go_on()
        if name not in self._sources() or name == RESERVED_SOURCE:
            problem = Problem(code=UNKNOWN_SERVER, message=f"There is no server `{name}`", source=name)
            raise GatewayError(problem)

    def _keep(self, names: set[str], *, undo: str = "") -> None:
        """Write down which of the added servers outlive a restart."""
        try:
            save_added(self._folder, {name: self._added[name] for name in self._added if name in names})
        except OSError as error:
            self._added.pop(undo, None)
            message = f"The server cannot be kept: {error.strerror or error}"
            hint = f"make `{self._folder}` writable, or leave out `persist`"
            raise GatewayError(Problem(code=STATE_NOT_WRITTEN, message=message, hint=hint)) from None
        self._kept = names

    # -- putting it to use ----------------------------------------------------------------------------------------

    def _sources(self) -> dict[str, SourceSection]:
        """The file's servers, then those that were added; the file has the last word about a name."""
        sources = {name: section for name, section in self._settings.sources.items() if name not in self._taken_out}
        return sources | {name: server.section for name, server in self._added.items() if name not in sources}

    def _apply(self) -> Changes:
        sources = self._sources()
        settings = Settings(self._settings.path, self._settings.gateway, sources)
        for subscriber in self.on_settings:
            subscriber(settings)
        from_api = [name for name in sources if name not in self._settings.sources]
        return self._gateway.adopt(settings, from_api)


def _waits_for_restart(old: GatewaySettings, new: GatewaySettings) -> list[str]:
    keys = [name for name in old.declared if name not in LIVE_KEYS]
    return [name for name in keys if getattr(old, name) != getattr(new, name)]


def _told(changes: Changes) -> dict[str, object]:
    return {
        "added": list(changes.added),
        "replaced": list(changes.replaced),
        "adjusted": list(changes.adjusted),
        "removed": list(changes.removed),
        "unchanged": len(changes.unchanged),
    }
