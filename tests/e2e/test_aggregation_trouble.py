"""Servers that are down, slow, restarted or hostile: lists are neither empty nor late, and say what is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.interactions.client import Client, Json, Person, Refused
from tests.support.interactions.feature_data import TEXT, WATCHED
from tests.support.interactions.python_client import python_client
from tests.support.interactions.scene import over_http
from tests.support.peers.programs import HttpPeer, StdioPeer
from tests.support.waiting import START_WAIT_S, until

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
ERAS = ("legacy", "modern")
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
LONG_S = 40


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpPeer]:
    """The server that nothing happens to."""
    with over_http(tmp_path_factory.mktemp("well"), "legacy", "well") as server:
        yield server


@pytest.fixture(scope="module", params=ERAS, ids=["server-legacy", "server-modern"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpPeer]:
    """One of each version."""
    with over_http(tmp_path_factory.mktemp(request.param), request.param, "peer") as server:
        yield server


def joined(gateway: Gateway, era: str, folder: Path) -> AbstractAsyncContextManager[Client]:
    url = f"http://127.0.0.1:{gateway.port}/mcp"
    return python_client("sdk", era, url, folder / "client.log", person=Person())


@asynccontextmanager
async def both_joined(gateway: Gateway, folder: Path) -> AsyncIterator[tuple[Client, Client]]:
    """A client of each era."""
    async with joined(gateway, "legacy", folder) as legacy, joined(gateway, "modern", folder) as modern:
        yield legacy, modern


def missing(page: Json) -> dict[str, Json]:
    """The servers that a list says it does not show as they are."""
    return {note["server"]: note for note in page.get("_meta", {}).get("trunkline/incomplete", ())}


# Down and slow --------------------------------------------------------------------------------------------------------


async def test_a_dead_and_a_slow_server_leave_the_lists_of_the_others_as_they_are(
    well: HttpPeer, tmp_path: Path
) -> None:
    slow = StdioPeer(tmp_path, "slow", ["sleep", "3600"])
    dead = over_http(tmp_path, "modern", "dead")
    with Gateway(tmp_path, dead.entry(), slow.entry(), well.entry(), start_wait=0.5) as gateway:
        async with both_joined(gateway, tmp_path) as clients:
            for client in clients:
                await until(lambda client=client: has(client, "well"), "the server that is well is listed")
                for method in LISTS:
                    page = await client.list_page(method)
                    assert missing(page).keys() == {"dead", "slow"}, (client.era, method)
                    assert all(note["state"] and not note["stale"] for note in missing(page).values())
                assert TEXT in await client.resources()
                assert "well_greet" in await client.prompts()


async def test_a_server_that_comes_up_late_is_announced_and_stays_listed_when_it_is_lost(
    well: HttpPeer, tmp_path: Path
) -> None:
    late = over_http(tmp_path, "modern", "late")
    with Gateway(tmp_path, well.entry(), late.entry()) as gateway:
        async with both_joined(gateway, tmp_path) as clients:
            try:
                await is_announced_in_all_its_lists(late, clients)
                await stays_listed_and_the_list_says_so(late, clients)
            finally:
                late.stop()


async def is_announced_in_all_its_lists(late: HttpPeer, clients: tuple[Client, Client]) -> None:
    everything = ["tools", "prompts", "resources"]
    legacy, modern = clients
    for client in clients:
        await until(lambda client=client: has(client, "well"), "the server that is well is listed")
    async with legacy.watching(lists=everything), modern.watching(lists=everything):
        late.start()
        for client in clients:
            for kind in everything:
                changed = f"the {client.era} client heard that {kind} have changed"
                await until(lambda client=client, kind=kind: client.heard.changed(kind), changed, LONG_S)
    for client in clients:
        await until(lambda client=client: has(client, "late"), "the late server is listed")
        assert "late_greet" in await client.prompts()
        assert f"trunkline://late/{TEXT}" in await client.resources()
        assert missing(await client.list_page("tools/list")) == {}


async def stays_listed_and_the_list_says_so(lost: HttpPeer, clients: tuple[Client, Client]) -> None:
    before = {(client, method): await client.list_all(method) for client in clients for method in LISTS}
    lost.stop()
    for client in clients:

        async def is_noted(client: Client = client) -> bool:
            return lost.name in missing(await client.list_page("tools/list"))

        await until(is_noted, "the loss is noted", LONG_S)
        assert missing(await client.list_page("tools/list"))[lost.name]["stale"]
        for method in LISTS:
            assert await client.list_all(method) == before[client, method], (client.era, method)
        assert (await client.call("well_add", a=1, b=2))["structuredContent"]["total"] == 3


async def has(client: Client, server: str) -> bool:
    return f"{server}_add" in await client.tools()


# Restarts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server_era", ERAS)
async def test_a_watched_resource_is_watched_again_after_its_server_was_restarted(
    server_era: str, tmp_path: Path
) -> None:
    with (
        over_http(tmp_path, server_era, "peer") as server,
        Gateway(tmp_path, server.entry(), start_wait=START_WAIT_S) as gateway,
    ):
        async with both_joined(gateway, tmp_path) as clients:
            legacy, modern = clients
            async with legacy.watching([WATCHED]), modern.watching([WATCHED]):
                await legacy.call("peer_touch", uri=WATCHED)
                for client in clients:
                    await until(client.heard.updated, "the update is heard")
                server.stop()
                seen = len(server.journal.lines)
                server.start()

                def is_watched_again() -> bool:
                    return f"subscribed {WATCHED}" in server.journal.lines[seen:]

                await until(is_watched_again, "it is watched again", LONG_S)
                for client in clients:
                    await until(lambda client=client: touched_and_heard(client), f"{client.era}: an update", LONG_S)


async def touched_and_heard(client: Client) -> bool:
    """Whoever watches on a connection of its own may be the later one."""
    client.heard.notices.clear()
    try:
        await client.call("peer_touch", uri=WATCHED)
        await until(client.heard.updated, "the update is heard", 1)
    except (Refused, AssertionError):
        return False
    return True


@pytest.mark.parametrize("era", ERAS)
async def test_a_change_in_the_first_moment_of_a_server_is_not_missed(
    era: str, server: HttpPeer, tmp_path: Path
) -> None:
    """The second gateway lists from the start what the first one knew, and calls before it listens for changes."""
    config = write_config(tmp_path, server.entry(), start_wait=START_WAIT_S)
    command = [TRUNKLINE, "stdio", "--alone", "-c", str(config)]
    for grown in (f"first_for_{era}", f"second_for_{era}"):
        log = tmp_path / "client.log"
        made = python_client("sdk", era, command, log, person=Person())
        async with made as client, client.watching(lists=["tools"]):
            await client.call("peer_grow", kind="tools", name=grown)

            async def listed(client: Client = client, grown: str = grown) -> bool:
                return f"peer_{grown}" in await client.tools()

            await until(listed, "the new tool is listed")


# Paging ---------------------------------------------------------------------------------------------------------------


async def test_lists_that_never_end_cost_neither_the_tools_nor_the_other_servers(
    well: HttpPeer, tmp_path: Path
) -> None:
    hostile = over_http(tmp_path, "modern", "hostile", FEATURE_ENDLESS="prompts resources")
    with hostile, Gateway(tmp_path, hostile.entry(), well.entry(), start_wait=START_WAIT_S) as gateway:
        async with joined(gateway, "modern", tmp_path) as client:
            await until(lambda: has(client, "hostile"), "the tools of the hostile server are listed", LONG_S)
            await until(lambda: has(client, "well"), "the tools of the other are listed", LONG_S)
            assert "well_greet" in await client.prompts()
            assert any(uri.endswith(TEXT) for uri in await client.resources())
            assert text_of_well(await client.read(f"trunkline://well/{TEXT}"))


def text_of_well(read: Json) -> bool:
    return read["contents"][0]["text"].startswith("well: ")


async def test_a_cursor_is_good_for_its_list_and_its_client_alone(tmp_path: Path) -> None:
    large = over_http(tmp_path, "modern", "large", FEATURE_EXTRA="5500", FEATURE_PAGE="1500")
    with large, Gateway(tmp_path, large.entry(), start_wait=START_WAIT_S) as gateway:
        async with both_joined(gateway, tmp_path) as clients, joined(gateway, "legacy", tmp_path) as other:
            for client in clients:
                first = await client.list_page("resources/list")
                cursor = first["nextCursor"]
                everything = await client.list_all("resources/list")
                assert len({resource["uri"] for resource in everything}) == len(everything) == 5505
                for broken in (cursor[:-1] + ("A" if cursor[-1] != "A" else "B"), cursor[:-4], "", "0", cursor + "x"):
                    await assert_refused(client, "resources/list", broken)
                await assert_refused(client, "prompts/list", cursor)
                await assert_refused(other, "resources/list", cursor)


async def assert_refused(client: Client, method: str, cursor: str) -> None:
    with pytest.raises(Refused) as caught:
        await client.list_page(method, cursor)
    assert caught.value.code == -32602
