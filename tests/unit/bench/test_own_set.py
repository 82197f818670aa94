"""The search set that ships with the benchmark: well formed, without doubles, and as large as its README says."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

OWN_SET = Path(__file__).resolve().parents[3] / "bench" / "discovery" / "own_set"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (OWN_SET / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def tools() -> list[dict[str, Any]]:
    return rows("tools.jsonl")


@pytest.fixture(scope="module")
def queries() -> list[dict[str, Any]]:
    return rows("queries.jsonl")


def doubles(values: list[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def plain(query: str) -> str:
    """A request without case, punctuation and spacing: two which differ in these only are one."""
    return " ".join(re.findall(r"\w+", query.lower()))


def test_the_set_is_as_large_as_its_readme_says(tools, queries):
    splits = Counter(query["split"] for query in queries)
    two_tools = sum(len(query["gold"]) == 2 for query in queries)
    equivalent = sum(any(len(group) > 1 for group in query["gold"]) for query in queries)
    readme = (OWN_SET / "README.md").read_text(encoding="utf-8")
    assert f"{len(tools)} tools of {len({tool['server'] for tool in tools})} servers" in readme
    assert f"{len(queries)} requests ({splits['dev']} `dev`, {splits['test']} `test`)" in readme
    assert f"{two_tools} need two tools" in readme
    assert f"{equivalent} can be met by more than one" in readme


def test_every_tool_has_the_fields_of_a_tool(tools):
    for tool in tools:
        assert set(tool) == {"id", "server", "server_desc", "name", "description", "schema"}, tool
        assert tool["id"] == f"{tool['server']}.{tool['name']}"
        assert tool["server_desc"] and tool["description"], tool["id"]
    assert doubles([tool["id"] for tool in tools]) == []


def test_a_server_describes_itself_in_one_way(tools):
    descriptions = {(tool["server"], tool["server_desc"]) for tool in tools}
    assert doubles([server for server, _ in descriptions]) == []


def test_every_tool_takes_what_a_valid_schema_describes(tools):
    for tool in tools:
        schema = tool["schema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object", tool["id"]
        assert set(schema.get("required", [])) <= set(schema["properties"]), tool["id"]


def test_every_default_is_a_value_its_schema_allows(tools):
    for tool in tools:
        for name, described in tool["schema"]["properties"].items():
            if "default" in described:
                assert jsonschema.Draft202012Validator(described).is_valid(described["default"]), (tool["id"], name)


def test_every_request_has_the_fields_of_a_request(queries):
    for query in queries:
        assert set(query) == {"id", "query", "gold", "split"}, query
        assert query["split"] in {"dev", "test"}, query
        assert plain(query["query"]) and query["query"] == query["query"].strip(), query
        assert query["gold"] and all(query["gold"]), query


def test_no_request_occurs_twice(queries):
    assert doubles([query["id"] for query in queries]) == []
    assert doubles([plain(query["query"]) for query in queries]) == []


def test_what_a_request_needs_exists_and_is_named_once(tools, queries):
    known = {tool["id"] for tool in tools}
    for query in queries:
        named = [tool_id for group in query["gold"] for tool_id in group]
        assert set(named) <= known, query
        assert doubles(named) == [], query


def test_every_tool_is_asked_for_somewhere(tools, queries):
    asked = {tool_id for query in queries for group in query["gold"] for tool_id in group}
    assert [tool["id"] for tool in tools if tool["id"] not in asked] == []
