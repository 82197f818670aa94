"""Spans of calls: their ids, their parents, what is said of them, and what never is."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.collector import attributes_of
from tests.unit.router.fakes import OK
from tests.unit.telemetry.retained_memory import texts_held
from tests.unit.telemetry.traced_router_rig import TracedRouterRig

from trunkline.core.call import Cached, Call, Caller, Failure, NeedsInput, Outcome, RemoteError, Result
from trunkline.core.errors import DEADLINE, UNKNOWN_TOOL, Problem
from trunkline.router.options import NameRules

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
ERROR, SERVER, INTERNAL = 2, 2, 1
CALLER = Caller(session="0123456789abcdef", client="claude-code", version="2025-11-25")
STEP = Caller(principal="step:review")


@pytest.fixture
def rig(tmp_path: Path) -> Callable[..., TracedRouterRig]:
    return lambda **options: TracedRouterRig(tmp_path, **options)


def answering(rig: TracedRouterRig, outcome: Outcome = OK, name: str = "calc", **options: Any) -> list[Call]:
    """A source that answers at once, and the calls it got."""
    seen: list[Call] = []
    source = rig.add(name, "add", kind="mcp_stdio", **options)
    source.on_submit = lambda call: seen.append(call) or call.finish(outcome)
    return seen


def parent_sent(call: Call) -> tuple[str, str, str]:
    """Trace, span and flags that the server was told."""
    _, trace, span, flags = json.loads(bytes((call.meta or {})["traceparent"])).split("-")
    return trace, span, flags


# -- ids and parents --------------------------------------------------------------------------------------------------


async def test_a_call_without_context_is_a_root_and_its_server_is_told_of_it(
    rig: Callable[..., TracedRouterRig],
) -> None:
    here = rig()
    seen = answering(here)
    before = time.time_ns()
    here.call("calc_add", {"arguments": {}}, caller=CALLER)
    here.call("calc_add", {"arguments": {}}, caller=CALLER)
    first, second = here.spans
    assert first.name == "tool.call.calc_add"
    assert first.parent_span_id == b""
    assert first.kind == SERVER
    assert first.flags == 0x101
    assert parent_sent(seen[0]) == (first.trace_id.hex(), first.span_id.hex(), "01")
    assert len({first.trace_id, second.trace_id}) == len({first.span_id, second.span_id}) == 2
    assert (len(first.trace_id), len(first.span_id)) == (16, 8)
    assert before <= first.start_time_unix_nano <= first.end_time_unix_nano <= time.time_ns()


async def test_a_call_is_the_child_of_the_span_its_client_names(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    seen = answering(here)
    here.call("calc_add", {"_meta": {"traceparent": SAMPLED, "tracestate": "a=1", "baggage": "k=v"}})
    (span,) = here.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state) == (TRACE, SPAN, "a=1")
    assert span.flags == 0x301
    assert parent_sent(seen[0]) == (TRACE, span.span_id.hex(), "01")
    assert (seen[0].meta or {}).keys() == {"traceparent", "tracestate", "baggage"}
    assert (seen[0].meta or {})["tracestate"] == b'"a=1"'


async def test_a_call_that_its_client_does_not_record_passes_as_it_came(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    seen = answering(here)
    here.call("calc_add", {"_meta": {"traceparent": UNSAMPLED, "tracestate": "a=1"}})
    assert here.spans == []
    assert seen[0].meta == {"traceparent": f'"{UNSAMPLED}"'.encode(), "tracestate": b'"a=1"'}
    assert here.tracer.ids_of(seen[0]) is None


async def test_context_that_makes_no_sense_is_replaced_and_its_state_dropped(
    rig: Callable[..., TracedRouterRig],
) -> None:
    here = rig()
    seen = answering(here)
    here.call("calc_add", {"_meta": {"traceparent": "nonsense", "tracestate": "a=1", "x/y": 1}})
    here.call("calc_add", {"_meta": {"tracestate": "a=1"}})
    for span, call in zip(here.spans, seen, strict=True):
        assert span.parent_span_id == b""
        assert span.trace_state == ""
        assert parent_sent(call) == (span.trace_id.hex(), span.span_id.hex(), "01")
        assert "tracestate" not in (call.meta or {})
    assert (seen[0].meta or {})["x/y"] == b"1"


async def test_calls_of_a_step_are_its_children_until_they_no_longer_are(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    answering(here)
    step = here.tracer.begin("step review", attributes={"workflow.step": "review"})
    here.tracer.set_call_parent("step:review", step)
    here.call("calc_add", caller=STEP)
    here.call("calc_add", caller=CALLER)
    here.tracer.set_call_parent("step:review", None)
    here.call("calc_add", caller=STEP)
    step.end()
    child, other, later, ended = here.spans
    assert (child.trace_id.hex(), child.parent_span_id.hex()) == (step.trace_id, step.span_id)
    assert child.flags == 0x101
    assert other.parent_span_id == later.parent_span_id == b""
    assert (ended.name, ended.kind, attributes_of(ended)) == ("step review", INTERNAL, {"workflow.step": "review"})


async def test_an_agent_with_a_trace_of_its_own_does_not_take_its_calls_out_of_the_step(
    rig: Callable[..., TracedRouterRig],
) -> None:
    here = rig()
    seen = answering(here)
    step = here.tracer.begin("step")
    here.tracer.set_call_parent("step:review", step)
    for context in (SAMPLED, UNSAMPLED):
        here.call("calc_add", {"_meta": {"traceparent": context, "tracestate": "a=1"}}, caller=STEP)
    for flags in ("01", "00"):
        within = f"00-{step.trace_id}-{SPAN}-{flags}"
        here.call("calc_add", {"_meta": {"traceparent": within}}, caller=STEP)
    linked, also_linked, nested, also_nested = here.spans
    for span in (linked, also_linked):
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (step.trace_id, step.span_id)
        assert [(link.trace_id.hex(), link.span_id.hex()) for link in span.links] == [(TRACE, SPAN)]
    for span in (nested, also_nested):
        assert (span.trace_id.hex(), span.parent_span_id.hex(), list(span.links)) == (step.trace_id, SPAN, [])
    assert "tracestate" not in (seen[0].meta or {})


async def test_spans_within_spans_share_their_trace(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    run = here.tracer.begin("run")
    step = here.tracer.begin("step", parent=run)
    step.end()
    run.end()
    run.end()
    inner, outer = here.spans
    assert (inner.trace_id, inner.parent_span_id) == (outer.trace_id, outer.span_id)
    assert run.traceparent == f"00-{outer.trace_id.hex()}-{outer.span_id.hex()}-01"


async def test_several_routers_share_a_tracer(tmp_path: Path) -> None:
    first, second = TracedRouterRig(tmp_path / "1"), TracedRouterRig(tmp_path / "2")
    answering(first)
    answering(second)
    first.tracer.attach(second.router)
    second.call("calc_add")
    first.call("calc_add")
    assert len(first.spans) == 2


# -- what is said -----------------------------------------------------------------------------------------------------


async def test_a_calls_attributes_follow_the_conventions(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    answering(here)
    here.call("calc_add", {"arguments": {"a": 1}}, caller=CALLER)
    (span,) = here.spans
    attributes = attributes_of(span)
    assert attributes.pop("tool.duration_ms") == (span.end_time_unix_nano - span.start_time_unix_nano) // 1_000_000
    assert attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "calc_add",
        "tool.name": "calc_add",
        "tool.source": "mcp:calc",
        "trunkline.outcome": "ok",
        "network.transport": "tcp",
        "mcp.protocol.version": "2025-11-25",
        "mcp.session.id": "01234567",
        "trunkline.client": "claude-code",
    }
    assert span.status.code == 0
    assert list(span.events) == []


FAILED = b'{"content":[{"type":"text","text":"x"}],"isError": true}'
LONG = b'{"content":[{"type":"text","text":"%b"}],"isError":true}' % (b"x" * 50_000)
QUOTED = b'{"content":[{"type":"text","text":"{\\"isError\\":true}"}],"structuredContent":{"isError":true}}'


@pytest.mark.parametrize(
    ("outcome", "error", "number", "word"),
    [
        (OK, "", None, "ok"),
        (Cached(b"{}"), "", None, "cached"),
        (NeedsInput(b"{}"), "", None, "input_required"),
        (Result(FAILED), "tool_error", None, "ok"),
        (Result(memoryview(LONG)), "tool_error", None, "ok"),
        (Result(QUOTED), "", None, "ok"),
        (RemoteError(b'{"code":-32602,"message":"secret words"}'), "-32602", "-32602", "error"),
        (RemoteError(b'{"message":"secret words"}'), "error", None, "error"),
        (Failure(Problem(code=DEADLINE, message="secret words", executed="unknown")), "TL305", "504", "TL305"),
    ],
)
async def test_how_it_ended_is_said(
    rig: Callable[..., TracedRouterRig], outcome: Outcome, error: str, number: str | None, word: str
) -> None:
    here = rig()
    answering(here, outcome)
    here.call("calc_add")
    (span,) = here.spans
    attributes = attributes_of(span)
    assert attributes.get("error.type", "") == error
    assert attributes.get("rpc.response.status_code") == number
    assert attributes["trunkline.outcome"] == word
    assert span.status.code == (ERROR if error else 0)
    assert [(event.name, attributes_of(event)["exception.type"]) for event in span.events] == (
        [("exception", error)] if error else []
    )
    assert "secret words" not in "".join(here.kept.sent)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("builtin", "builtin"),
        ("plugin", "plugin:calc"),
        ("mcp_stdio", "mcp:calc"),
        ("mcp_http", "mcp:calc"),
        ("app", "app:calc"),
        ("service", "service:calc"),
    ],
)
async def test_every_kind_of_source_is_named(rig: Callable[..., TracedRouterRig], kind: str, source: str) -> None:
    here = rig()
    here.add("calc", "add", kind=kind).on_submit = lambda call: call.finish(OK)
    here.call("calc_add")
    assert attributes_of(here.spans[0])["tool.source"] == source


async def test_a_tool_has_the_name_that_callers_know_however_it_is_called(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    answering(here, rules=NameRules(prefix="c", rename={"add": "plus"}))
    here.call("calc.add")
    here.call("c_plus")
    here.router.catalog.rename("original", 48)
    here.call("calc.add")
    assert [span.name for span in here.spans] == ["tool.call.c_plus", "tool.call.c_plus", "tool.call.plus"]


async def test_a_call_that_goes_on_as_one_of_another_tool_is_that_tools(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    seen = answering(here)
    here.add("own", "execute", kind="builtin", redirect=lambda call, tool, members: ("calc_add", {}))
    here.call("own_execute", {"_meta": {"traceparent": SAMPLED}})
    (span,) = here.spans
    attributes = attributes_of(span)
    assert (span.name, attributes["tool.source"]) == ("tool.call.calc_add", "mcp:calc")
    assert parent_sent(seen[0]) == (TRACE, span.span_id.hex(), "01")


async def test_a_call_in_flight_has_a_span_that_leaves_when_it_ends(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    here.add("calc", "add")
    call = here.call("calc_add")
    ids = here.tracer.ids_of(call)
    assert here.spans == []
    assert ids is not None
    call.cancel("the client left")
    (span,) = here.spans
    assert (span.trace_id.hex(), span.span_id.hex()) == ids
    assert attributes_of(span)["error.type"] == "TL310"
    assert here.tracer.ids_of(call) is None


async def test_a_tool_that_nobody_has_is_named_as_it_was_asked_for(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    answering(here)
    here.call("nobody_" + "x" * 10_000 + "\n")
    (span,) = here.spans
    assert span.name.startswith("tool.call.nobody_xxx")
    assert len(span.name) < 150
    attributes = attributes_of(span)
    assert attributes["error.type"] == UNKNOWN_TOOL.id
    assert "tool.source" not in attributes


async def test_a_tool_of_a_server_that_never_came_has_no_name(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    here.add("calc", state="down", kind="mcp_stdio")
    here.call("calc_add")
    (span,) = here.spans
    attributes = attributes_of(span)
    assert (span.name, attributes["tool.source"]) == ("tool.call", "mcp:calc")
    assert not {"tool.name", "gen_ai.tool.name"} & attributes.keys()


async def test_other_methods_are_named_by_themselves(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    seen: list[Call] = []
    source = here.serve("notes", prompts=["weekly"], resources=["file:///private-canary"])
    source.on_submit = lambda call: seen.append(call) or call.finish(OK)
    here.request("prompts/get", {"name": "notes_weekly", "arguments": {"a": "argument-canary"}})
    here.request("resources/read", {"uri": "file:///private-canary"})
    here.request("tasks/get", {"taskId": "task-canary"})
    prompt, resource, task = here.spans
    assert [span.name for span in (prompt, resource, task)] == ["prompts/get", "resources/read", "tasks/get"]
    assert attributes_of(prompt)["gen_ai.prompt.name"] == "weekly"
    assert "gen_ai.operation.name" not in attributes_of(prompt)
    assert parent_sent(seen[1])[1] == resource.span_id.hex()
    assert "canary" not in "".join(here.kept.sent)


@pytest.mark.law
async def test_a_failed_span_says_why_in_clean_words(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig(secrets=("s3cret-value",))
    span = here.tracer.begin("step s3cret-value", attributes={"a": "s3cret-value\n", "n": 2**40, "f": 0.5, "b": True})
    span.set("late", "\ud800")
    span.fail("TL603", "it said s3cret-value" + "x" * 10_000)
    span.end()
    (read,) = here.spans
    assert read.name == "step ***"
    assert attributes_of(read) == {
        "a": "***\\n", "n": 2**40, "f": 0.5, "b": True, "late": "\\ud800", "error.type": "TL603",
    }  # fmt: skip
    assert read.status.code == ERROR
    assert read.status.message.startswith("it said ***")
    assert len(read.status.message) <= 1024


# -- what never is ----------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_nothing_private_leaves(rig: Callable[..., TracedRouterRig]) -> None:
    """Canaries wherever a call holds something of its client, its server or the configuration."""
    canaries = [f"canary-{number:02}-0123456789" for number in range(20)]
    spare = iter(canaries)
    secret, in_name, in_session = next(spare), next(spare), next(spare)
    caller = Caller(principal=next(spare), session=f"01234567{in_session}", client=f"x {secret}")

    here = rig(secrets=(secret, in_name))
    error = {"code": 1, "message": next(spare), "data": {"x": next(spare)}}
    message, hint = next(spare), next(spare)
    outcomes = [
        Result(json.dumps({"content": [{"text": next(spare)}], "isError": True, "x": next(spare)}).encode()),
        Result(json.dumps({"structuredContent": {"isError": next(spare)}}).encode()),
        RemoteError(json.dumps(error).encode()),
        Failure(Problem(code=DEADLINE, message=message, hint=hint, extra=(("x", next(spare)),))),
        NeedsInput(json.dumps({"x": next(spare)}).encode()),
    ]
    source = here.add("calc", "add", f"t-{in_name}", kind="mcp_stdio")
    source.on_submit = lambda call: call.finish(outcomes.pop(0))
    meta = {"traceparent": SAMPLED, "tracestate": f"a={secret}", "baggage": next(spare), "x/y": next(spare)}
    members = {"arguments": {next(spare): next(spare)}, "_meta": meta, next(spare): 1}
    for name in ("calc_add", "calc_add", "calc_add", "calc_add", f"calc.t-{in_name}", f"no_{secret}"):
        here.call(name, members, caller=caller)
    assert len(here.spans) == 6

    everything = "".join(here.kept.sent)
    assert [canary for canary in canaries if canary in everything] == []
    assert "tool.call.calc_t-***" in everything


async def test_callers_who_send_ever_new_names_do_not_fill_memory(rig: Callable[..., TracedRouterRig]) -> None:
    here = rig()
    for number in range(6000):
        here.call(f"nobody_{number}", caller=Caller(client=f"client_{number}"))
    held = " ".join(texts_held(here.tracer, here.kept, here.router, here.events))
    held += " ".join(texts_held(here.events.call_done, here.kept, here.router, here.ended))
    for name in ("nobody", "client"):
        assert len(set(re.findall(rf"\b{name}_\d+", held))) < 5000
