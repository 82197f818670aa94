"""The messages of `plugin.v1`, and of the small services that go-plugin puts beside it: bytes to values and back.

Both ends are here, the host's and the plugin's. Every value in a map is one JSON value, as raw bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .protobuf import ProtobufMessage, bytes_field, map_field, number_field, text_field

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
EMPTY: Final = b""


@dataclass(frozen=True, slots=True)
class PluginInfo:
    name: str = ""
    version: str = ""
    description: str = ""
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperationInput:
    """`default` is text, whatever the type; empty if there is none."""

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
    success: bool = False
    output: str = ""
    data: dict[str, bytes] = field(default_factory=dict[str, bytes])
    error: str = ""


# -- what a plugin is, and what it can do ----------------------------------------------------------------------------


def encode_info(info: PluginInfo) -> bytes:
    head = text_field(1, info.name) + text_field(2, info.version) + text_field(3, info.description)
    return head + b"".join([bytes_field(4, word.encode()) for word in info.capabilities])


def decode_info(data: bytes) -> PluginInfo:
    info = ProtobufMessage(data)
    return PluginInfo(info.text(1), info.text(2), info.text(3), tuple(info.texts(4)))


def encode_init(config: Mapping[str, bytes]) -> bytes:
    return map_field(1, config)


def decode_init(data: bytes) -> dict[str, bytes]:
    return ProtobufMessage(data).map(1)


def encode_operations(operations: Sequence[Operation]) -> bytes:
    return b"".join([bytes_field(1, encode_operation(operation)) for operation in operations])


def decode_operations(data: bytes) -> list[Operation]:
    message = ProtobufMessage(data)
    return [_operation(ProtobufMessage(part, message.budget)) for part in message.parts(1)]


def encode_operation(operation: Operation) -> bytes:
    head = text_field(1, operation.name) + text_field(2, operation.description)
    inputs = b"".join([bytes_field(3, _encode_input(item)) for item in operation.inputs])
    return head + inputs + b"".join([bytes_field(4, _encode_output(item)) for item in operation.outputs])


def _operation(operation: ProtobufMessage) -> Operation:
    inputs = [ProtobufMessage(part, operation.budget) for part in operation.parts(3)]
    outputs = [ProtobufMessage(part, operation.budget) for part in operation.parts(4)]
    return Operation(
        operation.text(1),
        operation.text(2),
        tuple(
            OperationInput(item.text(1), item.text(2), bool(item.number(3)), item.text(4), item.text(5), item.text(6))
            for item in inputs
        ),
        tuple(OperationOutput(item.text(1), item.text(2), item.text(3)) for item in outputs),
    )


def _encode_input(item: OperationInput) -> bytes:
    head = text_field(1, item.name) + text_field(2, item.type) + number_field(3, item.required)
    return head + text_field(4, item.default) + text_field(5, item.description) + text_field(6, item.validation)


def _encode_output(item: OperationOutput) -> bytes:
    return text_field(1, item.name) + text_field(2, item.type) + text_field(3, item.description)


def decode_get_operation(data: bytes) -> str:
    return ProtobufMessage(data).text(1)


def encode_got_operation(operation: Operation) -> bytes:
    return bytes_field(1, encode_operation(operation))


# -- having it done --------------------------------------------------------------------------------------------------


def encode_execute(operation: str, inputs: Mapping[str, bytes]) -> bytes:
    return text_field(1, operation) + map_field(2, inputs)


def decode_execute(data: bytes) -> tuple[str, dict[str, bytes]]:
    message = ProtobufMessage(data)
    return message.text(1), message.map(2)


def encode_executed(done: OperationResult) -> bytes:
    head = number_field(1, done.success) + text_field(2, done.output)
    return head + map_field(3, done.data) + text_field(4, done.error)


def decode_executed(data: bytes) -> OperationResult:
    message = ProtobufMessage(data)
    return OperationResult(bool(message.number(1)), message.text(2), message.map(3), message.text(4))


# -- signs of life, and what it prints -------------------------------------------------------------------------------


def encode_health_request(service: str) -> bytes:
    return text_field(1, service)


decode_health_request: Final = decode_get_operation
"""Both messages hold one name."""


def encode_health(status: int) -> bytes:
    return number_field(1, status)


def decode_health(data: bytes) -> int:
    """The status: 1 is `SERVING`; 0, 2 and 3 say that the plugin is not, and why."""
    return ProtobufMessage(data).number(1)


def decode_stdio(data: bytes) -> bytes:
    """A piece of what a plugin wrote to its standard output or error after the handshake."""
    return (ProtobufMessage(data).parts(2) or [b""])[-1]
