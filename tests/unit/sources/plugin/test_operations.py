"""Operations become tools, or a warning says why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.sdk.plugin_v1 import Operation, OperationInput, OperationOutput
from trunkline.sources.plugin import operations
from trunkline.sources.plugin.operations import UnusableOperation, definition_of, tools_of


def schema_of(*inputs: OperationInput) -> dict[str, Any]:
    return json.loads(definition_of(Operation("op", "", inputs)))["inputSchema"]


def test_a_whole_operation_is_a_tool() -> None:
    operation = Operation(
        "get",
        "Get things",
        (
            OperationInput("kind", "string", True, "", "What to get"),
            OperationInput("page", "string", False, "https://x.example", "", "url"),
            OperationInput("mail", "string", validation="email"),
        ),
    )
    assert json.loads(definition_of(operation)) == {
        "name": "get",
        "description": "Get things",
        "inputSchema": {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "description": "What to get"},
                "page": {"type": "string", "format": "uri", "default": "https://x.example"},
                "mail": {"type": "string", "format": "email"},
            },
            "required": ["kind"],
        },
    }


def test_one_without_inputs_takes_an_object() -> None:
    assert json.loads(definition_of(Operation("bare"))) == {
        "name": "bare",
        "inputSchema": {"type": "object", "properties": {}},
    }


@pytest.mark.parametrize(
    ("kind", "written", "default"),
    [
        ("string", "7", "7"),
        ("string", 'a "quote"\n', 'a "quote"\n'),
        ("integer", "-12", -12),
        ("integer", "0", 0),
        ("number", "1.50", 1.5),
        ("number", "3", 3),
        ("number", "-2e3", -2000.0),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("array", '[1, "two",\n null]', [1, "two", None]),
        ("object", '{"a": {"b": []}}', {"a": {"b": []}}),
    ],
)
def test_defaults_are_of_the_declared_type(kind: str, written: str, default: object) -> None:
    schema = schema_of(OperationInput("x", kind, default=written))
    assert schema["properties"]["x"] == {"type": kind, "default": default}
    assert b"\n" not in definition_of(Operation("op", "", (OperationInput("x", kind, default=written),)))


def test_a_default_keeps_its_digits() -> None:
    assert b'"default":1.50}' in definition_of(Operation("op", "", (OperationInput("x", "number", default="1.50"),)))


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (OperationInput("x", "text"), "`x` has the unknown type `text`"),
        (OperationInput("x", ""), "`x` has the unknown type ``"),
        (OperationInput("x", "String"), "unknown type"),
        (OperationInput("x", "string", validation="phone"), "unknown validation `phone`"),
        (OperationInput("x", "integer", validation="url"), "no `url` can be"),
        (OperationInput("x", "integer", default="1.5"), "is not a valid integer: `1.5`"),
        (OperationInput("x", "integer", default="٣"), "is not a valid integer"),
        (OperationInput("x", "integer", default="007"), "is not a valid integer"),
        (OperationInput("x", "integer", default="9" * 5000), "is not a valid integer"),
        (OperationInput("x", "number", default="NaN"), "is not a valid number"),
        (OperationInput("x", "number", default="1,5"), "is not a valid number"),
        (OperationInput("x", "number", default="1e999"), "is not a valid number"),
        (OperationInput("x", "boolean", default="yes"), "is not a valid boolean"),
        (OperationInput("x", "array", default="{}"), "is not a valid array"),
        (OperationInput("x", "object", default="[1"), "is not a valid object"),
        (OperationInput("x", "array", default="[" * 100_000), "is not a valid array"),
        (OperationInput("x", "array", default="[" * 900 + "]" * 900), "is not a valid array"),
        (OperationInput("", "string"), "has no name"),
    ],
)
def test_what_cannot_be_mapped_is_an_error(item: OperationInput, words: str) -> None:
    with pytest.raises(UnusableOperation, match=words):
        schema_of(item)


def test_two_inputs_of_one_name_are_an_error() -> None:
    with pytest.raises(UnusableOperation, match="two of its inputs have the name `x`"):
        schema_of(OperationInput("x", "string"), OperationInput("x", "integer"))


def test_outputs_are_told_in_words_and_promise_nothing() -> None:
    operation = Operation(
        "op",
        "Does it.",
        (),
        (OperationOutput("text", "string", "The text"), OperationOutput("more", ""), OperationOutput("n", "integer")),
    )
    definition = json.loads(definition_of(operation))
    assert definition["description"] == "Does it.\n\nReturns:\n- text (string): The text\n- more\n- n (integer)"
    assert "outputSchema" not in definition


def test_bad_operations_are_left_out_and_named_and_the_others_stay() -> None:
    offered = [
        Operation("good"),
        Operation(""),
        Operation("bad", "", (OperationInput("x", "date"),)),
        Operation("good", "again"),
        Operation("also good"),
    ]
    tools, faults = tools_of("p", offered)
    assert [tool.name for tool in tools] == ["good", "also good"]
    assert faults == (
        "TL211: the operation `` is not offered: it has no name",
        "TL211: the operation `bad` is not offered: its input `x` has the unknown type `date` "
        "(known: string, integer, number, boolean, array, object)",
        "TL211: the operation `good` is not offered: another operation before it has this name",
    )


def test_many_bad_operations_do_not_flood_the_log() -> None:
    _, faults = tools_of("p", [Operation("")] * 1000)
    assert len(faults) == 21
    assert faults[-1] == "TL211: … and 980 more operations are not offered"


def test_more_operations_than_one_list_may_hold_are_cut_and_reported_as_a_servers_tools_are() -> None:
    tools, faults = tools_of("p", [Operation(f"op{number}") for number in range(20_016)])
    assert [tools[0].name, tools[-1].name, len(tools)] == ["op0", "op19999", 20_000]
    (fault,) = faults
    assert fault.startswith("TL211: its `ListOperations` was cut after 20,000 operations: 20,000 entries are the limit")


def test_operations_that_are_larger_together_than_one_list_may_be_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_BYTES", 5_000)
    tools, faults = tools_of("p", [Operation(f"op{number}", "x" * 2_000) for number in range(20)])
    assert [tool.name for tool in tools] == ["op0", "op1", "op2"]
    assert "after 3 operations: 5,000 bytes are the limit" in faults[0]


@pytest.mark.parametrize(
    "large",
    [
        Operation("large", "x" * 3_000_000),
        Operation("large", "", (OperationInput("x", "string", description="x" * 3_000_000),)),
        Operation("large", "", tuple(OperationInput(f"input{number}", "string") for number in range(20_000))),
        Operation("x" * 3_000_000),
    ],
    ids=["description", "input", "inputs", "name"],
)
def test_an_operation_that_no_model_could_be_shown_is_not_offered(large: Operation) -> None:
    tools, faults = tools_of("p", [large, Operation("other", "x" * 60_000)])
    assert [tool.name for tool in tools] == ["other"]
    (fault,) = faults
    assert fault.startswith(f"TL211: the operation `{large.name[:100]}` is not offered: its definition is ")
    assert len(fault) < 500


def test_what_is_said_of_an_input_with_an_endless_name_is_short() -> None:
    _, (fault,) = tools_of("p", [Operation("op", "", (OperationInput("x" * 100_000, "date"),))])
    assert len(fault) < 500
