"""The requirements table through the gateway: every client, every frontend, every pair of versions, every row.

Every row meets every client, every frontend and every pair of versions; all that together is for `make test-all`.
One gateway per version of the server is started for the module, and one more for servers that it starts itself. Behind
`trunkline stdio` there is a gateway more for each client, in front of the same servers, which lasts for all rows that
this client is to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.interactions.client import Client
from tests.support.interactions.node_client import NodeDriver
from tests.support.interactions.requirements import CLIENTS, ERAS, REQUIREMENTS, rows_for
from tests.support.interactions.scene import connect, grouped, over_http, over_stdio, run_rows
from tests.support.interactions.stage import CHECKS, Stage
from tests.support.pairs import pairs
from tests.support.peers.programs import HttpPeer, Journal, Peer
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import START_WAIT_S

pytestmark = [
    pytest.mark.node,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
PREFIX = "feature_"
EVERYTHING = tuple(dict.fromkeys(row.group for row in REQUIREMENTS))
OF_CONNECTIONS = ("calls", "logging", "questions", "resources", "lists")
"""The rows for which it matters who is connected to whom."""


@dataclass(frozen=True)
class Setting:
    """A frontend, how the server is reached behind it, the clients that go through, and the rows they run."""

    frontend: str
    wire: str
    kinds: tuple[str, ...] = CLIENTS
    groups: tuple[str, ...] = EVERYTHING

    def __str__(self) -> str:
        return f"{self.frontend}-{self.wire}"


SETTINGS = (
    Setting("http", "http"),
    Setting("stdio", "http"),
    Setting("http", "stdio", ("sdk",), OF_CONNECTIONS),
    Setting("attached", "http", ("sdk",), OF_CONNECTIONS),
)


@dataclass(frozen=True)
class Way:
    """All that matters about a conversation but what it is about."""

    frontend: str
    wire: str
    kind: str
    client_era: str
    server_era: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.client_era}-{self.frontend}-{self.wire}-{self.server_era}"

    @property
    def values(self) -> tuple[object, ...]:
        return (self.frontend, self.wire), self.kind, (self.client_era, self.server_era)


CASES = [
    (Way(setting.frontend, setting.wire, kind, client_era, server_era), row.name)
    for setting in SETTINGS
    for server_era in ERAS
    for kind in setting.kinds
    for client_era in ERAS
    for row in rows_for(kind, client_era, server_era)
    if row.group in setting.groups
]
ROWS_BY_WAY = grouped(pairs(CASES, lambda case: (*case[0].values, case[1])))


@pytest.fixture(scope="module")
def driver() -> Iterator[NodeDriver]:
    with NodeDriver() as driver:
        yield driver


class Place:
    """A server of one era, and the gateway in front of it."""

    def __init__(self, server: Peer, gateway: Gateway) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{gateway.port}/mcp"

    @property
    def journal(self) -> Journal:
        return self.server.journal

    def target(self, frontend: str, folder: Path) -> str | list[str]:
        if frontend == "http":
            return self.url
        if frontend == "attached":
            return [TRUNKLINE, "stdio", "--url", self.url]
        config = write_config(folder, self.server.entry(), start_wait=START_WAIT_S)
        return [TRUNKLINE, "stdio", "--alone", "-c", str(config)]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Place]]:
    folders = {(wire, era): tmp_path_factory.mktemp(f"{wire}-{era}") for wire in ("http", "stdio") for era in ERAS}
    with ExitStack() as stack:
        places: dict[tuple[str, str], Place] = {}
        for (wire, era), folder in folders.items():
            server: Peer = over_http(folder, era) if wire == "http" else over_stdio(folder, era)
            if isinstance(server, HttpPeer):
                stack.enter_context(server)
            gateway = Gateway(folder, server.entry(), start_wait=START_WAIT_S)
            places[wire, era] = Place(server, stack.enter_context(shared_gateway(gateway)))
        yield places


@pytest.mark.parametrize("way", ROWS_BY_WAY, ids=str)
async def test_it_works_through_the_gateway(
    way: Way, places: dict[tuple[str, str], Place], driver: NodeDriver, tmp_path: Path
) -> None:
    """Each row begins with a new client where that is cheap; where it is a process, with one that is as good as new."""
    place = places[way.wire, way.server_era]
    target = place.target(way.frontend, tmp_path)
    joined = partial(connect, way.kind, way.client_era, target, tmp_path, driver, prefix=PREFIX)
    stage = Stage(joined, place.journal, way.server_era, tmp_path)
    async with AsyncExitStack() as stack:
        client: Client | None = None
        if way.frontend != "http":
            client = await stack.enter_async_context(stage.client())
        await run_rows(ROWS_BY_WAY[way], stage, client)


# The table itself -----------------------------------------------------------------------------------------------------


def test_every_row_has_a_check_and_every_check_a_row() -> None:
    names = [row.name for row in REQUIREMENTS]
    assert len(names) == len(set(names))
    assert set(names) == CHECKS.keys()


def test_the_rows_are_run_through_both_frontends_by_every_client() -> None:
    whole = {(setting.frontend, setting.kinds) for setting in SETTINGS if setting.groups == EVERYTHING}
    assert whole == {("http", CLIENTS), ("stdio", CLIENTS)}
    assert set(OF_CONNECTIONS) < set(EVERYTHING)


def test_every_row_is_run_for_every_version_that_has_it() -> None:
    run = {(str(way), row) for way, row in CASES}
    for setting, row in product(SETTINGS, REQUIREMENTS):
        assert all(kind in CLIENTS and era in ERAS and reason for (kind, era), reason in row.lacking.items())
        for kind, client_era, server_era in product(setting.kinds, row.clients, row.servers):
            way = Way(setting.frontend, setting.wire, kind, client_era, server_era)
            wanted = row.group in setting.groups and (kind, client_era) not in row.lacking
            assert ((str(way), row.name) in run) == wanted, (way, row.name)
