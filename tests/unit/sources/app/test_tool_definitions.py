"""An app's tools as MCP definitions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from trunkline.sources.app.tool_definitions import AppTools, read_tools


def app_tools(*tools: Any, app: str = "Watch Tower") -> AppTools:
    raw = [Raw(tool if isinstance(tool, bytes) else json.dumps(tool).encode()) for tool in tools]
    return read_tools("Watch_Tower", app, raw)


def only(made: AppTools) -> dict[str, Any]:
    (tool,) = made.tools
    assert made.warnings == ()
    return json.loads(tool.definition)


def test_the_apps_own_name_is_taken_off_and_stays_a_spelling() -> None:
    made = app_tools({"name": "Watch Tower:Click", "description": "Clicks", "inputSchema": {"type": "object"}})
    (tool,) = made.tools
    assert (tool.source, tool.name, tool.aliases) == ("Watch_Tower", "Click", ("Watch Tower:Click",))
    assert json.loads(tool.definition) == {
        "name": "Click",
        "description": "Clicks",
        "inputSchema": {"type": "object"},
    }
    assert made.wire_names == {"Click": b'"Watch Tower:Click"'}


@pytest.mark.parametrize(
    ("registered", "name"),
    [("plain", "plain"), ("Other:Click", "Other:Click"), ("watch tower:Click", "Click"), ("Watch Tower:a:b", "a:b")],
)
def test_only_the_apps_own_name_is_taken_off(registered: str, name: str) -> None:
    made = app_tools({"name": registered})
    assert [tool.name for tool in made.tools] == [name]
    assert made.tools[0].aliases == (() if registered == name else (registered,))
    assert json.loads(made.wire_names[name]) == registered


def test_names_of_members_may_be_in_any_case() -> None:
    definition = only(app_tools({"Name": "x", "Description": "D", "InputSchema": {"type": "object", "Keep": 1}}))
    assert definition == {"name": "x", "description": "D", "inputSchema": {"type": "object", "Keep": 1}}


def test_what_is_missing_is_filled_in() -> None:
    assert only(app_tools({"name": "x", "description": None, "inputSchema": None})) == {
        "name": "x",
        "description": "",
        "inputSchema": {"type": "object"},
    }
    schema = only(app_tools({"name": "x", "inputSchema": {"properties": {"a": {}}}}))["inputSchema"]
    assert schema == {"type": "object", "properties": {"a": {}}}


def test_what_mcp_knows_besides_is_passed_on_and_nothing_else() -> None:
    more = {"title": "T", "annotations": {"readOnlyHint": True}, "outputSchema": {"type": "object"}}
    definition = only(app_tools({"name": "x", **more, "secret": 1, "_meta": {}}))
    assert {name: definition[name] for name in more} == more
    assert set(definition) == {"name", "description", "inputSchema", *more}


def test_a_schema_stays_as_it_was_written() -> None:
    schema = b'{"type":"object","properties":{"n":{"maximum":12345678901234567890123,"default":1.10}}}'
    made = app_tools(b'{"name":"x","inputSchema":%b}' % schema)
    assert schema in made.tools[0].definition


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"name": ""},
        {"name": 5},
        {"name": "x" * 129},
        {"name": "a\nb"},
        {"name": "Watch Tower:"},
        {"name": "good"},
        {"name": "Watch Tower:good"},
        {"name": "y", "description": 5},
        {"name": "y", "inputSchema": []},
        {"name": "y", "inputSchema": {"type": "string"}},
        {"name": "y", "annotations": "no"},
        {"name": "y", "annotations": {"title": 5}},
        {"name": "y", "annotations": {"readOnlyHint": "yes"}},
        {"name": "y", "outputSchema": {"type": "array"}},
        {"name": "y", "inputSchema": {"type": "object", "properties": 5}},
        {"name": "y", "inputSchema": {"type": "object", "properties": {"x": 5}}},
        {"name": "y", "inputSchema": {"Type": "object", "Required": "x"}},
        b'{"name":"y","inputSchema":%b{"Type":"object"}%b}'
        % (b'{"Type":"object","Properties":{"a":' * 490, b"}}" * 490),
        b'{"name":"y","Name":"z"}',
        b'{"name":"y","name":"z"}',
        b'{"name":"y","inputSchema":{"type":"object","type":"object"}}',
        b'"text"',
        b"null",
    ],
)
def test_a_bad_tool_is_left_out_with_a_warning_and_the_good_one_stays(bad: Any) -> None:
    made = app_tools({"name": "good"}, bad)
    assert [tool.name for tool in made.tools] == ["good"]
    (warning,) = made.warnings
    assert warning.startswith("TL211: a tool is left out: ")


def test_what_a_program_writes_for_nothing_is_left_out() -> None:
    null = {"required": None, "properties": {"x": {"type": "string", "default": None}}}
    made = app_tools(
        {"name": "a", "inputSchema": {"type": "object", **null}, "annotations": {"title": None, "readOnlyHint": True}},
        {"name": "b", "inputSchema": {"Type": "object", "Required": None, "Properties": {"X": {"Enum": None}}}},
    )
    assert made.warnings == ()
    first, second = (json.loads(tool.definition) for tool in made.tools)
    assert first["inputSchema"] == {"type": "object", "properties": {"x": {"type": "string", "default": None}}}
    assert first["annotations"] == {"readOnlyHint": True}
    assert second["inputSchema"] == {"type": "object", "properties": {"X": {}}}


def test_there_are_a_thousand_tools_at_most_and_a_handful_of_warnings() -> None:
    made = app_tools(*[{"name": f"t{number}"} for number in range(1003)])
    assert len(made.tools) == 1000
    assert made.warnings == ("TL211: only the first 1000 of 1003 tools are offered",)
    made = app_tools(*[{} for _ in range(100)])
    assert len(made.warnings) == 21
    assert made.warnings[-1] == "80 more warnings like these"
