"""The messages of `plugin.v1` as the real protobuf library makes them from their description."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
}
MAP = "map<string,bytes>"

MESSAGES = {
    "GetInfoResponse": [
        ("name", "string"),
        ("version", "string"),
        ("description", "string"),
        ("capabilities", "string*"),
    ],
    "InitRequest": [("config", MAP)],
    "ListOperationsResponse": [("operations", "OperationSchema*")],
    "GetOperationRequest": [("name", "string")],
    "GetOperationResponse": [("operation", "OperationSchema")],
    "ExecuteRequest": [("operation", "string"), ("inputs", MAP)],
    "ExecuteResponse": [("success", "bool"), ("output", "string"), ("data", MAP), ("error", "string")],
    "OperationSchema": [
        ("name", "string"),
        ("description", "string"),
        ("inputs", "InputSchema*"),
        ("outputs", "OutputSchema*"),
    ],
    "InputSchema": [
        ("name", "string"),
        ("type", "string"),
        ("required", "bool"),
        ("default", "string"),
        ("description", "string"),
        ("validation", "string"),
    ],
    "OutputSchema": [("name", "string"), ("type", "string"), ("description", "string")],
    "HealthCheckResponse": [("status", "int32")],
}


def _describe(message: Any, name: str, fields: list[tuple[str, str]]) -> None:
    message.name = name
    for number, (field_name, written) in enumerate(fields, start=1):
        kind = written
        field = message.field.add(name=field_name, number=number, label=1)
        if kind == MAP:
            entry = message.nested_type.add()
            _describe(entry, f"{field_name.capitalize()}Entry", [("key", "string"), ("value", "bytes")])
            entry.options.map_entry = True
            field.label, kind = 3, f".plugin.v1.{name}.{entry.name}"
        elif kind.endswith("*"):
            field.label, kind = 3, kind.removesuffix("*")
        if kind in _TYPES:
            field.type = _TYPES[kind]
        else:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = kind if kind.startswith(".") else f".plugin.v1.{kind}"


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="plugin/v1/plugin.proto", package="plugin.v1", syntax="proto3")
    for name, fields in MESSAGES.items():
        _describe(file.message_type.add(), name, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"plugin.v1.{name}")) for name in MESSAGES}


REAL: dict[str, Any] = _build()
"""The library's class for each message."""
