from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.router.fakes import RouterRig, problem_of

from trunkline.core.call import Call, Caller, Result
from trunkline.core.errors import CAPABILITY_MISSING, UNKNOWN_METHOD, UNKNOWN_TASK
from trunkline.core.server_request import ServerRequest
from trunkline.router.rewriting import RELATED_TASK, TaskIds, TaskLocation

TASKS = "io.modelcontextprotocol/tasks"
MODERN = Caller("me", capabilities=json.dumps({"extensions": {TASKS: {}}}).encode(), version="2026-07-28")
LEGACY = Caller("me", session="s1", version="2025-11-25")


def result(value: dict[str, Any]) -> Result:
    raw = json.dumps(value).encode()
    return Result(memoryview(raw), raw)


def answer(call: Call) -> dict[str, Any]:
    assert isinstance(call.outcome, Result)
    return json.loads(bytes(call.outcome.raw))


def rig_with_tool(folder: Path) -> RouterRig:
    rig = RouterRig(folder, in_flight_per_source=10)
    rig.add("a", "t")
    return rig


def make_task(rig: RouterRig, caller: Caller = MODERN, own_id: str = "1") -> str:
    call = rig.call("a_t", {"arguments": {}}, caller=caller)
    call.finish(result({"resultType": "task", "taskId": own_id, "status": "working", "ttlMs": None}))
    made = answer(call)
    assert made["resultType"] == "task"
    return made["taskId"]


async def test_a_task_is_asked_of_the_server_that_made_it_under_its_own_id(tmp_path: Path) -> None:
    rig = rig_with_tool(tmp_path)
    rig.add("b", "t")
    task_id = make_task(rig)
    assert task_id != "1"
    call = rig.request("tasks/get", {"taskId": task_id, "x": 1, "_meta": {}}, caller=MODERN)
    assert rig.sources["a"].held[-1] is call
    assert json.loads(bytes(call.params)) == {"taskId": "1", "x": 1}
    call.finish(result({"resultType": "complete", "taskId": "1", "status": "completed", "result": {"content": []}}))
    assert answer(call)["taskId"] == task_id


@pytest.mark.law
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_an_id_of_somebody_else_or_of_nobody_is_unknown(tmp_path: Path, method: str) -> None:
    rig = rig_with_tool(tmp_path)
    task_id = make_task(rig)
    stranger = Caller("you", capabilities=MODERN.capabilities, version=MODERN.version)
    for caller, asked in ((stranger, task_id), (MODERN, task_id[:-2] + "AA"), (MODERN, "1"), (MODERN, "")):
        call = rig.request(method, {"taskId": asked}, caller=caller)
        assert problem_of(call).code is UNKNOWN_TASK
        assert problem_of(call).code.jsonrpc == -32602
    assert len(rig.sources["a"].held) == 1


async def test_a_task_of_a_server_that_was_removed_is_unknown(tmp_path: Path) -> None:
    rig = rig_with_tool(tmp_path)
    task_id = make_task(rig)
    rig.router.registry.remove("a")
    assert problem_of(rig.request("tasks/get", {"taskId": task_id}, caller=MODERN)).code is UNKNOWN_TASK


async def test_a_caller_that_did_not_declare_tasks_is_told_what_to_declare(tmp_path: Path) -> None:
    rig = rig_with_tool(tmp_path)
    call = rig.request("tasks/get", {"taskId": "1"}, caller=Caller("me", version="2026-07-28"))
    problem = problem_of(call)
    assert problem.code is CAPABILITY_MISSING
    assert problem.code.jsonrpc == -32021
    assert problem.data()["requiredCapabilities"] == {"extensions": {TASKS: {}}}


async def test_results_of_callers_that_cannot_have_tasks_are_not_touched(tmp_path: Path) -> None:
    rig = rig_with_tool(tmp_path)
    call = rig.call("a_t", caller=Caller("me", capabilities=b'{"sampling":{}}'))
    given = result({"content": [], "taskId": "1"})
    call.finish(given)
    assert call.outcome is given


async def test_tasks_of_2025_11_25_keep_their_shape(tmp_path: Path) -> None:
    rig = rig_with_tool(tmp_path)
    call = rig.call("a_t", {"arguments": {}, "task": {"ttl": 5}}, caller=LEGACY)
    assert json.loads(bytes(call.params))["task"] == {"ttl": 5}
    call.finish(result({"task": {"taskId": "1", "status": "working"}, "_meta": {RELATED_TASK: {"taskId": "1"}}}))
    made = answer(call)
    task_id = made["task"]["taskId"]
    assert task_id == made["_meta"][RELATED_TASK]["taskId"] != "1"
    outcome = rig.request("tasks/result", {"taskId": task_id}, caller=LEGACY)
    assert json.loads(bytes(outcome.params)) == {"taskId": "1"}
    outcome.finish(result({"content": [], "_meta": {"other": 1, RELATED_TASK: {"taskId": "1"}}}))
    assert answer(outcome) == {"content": [], "_meta": {"other": 1, RELATED_TASK: {"taskId": task_id}}}


