"""Word indexes of the catalogs that were searched lately, each made once per version of its catalog.

Reading a thousand definitions takes tens of milliseconds, so it is done in steps with other work in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trunkline.core.names import RESERVED_SOURCE
from trunkline.discovery.word_index import WordIndex
from trunkline.router.catalog import Catalog

STEP_TOOLS: Final = 32
KEPT: Final = 4
"""Most clients see the same catalog; one whose server shows it something else has its own."""


class _Building:
    def __init__(self, catalog: Catalog) -> None:
        self.version = catalog.version
        self.index = WordIndex()
        self.todo = [entry for entry in reversed(catalog.entries()) if entry.tool.source != RESERVED_SOURCE]
        self.waiting: list[Callable[[WordIndex], None]] = []

    def step(self) -> None:
        for _ in range(min(STEP_TOOLS, len(self.todo))):
            self.index.add(self.todo.pop())


class Indexes:
    def __init__(self) -> None:
        self._kept: dict[Catalog, _Building] = {}

    def when_built(self, catalog: Catalog, then: Callable[[WordIndex], None]) -> None:
        """Run `then` with the catalog's index: now, unless there is much to read first."""
        building = self._kept.pop(catalog, None)
        if building is None or building.version != catalog.version:
            building = _Building(catalog)
            building.step()
        self._keep(catalog, building)
        if not building.todo:
            then(building.index)
            return
        building.waiting.append(then)
        if len(building.waiting) == 1:
            asyncio.get_running_loop().call_soon(self._go_on, building)

    def _keep(self, catalog: Catalog, building: _Building) -> None:
        self._kept[catalog] = building
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    def _go_on(self, building: _Building) -> None:
        building.step()
        if building.todo:
            asyncio.get_running_loop().call_soon(self._go_on, building)
            return
        waiting, building.waiting = building.waiting, []
        for then in waiting:
            then(building.index)
