"""The surroundings of a check: the server, the frontend, and a way to get more clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.interactions.client import EVERYTHING, Client, Person
from tests.support.peers.programs import Journal

Connect = Callable[..., contextlib.AbstractAsyncContextManager[Client]]
Check = Callable[[Client, "Stage"], Any]
CHECKS: dict[str, Check] = {}


@dataclass
class Stage:
    """`connect` makes one more client of the same kind; `folder` is one that the server sees too."""

    connect: Connect
    journal: Journal
    server_era: str
    folder: Path

    @contextlib.asynccontextmanager
    async def client(
        self, declares: frozenset[str] = EVERYTHING, person: Person | None = None
    ) -> AsyncIterator[Client]:
        async with self.connect(declares=declares, person=person or Person()) as client:
            yield client


def checks(name: str) -> Callable[[Check], Check]:
    """The check of the row with this name."""

    def register(check: Check) -> Check:
        assert name not in CHECKS, name
        CHECKS[name] = check
        return check

    return register
