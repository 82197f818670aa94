from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.router.fakes import RouterRig, tools_snapshot

from trunkline.core.source import Health
from trunkline.core.tool import Snapshot
from trunkline.router.options import NameRules
from trunkline.router.status import diagnose_tool


def diagnosis(rig: RouterRig, name: str) -> dict[str, Any]:
    return diagnose_tool(rig.router, name)


def findings(rig: RouterRig, name: str) -> list[str]:
    return [finding["what"] for finding in diagnosis(rig, name)["findings"]]


def hints(rig: RouterRig, name: str) -> list[str]:
    return [finding["hint"] for finding in diagnosis(rig, name)["findings"] if "hint" in finding]


# A tool that is there -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["git_log", "git.log", "git:log", "git__log", "log", "trunkline.git_log"])
async def test_a_tool_is_told_by_every_name_it_answers_to(tmp_path: Path, name: str) -> None:
    rig = RouterRig(tmp_path)
    rig.add("git", "log")
    assert diagnosis(rig, name) == {
        "name": name,
        "found": True,
        "listed": True,
        "address": "git.log",
        "exposed": "git_log",
        "server": "git",
        "findings": [{"what": "Clients see it as `git_log`"}],
    }


async def test_a_tool_that_lost_its_name_to_another_says_to_which(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("a", "x", rules=NameRules(prefix="same"))
    rig.add("b", "x", rules=NameRules(prefix="same"))
    answer = diagnosis(rig, "b.x")
    assert (answer["found"], answer["listed"], answer["exposed"]) == (True, False, "")
    assert "the name belongs to `a.x`" in findings(rig, "b.x")[0]
    assert "prefix" in hints(rig, "b.x")[0]


async def test_a_tool_of_a_server_that_went_down_says_so_first(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("git", "log")
    rig.sinks["git"].health(Health(state="down", reason="it ended with status 3", stderr_tail="one\nno licence\n"))
    assert findings(rig, "git_log") == ["Server `git` is down: it ended with status 3", "Clients see it as `git_log`"]
    assert hints(rig, "git_log") == ["its last output on stderr: no licence"]
    rig.router.catalog.hide("git", True)
    assert diagnosis(rig, "git_log")["listed"] is False
    assert "not listed while its server is down" in findings(rig, "git_log")[1]
    rig.router.registry.close()


# A tool that is not ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["git.lgo", "git_lgo", "git:lgo", "git__lgo"])
async def test_a_slip_of_the_keyboard_is_told_with_what_was_meant(tmp_path: Path, name: str) -> None:
    rig = RouterRig(tmp_path)
    rig.add("git", "log", "status")
    assert findings(rig, name) == ["Server `git` is ready and offers 2 tools, none named `lgo`"]
    assert hints(rig, name) == ["did you mean `git.log`?"]
    assert "git_log" in diagnosis(rig, name)["similar"]


@pytest.mark.parametrize("name", ["Bash", "files.Bash", "files_Bash"])
async def test_a_tool_that_is_offered_only_by_its_name_says_so(tmp_path: Path, name: str) -> None:
    rig = RouterRig(tmp_path)
    rig.add("files", "Read", withheld=frozenset({"Bash"}))
    rig.add("other", "Read")
    assert findings(rig, name) == [
        "Server `files` offers `Bash` only if `tools.allow` has its exact name, not a pattern"
    ]
    assert "tools.allow" not in findings(rig, "other.Bash")[0]


async def test_one_tool_is_not_many(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("git", "log")
    assert "offers 1 tool," in findings(rig, "git.push")[0]
    assert hints(rig, "git.push") == []


@pytest.mark.parametrize("name", ["git.push", "git_push", "push"])
async def test_a_tool_that_the_configuration_hides_says_so(tmp_path: Path, name: str) -> None:
    rig = RouterRig(tmp_path)
    rig.add("git", "log", "push", rules=NameRules(prefix="git", deny=["push"]))
    assert findings(rig, name) == ["Server `git` has `push`, but the configuration hides it"]
    assert "tools.deny" in hints(rig, name)[0]


async def test_what_is_hidden_is_not_proposed(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("git", "log", "push", rules=NameRules(prefix="git", deny=["push"]))
    assert "push" not in str(hints(rig, "git.puhs"))


async def test_a_name_that_several_have_asks_which(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("a", "search")
    rig.add("b", "search")
    assert findings(rig, "search") == ["Several servers have a tool `search`"]
    assert hints(rig, "search") == ["call one of them by its address: a.search, b.search"]


@pytest.mark.parametrize(
    "health, what, hint",
    [
        (Health(state="starting"), "Server `git` is starting", None),
        (Health(state="down", last_error="refused"), "Server `git` is down: refused", None),
        (Health(state="auth_required", reason="HTTP 401", hint="log in"), "is auth_required: HTTP 401", "log in"),
        (Health(state="disabled", reason="it is switched off"), "is disabled: it is switched off", "enabled: true"),
    ],
)
async def test_a_server_that_was_never_heard_of_is_why(
    tmp_path: Path, health: Health, what: str, hint: str | None
) -> None:
    rig = RouterRig(tmp_path)
    rig.add("git", state=None)
    rig.sinks["git"].health(health)
    assert what in findings(rig, "git_log")[0]
    assert (hint or "") in str(hints(rig, "git_log"))
    rig.router.registry.close()


async def test_a_bare_name_may_belong_to_a_server_that_has_not_spoken(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("git", "log")
    rig.add("slow", state=None)
    assert "No server is known to have a tool `search`" in findings(rig, "search")
    assert "`slow` (starting)" in hints(rig, "search")[0]


async def test_a_server_that_is_not_there_is_told_with_what_was_meant(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("github", "search")
    assert findings(rig, "githbu.search") == ["There is no server `githbu`"]
    assert hints(rig, "githbu.search") == ["did you mean `github`?"]
    assert findings(rig, "x.y") == ["There is no server `x`"]
    assert hints(rig, "x.y") == ["servers: github"]
    assert findings(rig, "quite_else") == ["No server has a tool `quite_else`"]


async def test_without_servers_the_way_to_the_first_is_shown(tmp_path: Path) -> None:
    assert "trunkline add" in hints(RouterRig(tmp_path), "anything")[0]


async def test_a_definition_that_was_left_out_is_why(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("git", "log")
    snapshot = Snapshot(
        tools=tools_snapshot("git", "log").tools, warnings=('a tool was left out: b\'{"name":"push"}\'',)
    )
    rig.sinks["git"].publish(snapshot)
    assert "left out" in findings(rig, "git_push")[0]
    assert "left out" not in findings(rig, "git_p")[0]


# Bounds ---------------------------------------------------------------------------------------------------------------


async def test_twenty_thousand_tools_and_a_very_long_name_are_no_long_work(tmp_path: Path) -> None:
    """Comparing all of them with all of it takes minutes."""
    rig = RouterRig(tmp_path)
    rig.add("many", *(f"do_something_{number:05}" for number in range(20_000)))
    assert diagnosis(rig, "many.do_something_" + "9" * 10_000)["found"] is False
