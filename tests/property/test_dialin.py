"""Any line from an app is accepted or refused with one of two errors, and accepted ones mean the same in any case."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.chunks import steady

from trunkline.protocol.app_messages import (
    AppProgress,
    AppResponse,
    BadLine,
    BadRegistration,
    Registration,
    invocation,
    parse_line,
)
from trunkline.protocol.framing import LineFramer, LineTooLong

TEXTS = st.text(alphabet=st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["type", "appName", "tools", "correlationId", "result", "progress", "message", "data", "token", "Type", "x"]
)
MESSAGES = st.dictionaries(NAMES, VALUES | st.sampled_from(["register", "toolResponse", "toolProgress"]), max_size=7)


def mixed(name: str, seed: int) -> str:
    chooser = random.Random(seed)
    return "".join(chooser.choice((character.lower(), character.upper())) for character in name)


@steady
@given(st.binary(max_size=300) | MESSAGES.map(lambda message: json.dumps(message).encode()))
@example(b'{"type":"toolResponse","correlationId":1,"result":{"success":true,"data":"\\ud800"}}')
@example(b'{"type":"toolResponse","correlationId":' + b"9" * 5000 + b',"result":{"success":true}}')
@example(b'{"type":"toolProgress","correlationId":1,"progress":1e999}')
def test_any_line_is_a_message_or_refused(line: bytes) -> None:
    try:
        message = parse_line(line)
    except (BadLine, BadRegistration):
        return
    if isinstance(message, AppResponse):
        json.loads(message.result.as_mcp())
    elif isinstance(message, AppProgress):
        assert "progress" in json.loads(message.as_mcp(1))
    elif isinstance(message, Registration):
        assert message.app_name.isprintable()


@steady
@given(VALUES, st.integers(1, 2**63 - 1), st.integers())
def test_a_response_says_the_same_in_any_case(data: Any, number: int, seed: int) -> None:
    result = {"success": True, "data": data, "error": None}
    plain = {"type": "toolResponse", "correlationId": number, "result": result}
    odd = {
        mixed("type", seed): "toolResponse",
        mixed("correlationId", seed): number,
        mixed("result", seed): {mixed(name, seed): value for name, value in result.items()},
    }
    one, other = (parse_line(json.dumps(message, ensure_ascii=seed % 2 == 0).encode()) for message in (plain, odd))
    assert isinstance(one, AppResponse) and isinstance(other, AppResponse)
    assert one.correlation_id == other.correlation_id == number
    assert one.result.as_mcp() == other.result.as_mcp()


@steady
@given(st.dictionaries(TEXTS, VALUES, max_size=4), st.data())
def test_an_invocation_carries_its_parameters_as_they_are_in_any_chunks(
    parameters: dict[str, Any], data: st.DataObject
) -> None:
    raw = json.dumps(parameters).encode()
    stream = invocation(3, b'"App:Tool"', raw) + b"\r\n\r\n"
    cut = data.draw(st.integers(0, len(stream)))
    framer = LineFramer(10 * len(stream))
    lines = [*framer.feed(stream[:cut]), *framer.feed(stream[cut:])]
    assert len(lines) == 1
    assert raw in lines[0]
    assert json.loads(lines[0])["parameters"] == parameters


@steady
@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 60))
def test_junk_in_any_chunks_never_hides_the_line_after_it(junk: list[bytes], step: int) -> None:
    good = b'{"type":"toolResponse","correlationId":1,"result":{"success":true,"data":"x"}}'
    stream = b"\n".join([*junk, b"", good, b""])
    framer = LineFramer(1000)
    found = 0
    for start in range(0, len(stream), step):
        try:
            lines = framer.feed(stream[start : start + step])
        except LineTooLong:
            return
        for line in lines:
            try:
                found += isinstance(parse_line(line), AppResponse)
            except (BadLine, BadRegistration):
                continue
    assert found == 1
