"""The rows of the requirements table without the gateway: what fails here is a fault of the rig, not of ours.

Each row of each version is run by one of the clients, in turn; `make test-all` has each run by all of them. Over stdio,
where a client starts a server of its own, a few rows of each kind are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.support.interactions.node_client import NodeDriver
from tests.support.interactions.requirements import CLIENTS, ERAS, rows_for
from tests.support.interactions.scene import connect, grouped, over_http, over_stdio, run_rows
from tests.support.interactions.stage import Stage
from tests.support.pairs import IN_FULL
from tests.support.peers.programs import HttpPeer

pytestmark = [
    pytest.mark.node,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
EVERY = [((kind, era), row.name) for era in ERAS for kind in CLIENTS for row in rows_for(kind, era, era)]
OVER_STDIO = {"tools.list", "calls.cancel", "logging.level", "questions.rounds", "resources.unwatched"}
Case = tuple[tuple[str, str], str]


def in_turn(cases: list[Case]) -> list[Case]:
    """One client for each row of each version."""
    if IN_FULL:
        return cases
    able: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        (_, era), row = case
        able.setdefault((era, row), []).append(case)
    return [choice[number % len(choice)] for number, choice in enumerate(able.values())]


OVER_HTTP_ROWS = grouped(in_turn(EVERY))
A_FEW = {("sdk", "legacy"), ("fastmcp", "modern"), ("typescript", "legacy")}
OVER_STDIO_ROWS = {way: rows for way, rows in grouped(EVERY).items() if IN_FULL or way in A_FEW}


@pytest.fixture(scope="module")
def driver() -> Iterator[NodeDriver]:
    with NodeDriver() as driver:
        yield driver


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, HttpPeer]]:
    with ExitStack() as stack:
        folders = {era: tmp_path_factory.mktemp(era) for era in ERAS}
        yield {era: stack.enter_context(over_http(folder, era)) for era, folder in folders.items()}


@pytest.mark.parametrize(("kind", "era"), OVER_HTTP_ROWS)
async def test_over_http(kind: str, era: str, servers: dict[str, HttpPeer], driver: NodeDriver, tmp_path: Path) -> None:
    server = servers[era]
    stage = Stage(partial(connect, kind, era, server.url, tmp_path, driver), server.journal, era, tmp_path)
    await run_rows(OVER_HTTP_ROWS[kind, era], stage)


@pytest.mark.parametrize(("kind", "era"), OVER_STDIO_ROWS)
async def test_over_stdio(kind: str, era: str, driver: NodeDriver, tmp_path: Path) -> None:
    server = over_stdio(tmp_path, era)
    stage = Stage(
        partial(connect, kind, era, server.command, tmp_path, driver, env=server.env), server.journal, era, tmp_path
    )
    rows = [row for row in OVER_STDIO_ROWS[kind, era] if row in OVER_STDIO]
    async with stage.client() as client:
        await run_rows(rows, stage, client)
