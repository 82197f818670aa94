"""Every row of the requirements table without the gateway: what fails here is a fault of the rig, not of ours.

Over stdio, where each test starts a server of its own, a few rows of each kind are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.support.interactions.node_client import NodeDriver
from tests.support.interactions.requirements import CLIENTS, ERAS, rows_for
from tests.support.interactions.scene import check_of, connect, over_http, over_stdio
from tests.support.interactions.stage import Stage
from tests.support.pairs import pairs
from tests.support.peers.programs import HttpPeer

pytestmark = [
    pytest.mark.node,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
CASES = [(kind, era, row.name) for era in ERAS for kind in CLIENTS for row in rows_for(kind, era, era)]
OVER_STDIO = {"tools.list", "calls.cancel", "logging.level", "questions.rounds", "resources.unwatched"}


@pytest.fixture(scope="module")
def driver() -> Iterator[NodeDriver]:
    with NodeDriver() as driver:
        yield driver


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, HttpPeer]]:
    with ExitStack() as stack:
        folders = {era: tmp_path_factory.mktemp(era) for era in ERAS}
        yield {era: stack.enter_context(over_http(folder, era)) for era, folder in folders.items()}


@pytest.mark.parametrize(("kind", "era", "row"), pairs(CASES, tuple))
async def test_over_http(
    kind: str, era: str, row: str, servers: dict[str, HttpPeer], driver: NodeDriver, tmp_path: Path
) -> None:
    server = servers[era]
    stage = Stage(partial(connect, kind, era, server.url, tmp_path, driver), server.journal, era, tmp_path)
    async with stage.client() as client:
        await check_of(row)(client, stage)


@pytest.mark.parametrize(("kind", "era", "row"), pairs([case for case in CASES if case[2] in OVER_STDIO], tuple))
async def test_over_stdio(kind: str, era: str, row: str, driver: NodeDriver, tmp_path: Path) -> None:
    server = over_stdio(tmp_path, era)
    stage = Stage(
        partial(connect, kind, era, server.command, tmp_path, driver, env=server.env), server.journal, era, tmp_path
    )
    async with stage.client() as client:
        await check_of(row)(client, stage)
