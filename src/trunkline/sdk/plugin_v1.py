"""The messages of `plugin.v1`, and of the small services that go-plugin puts beside it: bytes to values and back.

Both ends are here, the host's and the plugin's. Every value in a map is one JSON value, as raw bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .protobuf import (
    BYTES,
    VARINT,
    FieldBudget,
    bytes_field,
    fields,
    map_entry,
    map_field,
    number_field,
    text,
    text_field,
)

PLUGIN_SERVICE: Final = "plugin.v1.PluginService"
OPERATION_SERVICE: Final = "plugin.v1.OperationService"
HEALTH_SERVICE: Final = "grpc.health.v1.Health"
STDIO_SERVICE: Final = "plugin.GRPCStdio"
CONTROLLER_SERVICE: Final = "plugin.GRPCController"

GET_INFO: Final = f"/{PLUGIN_SERVICE}/GetInfo"
INIT: Final = f"/{PLUGIN_SERVICE}/Init"
SHUTDOWN: Final = f"/{PLUGIN_SERVICE}/Shutdown"
LIST_OPERATIONS: Final = f"/{OPERATION_SERVICE}/ListOperations"
EXECUTE: Final = f"/{OPERATION_SERVICE}/Execute"
HEALTH_CHECK: Final = f"/{HEALTH_SERVICE}/Check"
STREAM_STDIO: Final = f"/{STDIO_SERVICE}/StreamStdio"
CONTROLLER_SHUTDOWN: Final = f"/{CONTROLLER_SERVICE}/Shutdown"

COOKIE_NAME: Final = "AWF_PLUGIN"
COOKIE: Final = "awf-plugin-v1"
CORE_VERSION: Final = 1
PROTOCOL_VERSION: Final = 1
HEALTH_NAME: Final = "plugin"
SERVING: Final = 1
STDERR: Final = 2
EMPTY: Final = b""


@dataclass(frozen=True, slots=True)
class PluginInfo:
    name: str = ""
    version: str = ""
    description: str = ""
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperationInput:
    """`default` is text, whatever the type; empty where there is none."""

    name: str = ""
    type: str = ""
    required: bool = False
    default: str = ""
    description: str = ""
    validation: str = ""


@dataclass(frozen=True, slots=True)
class OperationOutput:
    name: str = ""
    type: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    name: str = ""
    description: str = ""
    inputs: tuple[OperationInput, ...] = ()
    outputs: tuple[OperationOutput, ...] = ()


@dataclass(slots=True)
class OperationResult:
    """How an operation ended."""

    success: bool = False
    output: str = ""
    data: dict[str, bytes] = field(default_factory=dict[str, bytes])
    error: str = ""


# -- what a plugin is ------------------------------------------------------------------------------------------------


def encode_info(info: PluginInfo) -> bytes:
    head = text_field(1, info.name) + text_field(2, info.version) + text_field(3, info.description)
    return head + b"".join([bytes_field(4, word.encode()) for word in info.capabilities])


def decode_info(data: bytes) -> PluginInfo:
    texts = {1: "", 2: "", 3: ""}
    capabilities: list[str] = []
    for number, kind, value in fields(data):
        if kind == BYTES and number == 4:
            capabilities.append(text(value))
        elif kind == BYTES and number in texts:
            texts[number] = text(value)
    return PluginInfo(texts[1], texts[2], texts[3], tuple(capabilities))


def encode_init(config: Mapping[str, bytes]) -> bytes:
    return map_field(1, config)


def decode_init(data: bytes) -> dict[str, bytes]:
    config: dict[str, bytes] = {}
    budget = FieldBudget()
    for number, kind, value in fields(data, budget):
        if kind == BYTES and number == 1:
            config |= map_entry(value, budget)
    return config


# -- what it can do --------------------------------------------------------------------------------------------------


def encode_operations(operations: Sequence[Operation]) -> bytes:
    return b"".join([bytes_field(1, encode_operation(operation)) for operation in operations])


def decode_operations(data: bytes) -> list[Operation]:
    budget = FieldBudget()
    return [_operation(value, budget) for number, kind, value in fields(data, budget) if kind == BYTES and number == 1]


def encode_operation(operation: Operation) -> bytes:
    head = text_field(1, operation.name) + text_field(2, operation.description)
    inputs = b"".join([bytes_field(3, _encode_input(item)) for item in operation.inputs])
    return head + inputs + b"".join([bytes_field(4, _encode_output(item)) for item in operation.outputs])


def _operation(data: int | bytes, budget: FieldBudget) -> Operation:
    assert isinstance(data, bytes)
    texts = {1: "", 2: ""}
    inputs: list[OperationInput] = []
    outputs: list[OperationOutput] = []
    for number, kind, value in fields(data, budget):
        if kind != BYTES:
            continue
        if number in texts:
            texts[number] = text(value)
        elif number == 3:
            inputs.append(_input(value, budget))
        elif number == 4:
            outputs.append(_output(value, budget))
    return Operation(texts[1], texts[2], tuple(inputs), tuple(outputs))


def _encode_input(item: OperationInput) -> bytes:
    return b"".join(
        (
            text_field(1, item.name),
            text_field(2, item.type),
            number_field(3, item.required),
            text_field(4, item.default),
            text_field(5, item.description),
            text_field(6, item.validation),
        )
    )


def _input(data: int | bytes, budget: FieldBudget) -> OperationInput:
    assert isinstance(data, bytes)
    texts = {1: "", 2: "", 4: "", 5: "", 6: ""}
    required = False
    for number, kind, value in fields(data, budget):
        if kind == VARINT and number == 3:
            required = bool(value)
        elif kind == BYTES and number in texts:
            texts[number] = text(value)
    return OperationInput(texts[1], texts[2], required, texts[4], texts[5], texts[6])


def _encode_output(item: OperationOutput) -> bytes:
    return text_field(1, item.name) + text_field(2, item.type) + text_field(3, item.description)


def _output(data: int | bytes, budget: FieldBudget) -> OperationOutput:
    assert isinstance(data, bytes)
    texts = {1: "", 2: "", 3: ""}
    for number, kind, value in fields(data, budget):
        if kind == BYTES and number in texts:
            texts[number] = text(value)
    return OperationOutput(texts[1], texts[2], texts[3])


def decode_get_operation(data: bytes) -> str:
    name = ""
    for number, kind, value in fields(data):
        if kind == BYTES and number == 1:
            name = text(value)
    return name


def encode_got_operation(operation: Operation) -> bytes:
    return bytes_field(1, encode_operation(operation))


# -- having it done --------------------------------------------------------------------------------------------------


def encode_execute(operation: str, inputs: Mapping[str, bytes]) -> bytes:
    return text_field(1, operation) + map_field(2, inputs)


def decode_execute(data: bytes) -> tuple[str, dict[str, bytes]]:
    operation = ""
    inputs: dict[str, bytes] = {}
    budget = FieldBudget()
    for number, kind, value in fields(data, budget):
        if kind == BYTES and number == 1:
            operation = text(value)
        elif kind == BYTES and number == 2:
            inputs |= map_entry(value, budget)
    return operation, inputs


def encode_executed(done: OperationResult) -> bytes:
    head = number_field(1, done.success) + text_field(2, done.output)
    return head + map_field(3, done.data) + text_field(4, done.error)


def decode_executed(data: bytes) -> OperationResult:
    done = OperationResult()
    budget = FieldBudget()
    for number, kind, value in fields(data, budget):
        if kind == VARINT:
            if number == 1:
                done.success = bool(value)
        elif number == 2:
            done.output = text(value)
        elif number == 3:
            done.data |= map_entry(value, budget)
        elif number == 4:
            done.error = text(value)
    return done


# -- signs of life, and what it prints -------------------------------------------------------------------------------


def encode_health_request(service: str) -> bytes:
    return text_field(1, service)


decode_health_request: Final = decode_get_operation
"""Both hold one name."""


def encode_health(status: int) -> bytes:
    return number_field(1, status)


def decode_health(data: bytes) -> int:
    """1 is `SERVING`; 0, 2 and 3 say that it is not, and why."""
    status = 0
    for number, kind, value in fields(data):
        if kind == VARINT and number == 1:
            assert isinstance(value, int)
            status = value
    return status


def decode_stdio(data: bytes) -> bytes:
    """A piece of what a plugin wrote to its standard output or error after the handshake."""
    content = b""
    for number, kind, value in fields(data):
        if kind == BYTES and number == 2:
            assert isinstance(value, bytes)
            content = value
    return content
