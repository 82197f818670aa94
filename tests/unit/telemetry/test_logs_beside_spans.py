"""The line of a call in the log says of it what its span says, in the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.collector import attributes_of
from tests.unit.router.fakes import OK
from tests.unit.telemetry.traced_router_rig import TracedRouterRig

from trunkline.core.call import Cached, Call, Failure, NeedsInput, Outcome, RemoteError, Result
from trunkline.core.errors import DEADLINE, Problem
from trunkline.router.options import NameRules
from trunkline.telemetry.call_log import CallLog

FAILED = Result(b'{"content":[],"isError": true}')
SHARED = ("tool.name", "tool.source", "error.type")
OUTCOMES: list[Outcome] = [
    OK,
    FAILED,
    Result(b'{"content":[],"isError":false}'),
    Result(memoryview(b'{"content":[{"type":"text","text":"%b"}],"isError":true}' % (b"x" * 50_000))),
    Cached(b"{}"),
    Cached(b'{"isError":true}'),
    NeedsInput(b"{}"),
    RemoteError(b'{"code":-32602,"message":"no"}'),
    Failure(Problem(code=DEADLINE, message="late", executed="unknown")),
]


def answered(result: bytes) -> Result:
    """As it comes from a server: a part of its message."""
    message = b'{"jsonrpc":"2.0","id":7,"result":%b}' % result
    return Result(memoryview(message)[message.index(result) : -1], message)


FLAGGED = {
    b'{"isError":true,"content":[]}': True,
    b'{"content":[{"type":"text","text":"No Entry"}],"isError" : true}': True,
    b'{"structuredContent":{"isError":false},"isError":true}': True,
    b'{"structuredContent":{"isError":true},"isError":false}': False,
    b'{"structuredContent":{"isError":true}}': False,
    b'{"content":[{"type":"text","text":"\\"isError\\":true"}],"isError":false}': False,
    b'{"content":[{"type":"text","text":"Error\\":false"}],"isError":true}': True,
    b'{"content":[],"isError":"true"}': False,
    b'{"content":[],"isError":true,"structuredContent":"%b"}' % (b"x" * 5_000): True,
    b'{"isError":true,"content":[{"type":"text","text":"%b"}]}' % (b"E" * 50_000): True,
    b'{"content":[{"type":"text","text":"%b"}],"isError":true}' % (b"E" * 50_000): True,
    b'{"content":[{"type":"text","text":"%b"}],"isError":false}' % (b"E" * 50_000): False,
}


class LoggedRouterRig(TracedRouterRig):
    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder)
        self._file = (folder / "log").open("wb")
        self._log = CallLog(stream_fd=self._file.fileno(), **{"format": "json", **options})
        self._log.attach(self.router.events).follow(self.router)

    def lines(self) -> list[str]:
        self._log.close()
        self._file.close()
        return Path(self._file.name).read_text().splitlines()


def said_of_calls(rig: LoggedRouterRig) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """By the log and by spans: what both should say."""
    records = [record for line in rig.lines() if (record := json.loads(line))["event"] == "call"]
    spans = [attributes_of(span) for span in rig.spans]
    logged = [{name: record.get(name) for name in SHARED} | {"outcome": record["outcome"]} for record in records]
    traced = [{name: span.get(name) for name in SHARED} | {"outcome": span["trunkline.outcome"]} for span in spans]
    return logged, traced


@pytest.mark.parametrize("kind", ["builtin", "plugin", "mcp_stdio", "mcp_http", "app", "service"])
async def test_a_call_has_the_same_outcome_name_source_and_error_in_both(tmp_path: Path, kind: str) -> None:
    rig = LoggedRouterRig(tmp_path)
    outcomes = iter(OUTCOMES)
    rig.add("calc", "add", kind=kind).on_submit = lambda call: call.finish(next(outcomes))
    for _ in OUTCOMES:
        rig.call("calc.add")
    rig.call("nothing.here")
    logged, traced = said_of_calls(rig)
    assert logged == traced
    assert [line["error.type"] for line in logged[:4]] == [None, "tool_error", None, "tool_error"]
    assert {line["tool.name"] for line in logged[:-1]} == {"calc_add"}
    assert logged[-1] | {"tool.name": "nothing.here", "tool.source": None} == logged[-1]


@pytest.mark.parametrize("as_bytes", [False, True])
async def test_a_failure_that_a_tool_reports_is_seen_wherever_it_says_so(tmp_path: Path, as_bytes: bool) -> None:
    rig = LoggedRouterRig(tmp_path)
    results = [Result(result) if as_bytes else answered(result) for result in FLAGGED]
    answers = iter(results)
    rig.add("calc", "add", kind="mcp_stdio").on_submit = lambda call: call.finish(next(answers))
    for _ in results:
        rig.call("calc.add")
    logged, traced = said_of_calls(rig)
    assert logged == traced
    assert [line["error.type"] == "tool_error" for line in logged] == list(FLAGGED.values())


async def test_a_tool_that_is_renamed_has_its_new_name_from_then_on(tmp_path: Path) -> None:
    rig = LoggedRouterRig(tmp_path)

    def answer(call: Call) -> None:
        call.finish(OK)

    rig.add("calc", "add", kind="mcp_stdio").on_submit = answer
    rig.call("calc_add")
    rig.add("other", "add", kind="plugin", rules=NameRules(prefix="calculator")).on_submit = answer
    rig.router.catalog.rename("bare", 64)
    rig.call("calc.add")
    logged, traced = said_of_calls(rig)
    assert logged == traced
    assert [line["tool.name"] for line in logged] == ["calc_add", "add"]


async def test_people_see_that_a_tool_reported_a_failure(tmp_path: Path) -> None:
    rig = LoggedRouterRig(tmp_path, format="human")
    rig.add("calc", "add", kind="mcp_stdio").on_submit = lambda call: call.finish(FAILED)
    rig.call("calc_add")
    assert " calc.add ok (tool_error) " in rig.lines()[-1]
