"""What one caller sees: the catalog, or the catalog with what a server offers to that caller's session alone.

A server with a lane of its own for each client may change its tools for one of them, after a login say.
"""

from __future__ import annotations

from trunkline.core.call import Caller
from trunkline.core.tool import Snapshot
from trunkline.router.catalog import Catalog


class _View:
    __slots__ = ("base_version", "catalog", "snapshots")

    def __init__(self) -> None:
        self.snapshots: dict[str, Snapshot] = {}
        self.catalog: Catalog | None = None
        self.base_version = -1


class Views:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._views: dict[str, _View] = {}

    def of(self, caller: Caller) -> Catalog:
        if not self._views or caller.session is None:
            return self._catalog
        view = self._views.get(caller.session)
        if view is None:
            return self._catalog
        if view.catalog is None or view.base_version != self._catalog.version:
            view.base_version = self._catalog.version
            view.catalog = self._catalog.overlaid(view.snapshots)
        return view.catalog

    def overlay(self, session: str, source: str, snapshot: Snapshot | None) -> None:
        view = self._views.setdefault(session, _View())
        if snapshot is None or snapshot == self._catalog.snapshot(source):
            view.snapshots.pop(source, None)
        else:
            view.snapshots[source] = snapshot
        view.catalog = None
        if not view.snapshots:
            del self._views[session]

    def forget(self, session: str) -> None:
        self._views.pop(session, None)

    def drop_source(self, source: str) -> bool:
        """A source is gone or was replaced: what it offered to some clients alone is void. Whether it was to any."""
        sessions = [session for session, view in self._views.items() if source in view.snapshots]
        for session in sessions:
            self.overlay(session, source, None)
        return bool(sessions)
