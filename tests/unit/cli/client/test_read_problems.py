from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.cli.client.gateway_client import input_schema, progress_line
from trunkline.cli.client.remote import read_http_problem, read_rpc_problem
from trunkline.core.errors import HOST_REFUSED, UNAUTHORIZED
from trunkline.core.tool import ToolDefinition


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"progressToken": 1, "progress": 3, "total": 10, "message": "copying"}, "3 of 10 copying"),
        ({"progressToken": 1, "progress": 0.5}, "0.5"),
        ({"progress": 3, "message": ""}, "3"),
        ({"message": "copying", "total": 10}, "copying"),
        ({"progress": "three", "message": 5}, ""),
        ({}, ""),
    ],
)
def test_progress_is_told_in_words(params: dict[str, Any], line: str) -> None:
    assert progress_line(json.dumps(params).encode()) == line


@pytest.mark.parametrize("params", [b"[]", b"{", b'{"progress":1e999}', b'{"a":' + b"[" * 100_000])
def test_progress_that_cannot_be_read_is_none(params: bytes) -> None:
    assert progress_line(params) == ""


def test_a_schema_is_read_as_far_as_it_is_one() -> None:
    def schema(definition: bytes) -> Any:
        return input_schema(ToolDefinition("", "x", definition))

    assert schema(b'{"name":"x","inputSchema":{"type":"object","n":1}}') == {"type": "object", "n": 1}
    for odd in (b"{}", b'{"inputSchema":[1]}', b'{"inputSchema":{"a":1e999}}', b"not json"):
        assert schema(odd) == {}


def test_a_problem_of_a_gateway_is_known_by_its_code() -> None:
    error = {"code": 421, "message": "Host `x` is not allowed", "data": {"code": "TL402", "hint": "allow it"}}
    problem = read_rpc_problem(json.dumps(error).encode())
    assert problem is not None
    assert (problem.code, problem.message, problem.hint) == (HOST_REFUSED, "Host `x` is not allowed", "allow it")
    page = read_http_problem(b'{"detail":"No valid token","code":"TL401"}')
    assert page is not None
    assert (page.code, page.message, page.hint) == (UNAUTHORIZED, "No valid token", "")


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"data":{"code":"E1"},"code":"E1"}', b'{"data":{"code":5}}'])
def test_anybody_elses_error_is_none_of_ours(raw: bytes) -> None:
    assert read_rpc_problem(raw) is None
    assert read_http_problem(raw) is None
