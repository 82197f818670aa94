"""The feature server and the clients, as tests start them."""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.support.interactions.client import EVERYTHING, Client, Era, Person
from tests.support.interactions.node_client import NodeDriver, node_client
from tests.support.interactions.python_client import python_client
from tests.support.interactions.stage import CHECKS, Check
from tests.support.peers.programs import ROOT, HttpPeer, StdioPeer

FEATURE_SERVER = [sys.executable, "-m", "tests.support.interactions.feature_server"]
_CHECKS = [f"tests.support.interactions.checks_{part}" for part in ("tools", "questions", "lists")]
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
