from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.router.fakes import OK, FakeSource, RouterRig, problem_of, tools_snapshot

from trunkline.core.call import Result
from trunkline.core.errors import SOURCE_DOWN, UNKNOWN_TOOL
from trunkline.core.source import Health
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.router.options import CacheRules, NameRules, SourceOptions
from trunkline.router.registry import SourceSink


class AppsRig(RouterRig):
    """A router rig with one app listener, and the apps that connect to it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder)
        self.host = self.add("desktop", kind="app", grace_s=0.0, fingerprint="", **options)
        self.router.registry.reorder(("desktop",))
        self.evicted: list[tuple[str, bool]] = []

    def connect_app(self, name: str, *tools: str, source: FakeSource | None = None) -> FakeSource:
        source = self.sources[name] = source or FakeSource()
        sink = self.sinks["desktop"].add_app(name, source, lambda host_leaves: self.evicted.append((name, host_leaves)))
        assert sink is not None
        self.sinks[name] = sink
        sink.publish(tools_snapshot(name, *tools))
        sink.health(Health(state="ready"))
        return source

    @property
    def names(self) -> list[str | None]:
        return [entry.exposed for entry in self.router.catalog.entries()]


async def test_a_connected_app_is_listed_and_called_like_any_server(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    paint = rig.connect_app("Paint", "draw")
    assert rig.names == ["Paint_draw"]
    call = rig.call("Paint.draw")
    assert paint.held == [call]
    call.finish(OK)
    assert rig.router.admissions["Paint"].options.kind == "app"
    assert rig.router.admissions["Paint"].options.origin == "app"


async def test_connected_apps_are_listed_by_name_after_their_listener_in_whatever_order_they_came(
    tmp_path: Path,
) -> None:
    rig = AppsRig(tmp_path)
    rig.add("zoo", "feed")
    rig.router.registry.reorder(("desktop", "zoo"))
    rig.connect_app("Web", "open")
    rig.connect_app("Calc", "add")
    assert rig.names == ["Calc_add", "Web_open", "zoo_feed"]
    assert list(rig.router.admissions) == ["desktop", "Calc", "Web", "zoo"]


async def test_a_name_that_is_taken_is_not_given_again(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    rig.add("github", "search")
    paint = rig.connect_app("Paint", "draw")
    host = rig.sinks["desktop"]
    assert host.add_app("github", FakeSource(), print) is None
    assert host.add_app("Paint", FakeSource(), print) is None
    again = host.add_app("Paint", paint, print)
    assert again is not None and again.admission is rig.sinks["Paint"].admission


async def test_an_app_that_is_away_is_not_listed_and_still_named_in_the_refusal(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    rig.connect_app("Paint", "draw")
    rig.health("Paint", "down", "the app disconnected")
    assert rig.names == []
    problem = problem_of(rig.call("Paint_draw"))
    assert (problem.code, problem.source) == (SOURCE_DOWN, "Paint")
    assert "the app disconnected" in problem.message
    rig.health("Paint", "ready")
    assert rig.names == ["Paint_draw"]


async def test_an_app_that_was_dismissed_is_unknown_and_its_name_is_free(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    rig.connect_app("Paint", "draw")
    rig.sinks["desktop"].remove_app("Paint")
    assert problem_of(rig.call("Paint_draw")).code is UNKNOWN_TOOL
    rig.sinks["desktop"].remove_app("Paint")
    rig.connect_app("Paint", "erase")
    assert rig.names == ["Paint_erase"]


async def test_connected_apps_leave_with_their_listener_and_their_calls_may_end(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    paint = rig.connect_app("Paint", "draw")
    call = rig.call("Paint.draw")
    admission = rig.sinks["desktop"].admission
    rig.router.registry.remove("desktop")
    assert rig.names == []
    assert rig.evicted == [("Paint", True)]
    assert rig.router.registry.busy(admission)
    assert rig.router.in_flight == 1
    paint.held[0].finish(OK)
    assert isinstance(call.outcome, Result)
    assert not rig.router.registry.busy(admission)
    rig.router.registry.release(admission)
    assert rig.router.registry.apps.of(admission) == ()
    assert rig.sinks["desktop"].add_app("Late", FakeSource(), print) is None


async def test_the_successor_of_a_listener_may_have_the_same_apps(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    rig.connect_app("Paint", "draw")
    old = rig.sinks["desktop"]
    options = SourceOptions(rules=NameRules(prefix="desktop"), timeout_s=30.0, grace_s=0.0, kind="app")
    rig.sinks["desktop"] = rig.router.registry.replace("desktop", FakeSource(), options)
    rig.health("desktop", "ready")
    assert rig.names == []
    assert old.add_app("Paint", FakeSource(), print) is None
    rig.connect_app("Paint", "draw")
    rig.router.registry.release(old.admission)
    assert rig.names == ["Paint_draw"]


async def test_the_configuration_has_the_last_word_about_a_name(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    notes: list[str] = []
    rig.events.noted.append(lambda note: notes.append(note.message))
    rig.connect_app("Paint", "draw")
    rig.add("Paint", "mix")
    assert rig.names == ["Paint_mix"]
    assert any("Paint" in note for note in notes)
    rig.router.registry.remove("Paint")
    rig.connect_app("Paint", "draw")
    assert rig.names == ["Paint_draw"]


def app_options(rig: AppsRig, name: str) -> SourceOptions:
    sink: SourceSink = rig.sinks[name]
    return sink.admission.options


async def test_rules_may_name_one_app(tmp_path: Path) -> None:
    rules = NameRules(
        prefix="desktop",
        allow=("Paint:*", "open"),
        deny=("Paint:erase",),
        rename={"draw": "all", "Paint:draw": "sketch"},
    )
    rig = AppsRig(tmp_path, rules=rules, timeout_s=30.0, timeouts_s={"open": 3.0, "Web:*": 9.0, "Paint:draw": 1.0})
    rig.connect_app("Paint", "draw", "erase", "open")
    rig.connect_app("Web", "open", "draw")
    assert rig.names == ["Paint_sketch", "Paint_open", "Web_open"]
    assert (app_options(rig, "Paint").timeout_s, app_options(rig, "Paint").timeouts_s) == (
        30.0,
        {"open": 3.0, "draw": 1.0},
    )
    assert (app_options(rig, "Web").timeout_s, app_options(rig, "Web").timeouts_s) == (9.0, {"open": 3.0})


async def test_changed_rules_of_a_listener_apply_to_its_apps(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    rig.connect_app("Paint", "draw")
    for prefix, name in (("", "draw"), ("desk", "desk_Paint_draw"), ("desktop", "Paint_draw")):
        options = SourceOptions(rules=NameRules(prefix=prefix), timeout_s=7.0, grace_s=0.0, kind="app")
        rig.router.registry.update("desktop", options)
        assert rig.names == [name]
        assert app_options(rig, "Paint").timeout_s == 7.0


async def test_a_tool_is_found_under_the_name_its_app_registered(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    paint = rig.connect_app("My_App")
    tool = ToolDefinition("My_App", "draw", b'{"name":"draw"}', aliases=("My App:draw",))
    rig.sinks["My_App"].publish(Snapshot(tools=(tool,)))
    call = rig.call("My App:draw")
    assert paint.held == [call]
    call.finish(OK)


async def test_who_comes_by_itself_takes_no_name_that_another_tool_has(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    rig.add("git_hub", "search", "get.issue")
    rig.router.registry.reorder(("desktop", "git_hub"))
    catalog = rig.router.catalog
    rig.connect_app("git", "hub_search", "hub_get_issue")
    rig.connect_app("B_c", "d")
    rig.connect_app("B", "c_d")
    for name, address in (
        ("git_hub_search", "git_hub.search"),
        ("git_hub_get_issue", "git_hub.get.issue"),
        ("B_c_d", "B_c.d"),
        ("git.hub_search", "git.hub_search"),
    ):
        entry = catalog.find(name)
        assert entry is not None and entry.tool.address == address
    assert {problem.source for problem in catalog.collisions} == {"git", "B"}


async def test_a_name_that_differs_in_case_only_is_taken_too(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    rig.add("GitHub", "search")
    for name in ("github", "Trunkline", "DESKTOP"):
        assert rig.sinks["desktop"].add_app(name, FakeSource(), print) is None


async def test_an_app_that_loses_its_name_to_the_configuration_is_notified(tmp_path: Path) -> None:
    rig = AppsRig(tmp_path)
    rig.connect_app("Paint", "draw")
    rig.connect_app("Web", "open")
    rig.add("paint", "mix")
    assert rig.evicted == [("Paint", False)]
    assert sorted(name or "" for name in rig.names) == ["Web_open", "paint_mix"]


async def test_rules_may_name_an_app_as_it_calls_itself(tmp_path: Path) -> None:
    rules = NameRules(prefix="desktop", deny=("My App*:erase",))
    cache = CacheRules(tools=("My App 2.0:draw", "Web:open"), assume_read_only=("look",))
    rig = AppsRig(tmp_path, rules=rules, timeouts_s={"My App 2.0:draw": 2.0}, cache=cache)
    rig.connect_app("My_App_2_0", "draw", "erase")
    assert rig.names == ["My_App_2_0_draw"]
    options = app_options(rig, "My_App_2_0")
    assert options.timeouts_s == {"draw": 2.0}
    assert options.cache == CacheRules(tools=("draw",), assume_read_only=("look",))
