"""What `discover_tools`, `provision_tools` and `unprovision_tools` answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.search.rig import Registry, parameters, tool

from trunkline.config.settings import GatewaySettings, SearchSettings
from trunkline.core.call import Caller, Result
from trunkline.core.tool import Snapshot

LONG = " ".join(f"word{number}" for number in range(300))


def stocked(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path, gateway={"disclosure": "search", "context_tokens": 400})
    registry.serve(
        "web",
        tool("web", "screenshot", "Take a picture of a web page", inputSchema=parameters("url")),
        tool("web", "open", "Open a web page", inputSchema=parameters("url")),
        tool("web", "dump", f"Write a web page to a file {LONG}", inputSchema=parameters("url", "path")),
    )
    registry.serve("mail", tool("mail", "send", "Send a letter", inputSchema=parameters("to", "text")))
    return registry


async def ask(here: Registry, name: str, arguments: dict[str, Any], session: str | None = None) -> dict[str, Any]:
    call = here.start(name, arguments, session=session)
    await until(lambda: call.done, f"{name} is answered")
    assert isinstance(call.outcome, Result), call.outcome
    result = json.loads(bytes(call.outcome.raw))
    assert "isError" not in result, result
    assert "structuredContent" not in result
    return json.loads(result["content"][0]["text"])


def listed(here: Registry, session: str | None = None) -> list[str]:
    shown = json.loads(here.discovery.listing.listing(Caller("local", session)))
    return [each["name"] for each in shown][5:]


async def test_what_is_found_comes_with_its_schema_and_is_provisioned(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    answer = await ask(here, "discover_tools", {"query": "picture of a page", "limit": 1})
    (found,) = answer["tools"]
    assert found["tool_id"] == "web_screenshot"
    assert found["description"] == "Take a picture of a web page"
    assert found["inputSchema"] == parameters("url")
    assert answer["provisioned"] is True
    assert 0 < answer["tokens"] <= answer["budget"] == 400
    assert listed(here) == ["web_screenshot"]


async def test_more_than_was_asked_for_is_named(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    answer = await ask(here, "discover_tools", {"query": "page", "limit": 1})
    assert len(answer["tools"]) == 1
    assert answer["more"]


async def test_it_can_be_looked_for_without_being_given(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    answer = await ask(here, "discover_tools", {"query": "send a letter", "provision": False})
    assert answer["tools"][0]["tool_id"] == "mail_send"
    assert answer["provisioned"] is False
    assert listed(here) == []
    assert "mail.send" not in here.discovery.provisioning.of(Caller()).granted


async def test_a_tool_that_is_too_dear_is_named_with_its_price(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    answer = await ask(here, "discover_tools", {"query": "write a web page to a file"})
    (left_out,) = answer["left_out"]
    assert left_out["tool_id"] == "web_dump"
    assert left_out["tokens"] > 400
    assert "context_tokens" in left_out["why"]
    given = await ask(here, "provision_tools", {"tool_ids": ["web_dump"], "context_tokens": left_out["tokens"]})
    assert [each["tool_id"] for each in given["provisioned"]] == ["web_dump"]
    assert listed(here) == ["web_dump"]


@pytest.mark.law
async def test_each_session_has_its_own(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    await ask(here, "discover_tools", {"query": "letter"}, session="a")
    assert listed(here, "a") == ["mail_send"]
    assert listed(here, "b") == listed(here) == []


async def test_subscribers_are_told_only_of_changes(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    changes: list[None] = []
    here.discovery.provisioning.on_change.append(lambda: changes.append(None))
    await ask(here, "discover_tools", {"query": "letter"})
    assert len(changes) == 1
    await ask(here, "discover_tools", {"query": "letter"})
    assert len(changes) == 1
    await ask(here, "unprovision_tools", {"tool_ids": ["mail_send"]})
    assert len(changes) == 2


async def test_provisioning_says_what_fits_and_what_does_not(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    answer = await ask(here, "provision_tools", {"tool_ids": ["mail_send", "web_dump", "no_such", "mail_send"]})
    assert [each["tool_id"] for each in answer["provisioned"]] == ["mail_send"]
    assert {each["tool_id"]: each["why"][:12] for each in answer["refused"]} == {
        "web_dump": answer["refused"][0]["why"][:12],
        "no_such": "no such tool",
    }
    assert answer["refused"][0]["why"].startswith("needs ")
    assert listed(here) == ["mail_send"]


async def test_taking_back_says_what_was_not_held(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    await ask(here, "provision_tools", {"tool_ids": "mail_send"})
    answer = await ask(here, "unprovision_tools", {"tool_ids": ["mail.send", "web_open"]})
    assert answer["removed"] == ["mail.send"]
    assert answer["unknown"] == ["web_open"]
    assert answer["tokens"] == 0
    assert listed(here) == []


@pytest.mark.parametrize("session, handle", [("a", {}), (None, {"session": "job-1"})])
async def test_what_a_server_says_of_itself_comes_once_in_a_session(
    tmp_path: Path, session: str | None, handle: dict[str, str]
) -> None:
    here = Registry(tmp_path, gateway={"disclosure": "search"})
    here.add("s")
    here.sinks["s"].publish(Snapshot(tools=(tool("s", "x", "paint a wall"),), instructions="Mind\n the floor"))
    first = await ask(here, "discover_tools", {"query": "paint", **handle}, session)
    assert first["servers"] == {"s": "Mind the floor"}
    assert "servers" not in await ask(here, "discover_tools", {"query": "wall", **handle}, session)


async def test_who_has_no_session_hears_each_time_what_a_server_says_of_itself(tmp_path: Path) -> None:
    here = Registry(tmp_path, gateway={"disclosure": "search"})
    here.add("s")
    here.sinks["s"].publish(Snapshot(tools=(tool("s", "x", "paint a wall"),), instructions="Mind the floor"))
    for _ in range(2):
        assert (await ask(here, "discover_tools", {"query": "paint"}))["servers"] == {"s": "Mind the floor"}


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("discover_tools", {}),
        ("discover_tools", {"query": "   "}),
        ("discover_tools", {"query": 5}),
        ("discover_tools", {"query": "x", "provision": "maybe"}),
        ("discover_tools", {"query": "x", "what": 1}),
        ("discover_tools", {"query": "x", "session": "a\nb"}),
        ("provision_tools", {}),
        ("provision_tools", {"tool_ids": []}),
        ("provision_tools", {"tool_ids": ["x"] * 2 + [f"x{n}" for n in range(300)]}),
        ("provision_tools", {"tool_ids": ["mail_send"], "context_tokens": 0}),
        ("provision_tools", {"tool_ids": ["mail_send"], "context_tokens": -1}),
        ("unprovision_tools", {"tool_ids": [1]}),
    ],
)
async def test_bad_arguments_are_refused_in_words(tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
    here = stocked(tmp_path)
    assert here.refused(name, arguments)
    assert listed(here) == []


async def test_nothing_found_is_an_empty_list_and_what_to_do_next(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    nothing = await ask(here, "discover_tools", {"query": "zzz"})
    assert nothing["tools"] == []
    assert nothing["hint"] == "nothing was found; describe in other words what the tool should do"
    tagged = await ask(here, "discover_tools", {"query": "page", "tags": ["zzz"]})
    assert tagged["tools"] == []
    assert tagged["hint"] == "nothing was found with these tags; search without `tags`, or in other words"
    assert "hint" not in await ask(here, "discover_tools", {"query": "page"})


async def test_it_is_said_which_tools_only_read_and_schemas_come_without_blanks(tmp_path: Path) -> None:
    here = Registry(tmp_path)
    look = tool("web", "look", "Look at a page", annotations={"readOnlyHint": True}, inputSchema=parameters("url"))
    here.serve("web", look, tool("web", "close", "Close a page", inputSchema=parameters("url")))
    call = here.start("discover_tools", {"query": "page"})
    await until(lambda: call.done, "it is answered")
    text = json.loads(bytes(call.outcome.raw))["content"][0]["text"]
    assert {each["tool_id"]: each.get("read_only") for each in json.loads(text)["tools"]} == {
        "web_look": True,
        "web_close": None,
    }
    assert text.count('"inputSchema":{"type":"object","properties":{"url":{"type":"string"}}}') == 2


async def test_servers_that_are_not_there_are_named(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    here.add("late", state="down")
    assert (await ask(here, "discover_tools", {"query": "letter"}))["notReady"] == ["late: down"]


async def test_the_gateways_own_tools_are_neither_found_nor_given(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    found = await ask(here, "discover_tools", {"query": "discover tools", "limit": 50})
    assert not {"discover_tools", "list_servers"} & {each["tool_id"] for each in found["tools"]}
    assert (await ask(here, "provision_tools", {"tool_ids": ["discover_tools"]}))["provisioned"] == []


TAGGED = {"_meta": {"tags": ["Paper"]}}


@pytest.mark.parametrize(
    "asked, found",
    [
        ({"query": "page", "tags": ["post"]}, []),
        ({"query": "letter", "tags": ["post", "none"]}, ["mail_send"]),
        ({"tags": "post"}, ["mail_send"]),
        ({"tags": ["paper"]}, ["mail_fold"]),
        ({"query": "", "tags": ["web"]}, ["web_open"]),
        ({"query": "", "tags": ["no such tag", ""]}, []),
    ],
)
async def test_tags_of_the_file_of_definitions_and_keywords_narrow_a_search(
    tmp_path: Path, asked: dict[str, Any], found: list[str]
) -> None:
    search = SearchSettings(semantic=False, tags={"post": ("mail_s*",)})
    here = Registry(tmp_path, gateway={"disclosure": "search", "search": search})
    here.serve("web", tool("web", "open", "Open a web page"))
    here.serve("mail", tool("mail", "send", "Send a letter"), tool("mail", "fold", "Fold it", **TAGGED))
    answer = await ask(here, "discover_tools", asked)
    assert [each["tool_id"] for each in answer["tools"]] == found


async def test_reasons_are_given_for_dear_tools_too(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    asked = {"query": "write a web page to a file", "provision": False, "explain": True}
    answer = await ask(here, "discover_tools", asked)
    (dump,) = [each for each in answer["tools"] if each["tool_id"] == "web_dump"]
    assert dump["why"]["words"]
    assert "left_out" not in answer


async def test_tools_of_a_server_that_was_removed_take_up_no_room(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    here.serve("old", tool("old", "dump", LONG[:1200], inputSchema=parameters("path")))
    answer = await ask(here, "provision_tools", {"tool_ids": ["old_dump"]})
    assert listed(here) == ["old_dump"]
    answer = await ask(here, "provision_tools", {"tool_ids": ["mail_send"], "context_tokens": answer["tokens"]})
    assert [each["tool_id"] for each in answer["refused"]] == ["mail_send"]
    here.router.registry.remove("old")
    answer = await ask(here, "provision_tools", {"tool_ids": ["mail_send"]})
    assert [each["tool_id"] for each in answer["provisioned"]] == ["mail_send"]
    assert answer["tokens"] < answer["budget"]
    assert listed(here) == ["mail_send"]


async def test_what_is_held_already_is_not_too_dear(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    dear = (await ask(here, "discover_tools", {"query": "write a web page to a file"}))["left_out"][0]["tokens"]
    await ask(here, "provision_tools", {"tool_ids": ["web_dump"], "context_tokens": dear})
    answer = await ask(here, "discover_tools", {"query": "write a web page to a file"})
    assert "web_dump" in [each["tool_id"] for each in answer["tools"]]
    assert "web_dump" not in [each["tool_id"] for each in answer["left_out"]]
    assert answer["tokens"] == answer["budget"] == dear


async def test_another_budget_holds_at_once_unless_a_session_chose_its_own(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    await ask(here, "provision_tools", {"tool_ids": ["mail_send"], "context_tokens": 350}, session="chose")
    await ask(here, "discover_tools", {"query": "letter"}, session="did not")
    search = SearchSettings(semantic=False)
    here.discovery.adopt(GatewaySettings(disclosure="search", context_tokens=700, search=search, state_dir=tmp_path))
    for session, budget in (("chose", 350), ("did not", 700), ("new", 700)):
        assert (await ask(here, "discover_tools", {"query": "letter"}, session=session))["budget"] == budget
