from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trunkline.protocol.mcp.param_headers import (
    HeaderParameter,
    check_param_headers,
    header_parameters_of,
    param_headers,
)

ANNOTATED = {"string": st.text(), "integer": st.integers(), "boolean": st.booleans()}
TOKENS = st.text("abcXYZ019-_.!", min_size=1, max_size=12)


@st.composite
def calls(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A tool with annotated arguments, some inside others, and a call of it."""
    tokens = draw(st.lists(TOKENS, unique_by=str.lower, max_size=6))
    properties: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for number, token in enumerate(tokens):
        kind = draw(st.sampled_from(sorted(ANNOTATED)))
        value = draw(st.none() | ANNOTATED[kind])
        schema: dict[str, Any] = {"type": kind, "x-mcp-header": token}
        if draw(st.booleans()):
            schema, value = {"type": "object", "properties": {"in": schema}}, {"in": value}
        properties[f"a{number}"] = schema
        if draw(st.booleans()):
            arguments[f"a{number}"] = value
    definition = {"name": "t", "inputSchema": {"type": "object", "properties": properties}}
    return json.dumps(definition).encode(), json.dumps(arguments).encode()


@given(calls())
def test_our_own_headers_always_pass_our_own_check_and_are_safe_on_the_wire(call: tuple[bytes, bytes]) -> None:
    definition, arguments = call
    header_parameters = header_parameters_of(definition)
    headers = param_headers(header_parameters, arguments)
    for name, value in headers:
        assert name.startswith(b"mcp-param-")
        assert all(0x20 <= byte <= 0x7E for byte in value)
        assert value == value.strip()
    assert check_param_headers(dict(headers), header_parameters, arguments) is None


@given(calls(), st.data())
def test_a_header_taken_away_is_noticed(call: tuple[bytes, bytes], data: st.DataObject) -> None:
    definition, arguments = call
    header_parameters = header_parameters_of(definition)
    headers = dict(param_headers(header_parameters, arguments))
    if headers:
        del headers[data.draw(st.sampled_from(sorted(headers)))]
        assert check_param_headers(headers, header_parameters, arguments) is not None


@given(
    st.binary(max_size=60), st.recursive(st.none() | st.text() | st.integers(), lambda x: st.dictionaries(st.text(), x))
)
def test_any_header_and_any_argument_are_compared_without_an_error(header: bytes, value: Any) -> None:
    arguments = json.dumps({"a": value}).encode()
    check_param_headers({b"mcp-param-a": header}, (HeaderParameter(("a",), b"mcp-param-a"),), arguments)
