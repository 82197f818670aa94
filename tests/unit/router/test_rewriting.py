from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.router.fakes import RouterRig

from trunkline.core.call import Cached, Call, Caller, Result
from trunkline.router.options import CacheRules, SourceOptions

ME, YOU = Caller("me"), Caller("you")


def link_to(*uris: str) -> Result:
    blocks = [{"type": "resource_link", "uri": uri, "name": "n"} for uri in uris]
    raw = json.dumps({"content": blocks}).encode()
    return Result(memoryview(raw), raw)


def links_in(call: Call) -> list[str]:
    assert isinstance(call.outcome, Result)
    return [block["uri"] for block in json.loads(bytes(call.outcome.raw))["content"]]


def two_servers(folder: Path) -> RouterRig:
    rig = RouterRig(folder, in_flight_per_source=10)
    for name in "ab":
        rig.serve(name, tools=["t"], resources=["x://listed"], templates=["x://{name}/made"])
    return rig


def gives(rig: RouterRig, source: str, *uris: str, caller: Caller = ME) -> list[str]:
    """What a caller sees of links that a tool of the source gives it."""
    call = rig.call(f"{source}_t", caller=caller)
    call.finish(link_to(*uris))
    return links_in(call)


async def test_a_uri_in_a_result_leads_back_to_the_server_that_gave_it(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    assert gives(rig, "b", "made://up") == ["made://up"]
    assert rig.router.uri_rewriter.resolve(ME, "made://up") == ("b", "made://up")


@pytest.mark.law
async def test_what_one_principal_was_given_means_nothing_for_another(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    gives(rig, "b", "made://up")
    gives(rig, "a", "made://up", caller=YOU)
    assert rig.router.uri_rewriter.resolve(ME, "made://up") == ("b", "made://up")
    assert rig.router.uri_rewriter.resolve(YOU, "made://up") == ("a", "made://up")
    assert rig.router.uri_rewriter.resolve(Caller("else"), "made://up") is None


async def test_a_uri_that_would_lead_to_another_server_is_shown_as_an_address(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    assert gives(rig, "a", "x://listed", "x://1/made", "m://1") == ["x://listed", "x://1/made", "m://1"]
    assert gives(rig, "b", "x://listed", "x://1/made", "m://1", "m://2") == [
        "trunkline://b/x://listed",
        "trunkline://b/x://1/made",
        "trunkline://b/m://1",
        "m://2",
    ]


async def test_a_uri_that_looks_like_an_address_of_another_server_is_shown_as_one_of_its_own(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    assert gives(rig, "b", "trunkline://a/x://listed") == ["trunkline://b/trunkline://a/x://listed"]


async def test_with_one_server_that_has_resources_nothing_is_looked_at(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", tools=["t"], resources=["x://1"])
    rig.serve("b", tools=["t"])
    replies: list[Call] = []
    call = rig.call("a_t", reply=replies.append)
    answer = link_to("y://1")
    call.finish(answer)
    assert replies == [call]
    assert call.outcome is answer
    assert rig.router.uri_rewriter.resolve(ME, "y://1") is None


async def test_what_is_given_before_another_server_has_come_up_still_leads_back(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("late", state="starting")
    rig.serve("b", tools=["t"], resources=["x://1"])
    assert gives(rig, "b", "made://up") == ["made://up"]
    rig.serve("late", resources=["y://1"])
    assert rig.router.uri_rewriter.resolve(ME, "made://up") == ("b", "made://up")


async def test_a_result_without_links_is_the_very_object_of_the_server(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    call = rig.call("a_t")
    answer = Result(memoryview(b'{"content":[]}'))
    call.finish(answer)
    assert call.outcome is answer


async def test_memory_is_bounded_for_each_principal_and_in_all(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("trunkline.router.rewriting._MOST_URIS", 3)
    monkeypatch.setattr("trunkline.router.rewriting._MOST_PRINCIPALS", 2)
    rig = two_servers(tmp_path)
    gives(rig, "b", *[f"m://{number}" for number in range(5)])
    resolve = rig.router.uri_rewriter.resolve
    assert [resolve(ME, f"m://{number}") is not None for number in range(5)] == [False, False, True, True, True]
    for principal in ("x", "y"):
        gives(rig, "b", "m://1", caller=Caller(principal))
    assert resolve(ME, "m://4") is None
    assert resolve(Caller("y"), "m://1") == ("b", "m://1")


async def test_a_uri_too_long_to_remember_is_shown_as_an_address(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    long = "m://" + "a" * 3000
    assert gives(rig, "b", long) == [f"trunkline://b/{long}"]


async def test_what_a_server_gave_is_void_once_it_is_gone(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    gives(rig, "b", "m://1")
    rig.router.registry.remove("b")
    assert rig.router.uri_rewriter.resolve(ME, "m://1") is None


async def test_a_kept_result_is_adapted_for_each_who_gets_it(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    rules = CacheRules(tools=("t",), assume_read_only=("t",))
    rig.router.registry.update("b", _options(rig, "b", rules))
    first = rig.call("b_t", {"arguments": {}}, caller=ME)
    first.finish(link_to("x://listed"))
    again = rig.call("b_t", {"arguments": {}}, caller=ME)
    assert isinstance(again.outcome, Cached)
    assert links_in(first) == links_in(again) == ["trunkline://b/x://listed"]


def _options(rig: RouterRig, name: str, cache: CacheRules) -> SourceOptions:
    return replace(rig.router.admissions[name].options, cache=cache)
