from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.protocol.mcp.param_headers import (
    BadAnnotation,
    HeaderParameter,
    check_param_headers,
    header_parameters_of,
    param_headers,
)


def tool(**properties: Any) -> bytes:
    return json.dumps({"name": "t", "inputSchema": {"type": "object", "properties": properties}}).encode()


def annotated(name: Any, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


def test_annotated_arguments_are_found_also_inside_others() -> None:
    inner = {"type": "object", "properties": {"deep": annotated("Deep", "integer"), "plain": {"type": "string"}}}
    definition = tool(region=annotated("Region"), flag=annotated("Method", "boolean"), inner=inner)
    assert set(header_parameters_of(definition)) == {
        HeaderParameter(("region",), b"mcp-param-region"),
        HeaderParameter(("flag",), b"mcp-param-method"),
        HeaderParameter(("inner", "deep"), b"mcp-param-deep"),
    }


@pytest.mark.parametrize(
    "definition",
    [
        b'{"name":"t"}',
        b'{"name":"t","inputSchema":true,"x-mcp-header":"X"}',
        b'{"name":"t","inputSchema":{"type":"object","default":{"x-mcp-header":"no"}}}',
        tool(**{"x-mcp-header": {"type": "string"}}),
        tool(a={"type": "string", "enum": [{"x-mcp-header": "A"}]}),
        tool(a={"type": "string", "const": {"x-mcp-header": ""}}),
        b"nonsense with x-mcp-header",
    ],
)
def test_what_only_looks_like_an_annotation_is_none(definition: bytes) -> None:
    assert header_parameters_of(definition) == ()


@pytest.mark.parametrize(
    "header", ["", "My Region", "Region:Primary", "R\u00e9gion", "Region\t1", "a\r\nb", 1, None, [], "x" * 300]
)
def test_what_is_no_name_of_a_header_is_refused(header: Any) -> None:
    with pytest.raises(BadAnnotation, match="not a valid header name"):
        header_parameters_of(tool(a=annotated(header)))


@pytest.mark.parametrize("kind", ["object", "array", "null", "number", None, ["string", "null"], "text"])
def test_only_strings_integers_and_booleans_are_mirrored(kind: Any) -> None:
    with pytest.raises(BadAnnotation):
        header_parameters_of(tool(a={"type": kind, "x-mcp-header": "A"} if kind else {"x-mcp-header": "A"}))


@pytest.mark.parametrize("second", ["Region", "REGION"])
def test_two_arguments_never_share_a_header(second: str) -> None:
    with pytest.raises(BadAnnotation, match="two arguments"):
        header_parameters_of(tool(a=annotated("Region"), b=annotated(second)))


@pytest.mark.parametrize(
    "schema",
    [
        annotated("X"),
        {"type": "array", "items": annotated("X")},
        {"type": "array", "prefixItems": [annotated("X")]},
        {"type": "array", "items": [annotated("X")]},
        {"anyOf": [annotated("X")]},
        {"oneOf": [{"properties": {"a": annotated("X")}}]},
        {"allOf": [{"properties": {"a": annotated("X")}}]},
        {"not": annotated("X")},
        {"if": annotated("X")},
        {"additionalProperties": annotated("X")},
        {"patternProperties": {"a": annotated("X")}},
        {"$defs": {"a": annotated("X")}},
        {"properties": {"a": {"items": {"properties": {"b": annotated("X")}}}}},
    ],
)
def test_an_annotation_where_no_single_argument_is_meant_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(BadAnnotation, match="does not belong to a single argument"):
        header_parameters_of(json.dumps({"name": "t", "inputSchema": schema}).encode())


def test_an_annotation_spelled_with_escapes_is_one_too() -> None:
    definition = tool(a=annotated("A")).replace(b"x-mcp-header", b"x\\u002dmcp-header")
    assert header_parameters_of(definition) == (HeaderParameter(("a",), b"mcp-param-a"),)


@pytest.mark.parametrize(
    ("value", "header"),
    [
        (b'"us-west1"', b"us-west1"),
        (b'""', b""),
        (b'"a b"', b"a b"),
        (b'" edge"', b"=?base64?IGVkZ2U=?="),
        (b'"\\t"', b"=?base64?CQ==?="),
        (b'"a\\r\\nX: 1"', b"=?base64?YQ0KWDogMQ==?="),
        (b'"\xc3\xa9"', b"=?base64?w6k=?="),
        (b'"=?base64?x?="', b"=?base64?PT9iYXNlNjQ/eD89?="),
        (b"true", b"true"),
        (b"false", b"false"),
        (b"42", b"42"),
        (b"-7", b"-7"),
        (b"42.0", b"42"),
        (b"1e3", b"1000"),
        (b"4.5", b"4.5"),
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        (b"1e9999", b"1e9999"),
    ],
)
def test_values_are_spelled_as_the_protocol_says_and_pass_the_check(value: bytes, header: bytes) -> None:
    header_parameters = (HeaderParameter(("a",), b"mcp-param-a"),)
    arguments = b'{"a":%b}' % value
    assert param_headers(header_parameters, arguments) == [(b"mcp-param-a", header)]
    assert check_param_headers({b"mcp-param-a": header}, header_parameters, arguments) is None


@pytest.mark.parametrize("arguments", [b"{}", b'{"a":null}', b'{"a":{}}', b'{"a":[1]}', b"null", b"[]", b'{"b":1}'])
def test_no_value_is_no_header(arguments: bytes) -> None:
    header_parameters = (HeaderParameter(("a",), b"mcp-param-a"),)
    assert param_headers(header_parameters, arguments) == []
    assert check_param_headers({}, header_parameters, arguments) is None
    assert check_param_headers({b"mcp-param-a": b"x"}, header_parameters, arguments) is not None


def test_a_value_inside_an_object_is_found() -> None:
    header_parameters = (HeaderParameter(("a", "b"), b"mcp-param-b"),)
    assert param_headers(header_parameters, b'{"a":{"b":"x"}}') == [(b"mcp-param-b", b"x")]
    assert param_headers(header_parameters, b'{"a":"b"}') == []


@pytest.mark.parametrize(
    ("value", "header", "agrees"),
    [
        ("Hello", b"=?base64?SGVsbG8=?=", True),
        ("Hello", b"=?base64?SGVsbG8?=", False),
        ("Hello", b"=?base64?SGVs!!!bG8=?=", False),
        ("SGVsbG8=", b"SGVsbG8=", True),
        ("=?base64?SGVsbG8=", b"=?base64?SGVsbG8=", True),
        ("Hello", b"  Hello ", True),
        ("Hello", b"hello", False),
        (42, b"42", True),
        (42, b"042", True),
        (42, b"42.0", True),
        (42, b"43", False),
        (42, b"x", False),
        (True, b"true", True),
        (True, b"True", False),
        (True, b"1", False),
    ],
)
def test_headers_are_compared_with_the_body(value: Any, header: bytes, agrees: bool) -> None:
    header_parameters = (HeaderParameter(("a",), b"mcp-param-a"),)
    problem = check_param_headers({b"mcp-param-a": header}, header_parameters, json.dumps({"a": value}).encode())
    assert (problem is None) == agrees


def test_a_header_that_is_missing_or_comes_twice_is_named() -> None:
    header_parameters = (HeaderParameter(("a",), b"mcp-param-a"),)
    assert check_param_headers({}, header_parameters, b'{"a":"x"}') == "Header `mcp-param-a` is missing"
    headers = {b"mcp-param-a": b"x"}
    twice = check_param_headers(headers, header_parameters, b'{"a":"x"}', repeated={b"mcp-param-a"})
    assert twice == "Header `mcp-param-a` appears more than once"
