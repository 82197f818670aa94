from __future__ import annotations

import json

import pytest

from trunkline.protocol.service import BadAnswer, Executed, execute_body, read_executed, read_tools


def test_arguments_are_spliced_in_as_they_were_written() -> None:
    body = execute_body('s"1', "é", "tool", b'{ "n": 1.50 }')
    assert body.endswith(b'"args":{ "n": 1.50 }}')
    assert json.loads(body) == {"serviceId": 's"1', "sessionId": "é", "tool": "tool", "args": {"n": 1.5}}


@pytest.mark.parametrize(
    ("body", "executed"),
    [
        (b'{"output":1.50}', Executed(b"1.50", None)),
        (b'{"output":null,"metadata":null}', Executed(b"null", None)),
        (b' {"metadata": {"a": [1]}, "output": {"x": 1} , "more": 1}', Executed(b'{"x": 1}', b'{"a": [1]}')),
    ],
)
def test_the_output_is_taken_out_as_it_was_written(body: bytes, executed: Executed) -> None:
    assert read_executed(body) == executed


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"output":}',
        b'{"output":NaN}',
        b'{"output":1,"output":2}',
        b'{"output":1,"metadata":[]}',
        b'{"output":1,"metadata":{"a":1,"a":2}}',
        b'{"output":"\xff"}',
        b'{"output":%b1%b}' % (b"[" * 50_000, b"]" * 50_000),
        b'{"output":1} x',
    ],
)
def test_what_is_no_result_is_refused(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_executed(body)


def test_tools_are_listed_bare_or_as_a_member() -> None:
    tools = b'[{"name":"a","description":"A","inputSchema":{"properties":{}},"title":"T"}]'
    expected = {"name": "a", "description": "A", "title": "T", "inputSchema": {"type": "object", "properties": {}}}
    for body in (tools, b'{"tools":%b}' % tools):
        listed = read_tools(body)
        assert [json.loads(definition) for definition in listed.definitions.values()] == [expected]
        assert listed.warnings == ()


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"tools":{}}', b"7", b"\xff", b"[" * 50_000])
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_tools(body)


def test_tools_that_cannot_be_used_are_named_and_the_others_stay() -> None:
    bad = [{}, {"name": ""}, {"name": "x" * 129}, {"name": "a\nb"}, 7, {"name": "s", "inputSchema": []}]
    bad += [{"name": "d", "description": 7}, {"name": "t", "inputSchema": {"type": "array"}}]
    listed = read_tools(json.dumps([*bad, {"name": "good"}, {"name": "good"}]).encode())
    assert list(listed.definitions) == ["good"]
    assert len(listed.warnings) == len(bad) + 1


def test_there_is_an_end_to_tools() -> None:
    listed = read_tools(json.dumps([{"name": f"t{n}"} for n in range(1200)]).encode())
    assert (len(listed.definitions), len(listed.warnings)) == (1000, 1)
