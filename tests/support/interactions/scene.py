"""The feature server and the clients, as tests start them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.interactions.client import EVERYTHING, Client, Era, Person
from tests.support.interactions.node_client import NodeDriver, node_client
from tests.support.interactions.python_client import python_client
from tests.support.interactions.stage import CHECKS, Check, Stage
from tests.support.peers.programs import ROOT, HttpPeer, StdioPeer

W = TypeVar("W", bound=Hashable)
FEATURE_SERVER = [sys.executable, "-m", "tests.support.interactions.feature_server"]
_CHECKS = [f"tests.support.interactions.checks_{part}" for part in ("tools", "server_requests", "lists")]
pytest.register_assert_rewrite(*_CHECKS)  # a failed check shows what it compared
for _module in _CHECKS:
    importlib.import_module(_module)


def over_http(folder: Path, era: str, name: str = "feature", **env: str) -> HttpPeer:
    """The feature server, listening; `name` is what it calls itself."""
    command = [*FEATURE_SERVER, era, "http", "{port}"]
    return HttpPeer(folder, name, command, FEATURE_NAME=name, PYTHONPATH=str(ROOT), **env)


def over_stdio(folder: Path, era: str, name: str = "feature", **env: str) -> StdioPeer:
    """The feature server, to be started by whoever uses it."""
    return StdioPeer(folder, name, [*FEATURE_SERVER, era, "stdio"], FEATURE_NAME=name, PYTHONPATH=str(ROOT), **env)


def connect(
    kind: str,
    era: Era,
    target: str | list[str],
    folder: Path,
    driver: NodeDriver,
    *,
    person: Person | None = None,
    declares: frozenset[str] = EVERYTHING,
    **options: Any,
) -> AbstractAsyncContextManager[Client]:
    """A client of one of the kinds, of a URL or a command."""
    person = person or Person()
    if kind == "typescript":
        return node_client(driver, era, target, person=person, declares=declares, **options)
    return python_client(kind, era, target, folder / "client.log", person=person, declares=declares, **options)


def check_of(name: str) -> Check:
    return CHECKS[name]


# Many rows in one test ------------------------------------------------------------------------------------------------


def grouped(cases: Iterable[tuple[W, str]]) -> dict[W, list[str]]:
    """The rows of each way, in the order of the table."""
    rows: dict[W, list[str]] = {}
    for way, row in cases:
        rows.setdefault(way, []).append(row)
    return rows


async def run_rows(rows: Sequence[str], stage: Stage, client: Client | None = None) -> None:
    """All of them, whatever becomes of the first, with one client, or a new one for each; what fails says its row."""
    failures: list[Exception] = []
    for row in rows:
        try:
            if client is None:
                async with stage.client() as fresh:
                    await check_of(row)(fresh, stage)
            else:
                client.forget()
                await check_of(row)(client, stage)
        except Exception as error:
            error.add_note(f"in the check of {row}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(rows)} rows do not work", failures)
