"""Our `plugin.v1` codec agrees with the real protobuf library, for any messages and any bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples
from tests.support.plugin_messages import REAL

from trunkline.sdk import plugin_v1 as ours
from trunkline.sdk.protobuf import MalformedProtobuf, bytes_field

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
MAPS = st.dictionaries(TEXT, st.binary(max_size=20), max_size=4)
INPUTS = st.builds(ours.OperationInput, TEXT, TEXT, st.booleans(), TEXT, TEXT, TEXT)
OUTPUTS = st.builds(ours.OperationOutput, TEXT, TEXT, TEXT)
OPERATIONS = st.builds(
    ours.Operation, TEXT, TEXT, st.lists(INPUTS, max_size=3).map(tuple), st.lists(OUTPUTS, max_size=2).map(tuple)
)
INFOS = st.builds(ours.PluginInfo, TEXT, TEXT, TEXT, st.lists(TEXT, max_size=3).map(tuple))
ENDS = st.builds(ours.OperationResult, st.booleans(), TEXT, MAPS, TEXT)


def info_of(message: Any) -> ours.PluginInfo:
    return ours.PluginInfo(message.name, message.version, message.description, tuple(message.capabilities))


def operation_of(message: Any) -> ours.Operation:
    inputs = [
        ours.OperationInput(item.name, item.type, item.required, item.default, item.description, item.validation)
        for item in message.inputs
    ]
    outputs = [ours.OperationOutput(item.name, item.type, item.description) for item in message.outputs]
    return ours.Operation(message.name, message.description, tuple(inputs), tuple(outputs))


def operations_of(message: Any) -> list[ours.Operation]:
    return [operation_of(item) for item in message.operations]


def executed_of(message: Any) -> ours.OperationResult:
    return ours.OperationResult(message.success, message.output, dict(message.data), message.error)


def execute_of(message: Any) -> tuple[str, dict[str, bytes]]:
    return message.operation, dict(message.inputs)


READERS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], Any]]] = {
    "GetInfoResponse": (ours.decode_info, info_of),
    "InitRequest": (ours.decode_init, lambda message: dict(message.config)),
    "ListOperationsResponse": (ours.decode_operations, operations_of),
    "GetOperationRequest": (ours.decode_get_operation, lambda message: message.name),
    "ExecuteRequest": (ours.decode_execute, execute_of),
    "ExecuteResponse": (ours.decode_executed, executed_of),
}


@given(INFOS)
def test_what_a_plugin_is_reads_the_same_on_both_sides(info: ours.PluginInfo) -> None:
    encoded = ours.encode_info(info)
    assert info_of(REAL["GetInfoResponse"].FromString(encoded)) == info == ours.decode_info(encoded)
    assert len(encoded) == REAL["GetInfoResponse"].FromString(encoded).ByteSize()


@given(st.lists(OPERATIONS, max_size=3))
def test_operations_read_the_same_on_both_sides(operations: list[ours.Operation]) -> None:
    encoded = ours.encode_operations(operations)
    message = REAL["ListOperationsResponse"].FromString(encoded)
    assert operations_of(message) == operations == ours.decode_operations(encoded)
    assert ours.decode_operations(message.SerializeToString()) == operations


@given(TEXT, MAPS)
def test_a_call_reads_the_same_on_both_sides(operation: str, inputs: dict[str, bytes]) -> None:
    encoded = ours.encode_execute(operation, inputs)
    message = REAL["ExecuteRequest"].FromString(encoded)
    assert execute_of(message) == (operation, inputs) == ours.decode_execute(encoded)
    assert ours.decode_execute(message.SerializeToString()) == (operation, inputs)
    assert dict(REAL["InitRequest"].FromString(ours.encode_init(inputs)).config) == inputs


@given(ENDS)
def test_an_answer_reads_the_same_on_both_sides(done: ours.OperationResult) -> None:
    encoded = ours.encode_executed(done)
    message = REAL["ExecuteResponse"].FromString(encoded)
    assert executed_of(message) == done == ours.decode_executed(encoded)
    assert ours.decode_executed(message.SerializeToString()) == done


@given(st.integers(0, 2**31 - 1))
def test_signs_of_life_read_the_same_on_both_sides(status: int) -> None:
    assert REAL["HealthCheckResponse"].FromString(ours.encode_health(status)).status == status
    assert ours.decode_health(REAL["HealthCheckResponse"](status=status).SerializeToString()) == status


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A message of some kind with a few bytes changed, cut or put in: most are still nearly right."""
    data = bytearray(
        draw(
            st.one_of(
                INFOS.map(ours.encode_info),
                st.lists(OPERATIONS, max_size=2).map(ours.encode_operations),
                ENDS.map(ours.encode_executed),
                st.binary(max_size=30),
            )
        )
    )
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
    return bytes(data)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=examples(100), deadline=None)
@given(data=damaged())
def test_any_bytes_are_read_as_the_real_library_reads_them_or_refused(name: str, data: bytes) -> None:
    read, plain = READERS[name]
    try:
        expected = plain(REAL[name].FromString(data))
    except DecodeError:
        with pytest.raises(MalformedProtobuf):
            read(data)
        return
    assert read(data) == expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x0a", "middle of a number"),
        (b"\x0a\x05abc", "middle of a field"),
        (b"\x0a\x01\xff", "not UTF-8"),
        (b"\x02\x00", "number 0"),
        (b"\x08" + b"\xff" * 11, "64 bits"),
        (b"\x0c", "a group ends"),
        (b"\x0b" * 60, "nested too deeply"),
        (b"\x0d\x00\x00", "middle of a field"),
        (b"\x0f", "no type"),
        (b"\x78\x01" * 250_001, "more than 250,000 fields"),
        (b"\x7b" + b"\x78\x01" * 250_000 + b"\x7c", "more than 250,000 fields"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, words: str) -> None:
    with pytest.raises(MalformedProtobuf, match=words):
        ours.decode_info(data)


@pytest.mark.parametrize("read", [ours.decode_operations, ours.decode_executed])
def test_fields_of_messages_within_a_message_count_too(read: Callable[[bytes], object]) -> None:
    inner = b"\x78\x01" * 1000
    within = b"".join(bytes_field(number, inner) for number in (1, 3)) * 130
    with pytest.raises(MalformedProtobuf, match="more than 250,000 fields"):
        read(within * 2)
