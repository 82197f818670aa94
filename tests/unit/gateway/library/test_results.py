"""Tools and results as Python data, and errors with what a program needs to decide what to do."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from trunkline import CallError, ConfigurationError, ServerError, TrunklineError
from trunkline.core.call import Call, Caller, Failure, NeedsInput, RemoteError, Result
from trunkline.core.errors import SOURCE_DOWN, Problem
from trunkline.core.tool import ToolDefinition as Defined
from trunkline.gateway.library.results import Progress, read_progress, result_of, tool_of
from trunkline.router.catalog import ToolEntry


def ended(outcome) -> Call:
    call = Call("tools/call", b"{}", lambda _: None, caller=Caller(), reply=lambda _: None)
    call.source, call.tool = "s", "t"
    call.finish(outcome)
    return call


def test_a_result_is_read_and_kept_as_it_was() -> None:
    raw = json.dumps(
        {
            "content": [{"type": "text", "text": "a"}, {"type": "image", "data": ""}, {"type": "text", "text": "b"}],
            "structuredContent": {"x": 1},
            "_meta": {"k": 1},
        }
    ).encode()
    result = result_of(ended(Result(memoryview(raw))))
    assert result.text == "a\nb"
    assert (result.structured, result.is_error, result.meta, result.raw) == ({"x": 1}, False, {"k": 1}, raw)
    assert len(result.content) == 3


@pytest.mark.parametrize(
    "raw", [b"{}", b'{"content":3}', b'{"content":[1,null]}', b'{"isError":"yes","_meta":[]}', b'{"content":null}']
)
def test_a_result_with_nonsense_in_it_is_an_empty_one(raw: bytes) -> None:
    result = result_of(ended(Result(raw)))
    assert (result.content, result.text, result.is_error, result.meta) == ([], "", False, {})


@pytest.mark.parametrize("raw", [b"[]", b"nonsense", b'{"a":' * 100_000, b'{"a":"\xff"}'])
def test_a_result_that_cannot_be_read_is_an_error_of_its_server(raw: bytes) -> None:
    with pytest.raises(CallError) as failed:
        result_of(ended(Result(raw)))
    assert (failed.value.code, failed.value.executed, failed.value.server) == ("TL307", "unknown", "s")


def test_a_failure_on_our_side_keeps_its_code_and_what_it_says() -> None:
    problem = Problem(code=SOURCE_DOWN, message="Server s is down", hint="wait", source="s", tool="t", retryable=True)
    with pytest.raises(TrunklineError) as failed:
        result_of(ended(Failure(problem)))
    error = failed.value
    assert isinstance(error, CallError)
    assert (error.code, error.message, error.hint) == ("TL201", "Server s is down", "wait")
    assert (error.server, error.tool, error.executed, error.retryable) == ("s", "t", "no", True)


def test_an_error_of_the_server_keeps_its_number_and_data() -> None:
    with pytest.raises(ServerError) as failed:
        result_of(ended(RemoteError(b'{"code":-32050,"message":"no","data":{"why":1}}')))
    error = failed.value
    assert (error.rpc_code, error.message, error.data, error.server) == (-32050, "no", {"why": 1}, "s")
    assert (error.code, error.executed) == ("", "unknown")
    with pytest.raises(ServerError):
        result_of(ended(RemoteError(b"nonsense")))


def test_a_tool_that_asks_its_client_gets_no_answer() -> None:
    with pytest.raises(CallError) as failed:
        result_of(ended(NeedsInput(b"{}")))
    assert failed.value.code == "TL314"


def entry_of(definition: bytes, *, exposed: str | None) -> ToolEntry:
    entry = ToolEntry("s", "t", (), Defined("s", "t", definition), b"")
    entry.exposed = exposed
    return entry


def test_a_tool_has_what_its_server_said() -> None:
    definition = {
        "name": "t",
        "description": "does",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"title": "T", "readOnlyHint": True},
        "x-more": 1,
    }
    tool = tool_of(entry_of(json.dumps(definition).encode(), exposed="s_t"))
    assert (tool.name, tool.address, tool.server, tool.title) == ("s_t", "s.t", "s", "T")
    assert (tool.description, tool.input_schema, tool.output_schema) == ("does", {"type": "object"}, {"type": "object"})
    assert tool.annotations["readOnlyHint"] is True
    assert tool.definition == definition


def test_a_tool_without_a_name_of_its_own_is_called_by_its_address() -> None:
    tool = tool_of(entry_of(b'{"description":3,"inputSchema":[]}', exposed=None))
    assert (tool.name, tool.description, tool.input_schema, tool.output_schema) == ("s.t", "", {}, None)


def test_progress_is_read_where_it_can_be() -> None:
    assert read_progress(b'{"progress":1,"total":4,"message":"m"}') == Progress(1, 4, "m")
    assert read_progress(b'{"progress":0.5,"total":"x","message":3}') == Progress(0.5)
    assert read_progress(b'{"progress":"x"}') is None
    assert read_progress(b"[]") is None


@pytest.mark.parametrize("travel", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_may_travel_to_other_processes(travel) -> None:
    problem = Problem(code=SOURCE_DOWN, message="Server s is down", source="s", tool="t", hint="wait")
    for error in (CallError(problem), ServerError("s", "t", -32050, "no", {"why": [1]}), ConfigurationError([problem])):
        same = travel(error)
        assert (type(same), str(same), same.__dict__) == (type(error), str(error), error.__dict__)
