from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.waiting import until
from tests.unit.router.fakes import RouterRig, full_snapshot

from trunkline.core.source import Health
from trunkline.core.tool import Snapshot
from trunkline.router.status import ServerStatus, server_statuses, status_json


def rig_with(folder: Path, **snapshots: Snapshot) -> RouterRig:
    rig = RouterRig(folder)
    for name, offered in snapshots.items():
        rig.add(name)
        rig.sinks[name].publish(offered)
    return rig


def only_status(rig: RouterRig) -> ServerStatus:
    (status,) = server_statuses(rig.router)
    return status


WIKI = full_snapshot("wiki", tools=["find"], prompts=["ask", "sum"], resources=["wiki:1"], templates=["wiki:{page}"])


async def test_what_a_server_offers_is_counted(tmp_path: Path) -> None:
    status = only_status(rig_with(tmp_path, wiki=WIKI))
    assert status.offered == "1 tool, 2 prompts, 1 resource, 1 resource template"
    status_fields = status_json(status)
    assert [status_fields[key] for key in ("tools", "prompts", "resources", "resourceTemplates")] == [1, 2, 1, 1]


async def test_a_server_with_tools_alone_is_told_as_ever(tmp_path: Path) -> None:
    status = only_status(rig_with(tmp_path, git=full_snapshot("git", tools=["log", "diff"])))
    assert status.offered == "2 tools"
    assert not status_json(status).keys() & {"prompts", "resources", "resourceTemplates"}


@pytest.mark.parametrize("grace_s, prompts", [(0, 0), (60, 2)])
async def test_a_server_that_is_away_offers_what_clients_still_see(
    tmp_path: Path, grace_s: float, prompts: int
) -> None:
    rig = RouterRig(tmp_path)
    rig.add("wiki", grace_s=grace_s)
    rig.sinks["wiki"].publish(WIKI)
    rig.sinks["wiki"].health(Health(state="down", reason="it ended", since=time.time()))
    await until(lambda: only_status(rig).prompts == prompts, "it is told so")


async def test_a_resource_that_another_server_holds_says_where_it_is(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, a=full_snapshot("a", resources=["x:1"]), b=full_snapshot("b", resources=["x:1"]))
    first, second = server_statuses(rig.router)
    status_fields = (
        "`b` has resources whose URIs belong to another server, such as `x:1`: they are listed as `trunkline://b/URI`"
    )
    assert (first.collisions, second.collisions) == ((), (status_fields,))


async def test_hidden_characters_of_such_a_uri_are_shown_by_their_numbers(tmp_path: Path) -> None:
    uri = "file:///a\u200bb"
    rig = rig_with(tmp_path, a=full_snapshot("a", resources=[uri]), b=full_snapshot("b", resources=[uri]))
    (status_fields,) = server_statuses(rig.router)[1].collisions
    assert "`file:///a<U+200B>b`" in status_fields