@pytest.mark.law
async def test_an_id_of_one_session_is_unknown_in_another(tmp_path: Path) -> None:
    rig = rig_with_tool(tmp_path)
    call = rig.call("a_t", {"task": {}}, caller=LEGACY)
    call.finish(result({"task": {"taskId": "1"}}))
    other = Caller("me", session="s2", version="2025-11-25")
    asked = rig.request("tasks/get", {"taskId": answer(call)["task"]["taskId"]}, caller=other)
    assert problem_of(asked).code is UNKNOWN_TASK


@pytest.mark.parametrize("method, caller", [("tasks/list", LEGACY), ("tasks/update", LEGACY), ("tasks/result", MODERN)])
async def test_each_era_has_its_own_methods(tmp_path: Path, method: str, caller: Caller) -> None:
    rig = rig_with_tool(tmp_path)
    assert problem_of(rig.request(method, {"taskId": "1"}, caller=caller)).code is UNKNOWN_METHOD


async def test_what_a_server_says_and_asks_during_the_call_has_our_ids_too(tmp_path: Path) -> None:
    rig = rig_with_tool(tmp_path)
    heard: list[tuple[str, bytes]] = []
    asked: list[ServerRequest] = []
    raw = json.dumps({"progress": 1, "_meta": {RELATED_TASK: {"taskId": "1"}}}).encode()
    call = rig.router.call_tool(
        MODERN,
        "a_t",
        {},
        rig.replies.append,
        on_notification=lambda *on_notification: heard.append(on_notification),
        on_server_request=asked.append,
    )
    call.notify("notifications/progress", raw)
    assert call.on_server_request is not None
    call.on_server_request(ServerRequest("a", "elicitation/create", raw, lambda *_: None))
    expected = rig.router.task_ids.public_id(MODERN, TaskLocation("a", "1"))
    for params in (heard[0][1], asked[0].params):
        assert json.loads(bytes(params))["_meta"][RELATED_TASK]["taskId"] == expected


async def test_what_a_server_says_outside_calls_has_our_ids_too(tmp_path: Path) -> None:
    rig = rig_with_tool(tmp_path)

    class Listener:
        caller = LEGACY

        def __init__(self) -> None:
            self.heard: list[tuple[str, str, bytes]] = []
            self.asked: list[ServerRequest] = []

        def send_request(self, server_request: ServerRequest) -> None:
            self.asked.append(server_request)

        def send_notification(self, source: str, method: str, params: bytes) -> None:
            self.heard.append((source, method, params))

    listener = Listener()
    rig.router.clients.add("s1", listener)
    rig.sinks["a"].forward_notification("s1", "notifications/tasks/status", b'{"taskId":"1","status":"working"}')
    rig.sinks["a"].forward_notification("s1", "notifications/message", b'{"level":"info"}')
    expected = rig.router.task_ids.public_id(LEGACY, TaskLocation("a", "1"))
    [(_, _, status), message] = listener.heard
    assert json.loads(status) == {"taskId": expected, "status": "working"}
    assert message == ("a", "notifications/message", b'{"level":"info"}')


@pytest.mark.law
def test_ids_of_another_gateway_or_of_one_before_mean_nothing() -> None:
    assert TaskIds().locate(LEGACY, TaskIds().public_id(LEGACY, TaskLocation("a", "1"))) is None


@pytest.mark.parametrize("raw", [b'{"taskId":5}', b'{"tasks":{"taskId":1}}', b'["taskId"]', b'{"task":["taskId"]}'])
def test_what_cannot_be_read_stays_as_it_is(raw: bytes) -> None:
    assert TaskIds().rewrite(LEGACY, "a", raw) == raw


def test_a_list_of_tasks_has_our_ids() -> None:
    tasks = TaskIds()
    listed = json.loads(bytes(tasks.rewrite(LEGACY, "a", b'{"tasks":[{"taskId":"1"},{"x":2}]}')))
    assert listed == {"tasks": [{"taskId": tasks.public_id(LEGACY, TaskLocation("a", "1"))}, {"x": 2}]}
