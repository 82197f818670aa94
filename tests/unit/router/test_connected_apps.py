from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.router.fakes import OK, Desk, FakeSource, offer, problem_of

from trunkline.core.call import Result
from trunkline.core.errors import SOURCE_DOWN, UNKNOWN_TOOL
from trunkline.core.source import Health
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.router.options import CacheRules, NameRules, SourceOptions
from trunkline.router.registry import SourceSink


class Inn(Desk):
    """A desk with one host, and guests that it brings in."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder)
        self.host = self.add("desktop", kind="app", grace_s=0.0, fingerprint="", **options)
        self.router.registry.reorder(("desktop",))
        self.evicted: list[tuple[str, bool]] = []

    def guest(self, name: str, *tools: str, source: FakeSource | None = None) -> FakeSource:
        source = self.sources[name] = source or FakeSource()
        sink = self.sinks["desktop"].add_app(name, source, lambda host_leaves: self.evicted.append((name, host_leaves)))
        assert sink is not None
        self.sinks[name] = sink
        sink.publish(offer(name, *tools))
        sink.health(Health(state="ready"))
        return source

    @property
    def names(self) -> list[str | None]:
        return [entry.exposed for entry in self.router.catalog.entries()]


async def test_a_guest_is_listed_and_called_like_any_server(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    paint = inn.guest("Paint", "draw")
    assert inn.names == ["Paint_draw"]
    call = inn.call("Paint.draw")
    assert paint.held == [call]
    call.finish(OK)
    assert inn.router.admissions["Paint"].options.kind == "app"
    assert inn.router.admissions["Paint"].options.origin == "app"


async def test_guests_are_listed_by_name_behind_their_host_whoever_came_first(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    inn.add("zoo", "feed")
    inn.router.registry.reorder(("desktop", "zoo"))
    inn.guest("Web", "open")
    inn.guest("Calc", "add")
    assert inn.names == ["Calc_add", "Web_open", "zoo_feed"]
    assert list(inn.router.admissions) == ["desktop", "Calc", "Web", "zoo"]


async def test_a_name_that_is_taken_is_not_given_again(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    inn.add("github", "search")
    paint = inn.guest("Paint", "draw")
    host = inn.sinks["desktop"]
    assert host.add_app("github", FakeSource(), print) is None
    assert host.add_app("Paint", FakeSource(), print) is None
    again = host.add_app("Paint", paint, print)
    assert again is not None and again.admission is inn.sinks["Paint"].admission


async def test_a_guest_that_is_away_is_not_listed_and_still_named_in_the_refusal(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    inn.guest("Paint", "draw")
    inn.health("Paint", "down", "the app disconnected")
    assert inn.names == []
    problem = problem_of(inn.call("Paint_draw"))
    assert (problem.code, problem.source) == (SOURCE_DOWN, "Paint")
    assert "the app disconnected" in problem.message
    inn.health("Paint", "ready")
    assert inn.names == ["Paint_draw"]


async def test_a_guest_that_was_dismissed_is_unknown_and_its_name_is_free(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    inn.guest("Paint", "draw")
    inn.sinks["desktop"].remove_app("Paint")
    assert problem_of(inn.call("Paint_draw")).code is UNKNOWN_TOOL
    inn.sinks["desktop"].remove_app("Paint")
    inn.guest("Paint", "erase")
    assert inn.names == ["Paint_erase"]


async def test_guests_leave_with_their_host_and_their_calls_may_end(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    paint = inn.guest("Paint", "draw")
    call = inn.call("Paint.draw")
    admission = inn.sinks["desktop"].admission
    inn.router.registry.remove("desktop")
    assert inn.names == []
    assert inn.evicted == [("Paint", True)]
    assert inn.router.registry.busy(admission)
    assert inn.router.in_flight == 1
    paint.held[0].finish(OK)
    assert isinstance(call.outcome, Result)
    assert not inn.router.registry.busy(admission)
    inn.router.registry.release(admission)
    assert inn.router.registry.apps.of(admission) == ()
    assert inn.sinks["desktop"].add_app("Late", FakeSource(), print) is None


async def test_the_successor_of_a_host_may_have_the_same_guests(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    inn.guest("Paint", "draw")
    old = inn.sinks["desktop"]
    options = SourceOptions(rules=NameRules(prefix="desktop"), timeout_s=30.0, grace_s=0.0, kind="app")
    inn.sinks["desktop"] = inn.router.registry.replace("desktop", FakeSource(), options)
    inn.health("desktop", "ready")
    assert inn.names == []
    assert old.add_app("Paint", FakeSource(), print) is None
    inn.guest("Paint", "draw")
    inn.router.registry.release(old.admission)
    assert inn.names == ["Paint_draw"]


async def test_the_configuration_has_the_last_word_about_a_name(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    notes: list[str] = []
    inn.events.noted.append(lambda note: notes.append(note.message))
    inn.guest("Paint", "draw")
    inn.add("Paint", "mix")
    assert inn.names == ["Paint_mix"]
    assert any("Paint" in note for note in notes)
    inn.router.registry.remove("Paint")
    inn.guest("Paint", "draw")
    assert inn.names == ["Paint_draw"]


def guest_gate(inn: Inn, name: str) -> SourceOptions:
    sink: SourceSink = inn.sinks[name]
    return sink.admission.options


async def test_rules_may_name_one_app(tmp_path: Path) -> None:
    rules = NameRules(
        prefix="desktop",
        allow=("Paint:*", "open"),
        deny=("Paint:erase",),
        rename={"draw": "all", "Paint:draw": "sketch"},
    )
    inn = Inn(tmp_path, rules=rules, timeout_s=30.0, timeouts_s={"open": 3.0, "Web:*": 9.0, "Paint:draw": 1.0})
    inn.guest("Paint", "draw", "erase", "open")
    inn.guest("Web", "open", "draw")
    assert inn.names == ["Paint_sketch", "Paint_open", "Web_open"]
    assert (guest_gate(inn, "Paint").timeout_s, guest_gate(inn, "Paint").timeouts_s) == (
        30.0,
        {"open": 3.0, "draw": 1.0},
    )
    assert (guest_gate(inn, "Web").timeout_s, guest_gate(inn, "Web").timeouts_s) == (9.0, {"open": 3.0})


async def test_other_rules_for_the_host_are_so_for_its_guests(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    inn.guest("Paint", "draw")
    for prefix, name in (("", "draw"), ("desk", "desk_Paint_draw"), ("desktop", "Paint_draw")):
        options = SourceOptions(rules=NameRules(prefix=prefix), timeout_s=7.0, grace_s=0.0, kind="app")
        inn.router.registry.update("desktop", options)
        assert inn.names == [name]
        assert guest_gate(inn, "Paint").timeout_s == 7.0


async def test_a_tool_is_found_under_the_name_its_app_registered(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    paint = inn.guest("My_App")
    tool = ToolDefinition("My_App", "draw", b'{"name":"draw"}', aliases=("My App:draw",))
    inn.sinks["My_App"].publish(Snapshot(tools=(tool,)))
    call = inn.call("My App:draw")
    assert paint.held == [call]
    call.finish(OK)


async def test_who_comes_by_itself_takes_no_name_that_another_tool_has(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    inn.add("git_hub", "search", "get.issue")
    inn.router.registry.reorder(("desktop", "git_hub"))
    catalog = inn.router.catalog
    inn.guest("git", "hub_search", "hub_get_issue")
    inn.guest("B_c", "d")
    inn.guest("B", "c_d")
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
    inn = Inn(tmp_path)
    inn.add("GitHub", "search")
    for name in ("github", "Trunkline", "DESKTOP"):
        assert inn.sinks["desktop"].add_app(name, FakeSource(), print) is None


async def test_a_guest_that_loses_its_name_to_the_configuration_is_told(tmp_path: Path) -> None:
    inn = Inn(tmp_path)
    inn.guest("Paint", "draw")
    inn.guest("Web", "open")
    inn.add("paint", "mix")
    assert inn.evicted == [("Paint", False)]
    assert sorted(name or "" for name in inn.names) == ["Web_open", "paint_mix"]


async def test_rules_may_name_an_app_as_it_calls_itself(tmp_path: Path) -> None:
    rules = NameRules(prefix="desktop", deny=("My App*:erase",))
    cache = CacheRules(tools=("My App 2.0:draw", "Web:open"), assume_read_only=("look",))
    inn = Inn(tmp_path, rules=rules, timeouts_s={"My App 2.0:draw": 2.0}, cache=cache)
    inn.guest("My_App_2_0", "draw", "erase")
    assert inn.names == ["My_App_2_0_draw"]
    options = guest_gate(inn, "My_App_2_0")
    assert options.timeouts_s == {"draw": 2.0}
    assert options.cache == CacheRules(tools=("draw",), assume_read_only=("look",))
