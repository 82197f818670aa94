"""Servers that are down, slow, restarted or hostile: the others' lists are neither empty nor late, and say so."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.interactions.client import Client, Json, Person, Refused
from tests.support.interactions.offers import TEXT, WATCHED
from tests.support.interactions.python_client import python_client
from tests.support.interactions.scene import over_http, over_stdio
from tests.support.waiting import START_WAIT_S, until

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
ERAS = ("legacy", "modern")
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
LONG_S = 40


def joined(gateway: Gateway, era: str, folder: Path) -> AbstractAsyncContextManager[Client]:
    url = f"http://127.0.0.1:{gateway.port}/mcp"
    return python_client("sdk", era, url, folder / "client.log", person=Person())


def missing(page: Json) -> dict[str, Json]:
    """The servers that a list says it does not show as they are."""
    return {note["server"]: note for note in page.get("_meta", {}).get("trunkline/incomplete", ())}


# Down and slow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_dead_and_a_slow_server_leave_the_lists_of_the_others_as_they_are(era: str, tmp_path: Path) -> None:
    slow = over_stdio(tmp_path, "legacy", "slow", PEER_START_DELAY_S="20")
    dead = over_http(tmp_path, "modern", "dead")
    with over_http(tmp_path, "modern", "well") as well:
        sources = (dead.entry(), slow.entry(), well.entry())
        with Gateway(tmp_path, *sources, start_wait=0.5) as gateway:
            async with joined(gateway, era, tmp_path) as client:
                await until(lambda: has(client, "well"), "the server that is well is listed")
                for method in LISTS:
                    page = await client.list_page(method)
                    assert missing(page).keys() == {"dead", "slow"}
                    assert all(note["state"] and not note["stale"] for note in missing(page).values())
                assert TEXT in await client.resources()
                assert "well_greet" in await client.prompts()
                assert slow.journal.lines == [], "nobody waited for the slow server"


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_comes_up_late_is_announced_in_all_its_lists(era: str, tmp_path: Path) -> None:
    late = over_http(tmp_path, "modern", "late")
    with over_http(tmp_path, "legacy", "well") as well, Gateway(tmp_path, well.entry(), late.entry()) as gateway:
        async with joined(gateway, era, tmp_path) as client:
            await until(lambda: has(client, "well"), "the server that is well is listed")
            async with client.watching(lists=["tools", "prompts", "resources"]):
                with late:
                    for kind in ("tools", "prompts", "resources"):
                        await until(lambda kind=kind: client.heard.changed(kind), f"{kind} have changed", LONG_S)
                    await until(lambda: has(client, "late"), "the late server is listed")
                    assert "late_greet" in await client.prompts()
                    assert f"trunkline://late/{TEXT}" in await client.resources()
                    assert missing(await client.list_page("tools/list")) == {}


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_is_lost_stays_listed_and_the_list_says_so(era: str, tmp_path: Path) -> None:
    with (
        over_http(tmp_path, "modern", "lost") as lost,
        over_http(tmp_path, "legacy", "well") as well,
        Gateway(tmp_path, lost.entry(), well.entry(), start_wait=START_WAIT_S) as gateway,
    ):
        async with joined(gateway, era, tmp_path) as client:
            before = {method: await client.list_all(method) for method in LISTS}
            lost.stop()

            async def is_noted() -> bool:
                return "lost" in missing(await client.list_page("tools/list"))

            await until(is_noted, "the loss is noted", LONG_S)
            assert missing(await client.list_page("tools/list"))["lost"]["stale"]
            assert {method: await client.list_all(method) for method in LISTS} == before
            assert (await client.call("well_add", a=1, b=2))["structuredContent"]["total"] == 3


async def has(client: Client, server: str) -> bool:
    return f"{server}_add" in await client.tools()


# Restarts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_watched_resource_is_watched_again_after_its_server_was_restarted(
    era: str, server_era: str, tmp_path: Path
) -> None:
    with (
        over_http(tmp_path, server_era, "peer") as server,
        Gateway(tmp_path, server.entry(), start_wait=START_WAIT_S) as gateway,
    ):
        async with joined(gateway, era, tmp_path) as client, client.watching([WATCHED]):
            await client.call("peer_touch", uri=WATCHED)
            await until(client.heard.updated, "the update is heard")
            server.stop()
            seen = len(server.journal.lines)
            server.start()
            await until(lambda: f"subscribed {WATCHED}" in server.journal.lines[seen:], "it is watched again", LONG_S)
            client.heard.notices.clear()
            await until(lambda: touched(client), "the server can be called again", LONG_S)
            await until(client.heard.updated, "the update is heard")


async def touched(client: Client) -> bool:
    try:
        await client.call("peer_touch", uri=WATCHED)
    except Refused:
        return False
    return True


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_change_in_the_first_moment_of_a_server_is_not_missed(
    era: str, server_era: str, tmp_path: Path
) -> None:
    """The second gateway lists from the start what the first one knew, and calls before it listens for changes."""
    with over_http(tmp_path, server_era, "peer") as server:
        config = write_config(tmp_path, server.entry(), start_wait=START_WAIT_S)
        command = [TRUNKLINE, "stdio", "--alone", "-c", str(config)]
        for grown in ("first", "second"):
            log = tmp_path / "client.log"
            made = python_client("sdk", era, command, log, person=Person())
            async with made as client, client.watching(lists=["tools"]):
                await client.call("peer_grow", kind="tools", name=grown)

                async def listed(client: Client = client, grown: str = grown) -> bool:
                    return f"peer_{grown}" in await client.tools()

                await until(listed, "the new tool is listed")


# Paging ---------------------------------------------------------------------------------------------------------------


async def test_lists_that_never_end_cost_neither_the_tools_nor_the_other_servers(tmp_path: Path) -> None:
    hostile = over_http(tmp_path, "modern", "hostile", FEATURE_ENDLESS="prompts resources")
    with (
        hostile,
        over_http(tmp_path, "legacy", "well") as well,
        Gateway(tmp_path, hostile.entry(), well.entry(), start_wait=START_WAIT_S) as gateway,
    ):
        async with joined(gateway, "modern", tmp_path) as client:
            await until(lambda: has(client, "hostile"), "the tools of the hostile server are listed", LONG_S)
            assert await has(client, "well")
            assert "well_greet" in await client.prompts()
            assert any(uri.endswith(TEXT) for uri in await client.resources())
            assert text_of_well(await client.read(f"trunkline://well/{TEXT}"))


def text_of_well(read: Json) -> bool:
    return read["contents"][0]["text"].startswith("well: ")


@pytest.mark.parametrize("era", ERAS)
async def test_a_cursor_is_good_for_its_list_and_its_client_alone(era: str, tmp_path: Path) -> None:
    large = over_http(tmp_path, "modern", "large", FEATURE_EXTRA="5500", FEATURE_PAGE="1500")
    with large, Gateway(tmp_path, large.entry(), start_wait=START_WAIT_S) as gateway:
        async with joined(gateway, era, tmp_path) as client, joined(gateway, "legacy", tmp_path) as other:
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
