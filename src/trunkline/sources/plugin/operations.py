"""A plugin's operations as tools, with a JSON Schema of their inputs, and their outcomes as MCP results.

What cannot be mapped is left out with a warning, never guessed: a wrong schema would make every call wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from trunkline.core.errors import TOOL_NOT_USABLE
from trunkline.core.tool import ToolDefinition
from trunkline.protocol.jsonrpc import REDUCED_STACK, BadMessage, check_text, encode, encode_members, single_line
from trunkline.runtime.child_io import safe_text
from trunkline.sdk.plugin_v1 import Operation, OperationInput, OperationResult
from trunkline.sources.list_limits import MAX_BYTES, MAX_ITEMS, over_limit, was_cut

_FORMATS: Final = {"url": "uri", "email": "email"}
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,30})\Z", re.ASCII)
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?\Z", re.ASCII)
_MOST_FAULTS: Final = 20
_MAX_DEFINITION_BYTES: Final = 64 * 1024
"""More than any model could use of one tool."""


class UnusableOperation(Exception):
    """An operation cannot be offered as a tool; says why."""


class MalformedResult(Exception):
    """A value in the plugin's answer is not valid JSON."""


def tools_of(source: str, operations: Sequence[Operation]) -> tuple[tuple[ToolDefinition, ...], tuple[str, ...]]:
    """The tools, and a warning for each operation that cannot be offered."""
    tools: dict[str, ToolDefinition] = {}
    faults: list[str] = []
    cut = ""
    size_bytes = 0
    for count, operation in enumerate(operations):
        if cut := _reason_to_cut(count, size_bytes):
            break
        name = operation.name
        try:
            if not name:
                raise UnusableOperation("it has no name")
            if name in tools:
                raise UnusableOperation("another operation before it has this name")
            tool = tools[name] = ToolDefinition(source, name, definition_of(operation))
            size_bytes += len(tool.definition)
        except UnusableOperation as error:
            faults.append(safe_text(f"{TOOL_NOT_USABLE}: the operation `{name[:100]}` is not offered: {error}", str))
    more = len(faults) - _MOST_FAULTS
    if more > 0:
        faults[_MOST_FAULTS:] = [f"{TOOL_NOT_USABLE}: … and {more} more operations are not offered"]
    if cut:
        faults.insert(0, f"{TOOL_NOT_USABLE}: {cut}")
    return tuple(tools.values()), tuple(faults)


def _reason_to_cut(count: int, size_bytes: int) -> str:
    """Why no further operation is read; empty if the next one is."""
    if count < MAX_ITEMS and size_bytes < MAX_BYTES:
        return ""
    limit = f"{MAX_ITEMS:,} entries" if count >= MAX_ITEMS else f"{MAX_BYTES:,} bytes"
    return was_cut("ListOperations", count, "operation", over_limit(limit))


def definition_of(operation: Operation) -> bytes:
    """The tool's definition, without `outputSchema`: nothing in the protocol makes results keep to it."""
    properties: dict[str, bytes] = {}
    for item in operation.inputs:
        if not item.name:
            raise UnusableOperation("one of its inputs has no name")
        if item.name in properties:
            raise UnusableOperation(f"two of its inputs have the name `{item.name[:100]}`")
        properties[item.name] = _schema_of(item)
    schema = {"type": b'"object"', "properties": encode_members(properties)}
    required = [item.name for item in operation.inputs if item.required]
    if required:
        schema["required"] = encode(required)
    members = {"name": encode(operation.name)}
    description = _description(operation)
    if description:
        members["description"] = encode(description)
    definition = encode_members(members | {"inputSchema": encode_members(schema)})
    if len(definition) > _MAX_DEFINITION_BYTES:
        size = f"its definition is {len(definition):,} bytes long"
        raise UnusableOperation(f"{size}, and at most {_MAX_DEFINITION_BYTES:,} are offered: shorten its descriptions")
    return definition


def _description(operation: Operation) -> str:
    """The description with the outputs in words, so that an agent knows what `structuredContent` may hold."""
    if not operation.outputs:
        return operation.description
    lines: list[str] = []
    for output in operation.outputs:
        kind = f" ({output.type})" if output.type else ""
        lines.append(f"- {output.name}{kind}: {output.description}" if output.description else f"- {output.name}{kind}")
    outputs = "\n".join(lines)
    return f"{operation.description}\n\nReturns:\n{outputs}".strip()


def _schema_of(item: OperationInput) -> bytes:
    read_default = _DEFAULTS.get(item.type)
    if read_default is None:
        known = ", ".join(_DEFAULTS)
        raise UnusableOperation(
            f"its input `{item.name[:100]}` has the unknown type `{item.type[:100]}` (known: {known})"
        )
    members = {"type": encode(item.type)}
    if item.description:
        members["description"] = encode(item.description)
    if item.validation:
        members["format"] = encode(_format_of(item))
    if item.default:
        default = read_default(item.default)
        if default is None:
            raise UnusableOperation(
                f"the default of its input `{item.name[:100]}` is not a valid {item.type}: `{item.default[:100]}`"
            )
        members["default"] = default
    return encode_members(members)


def _format_of(item: OperationInput) -> str:
    known = _FORMATS.get(item.validation)
    if known is None:
        raise UnusableOperation(f"its input `{item.name[:100]}` has the unknown validation `{item.validation[:100]}`")
    if item.type != "string":
        raise UnusableOperation(
            f"its input `{item.name[:100]}` is of type {item.type}, which no `{item.validation}` can be"
        )
    return known


def _whole_number(text: str) -> bytes | None:
    return text.encode() if _WHOLE.match(text) else None


def _number(text: str) -> bytes | None:
    """A finite number: most JSON parsers would refuse the whole list of tools for a larger one."""
    return text.encode() if _NUMBER.match(text) and math.isfinite(float(text)) else None


def _boolean(text: str) -> bytes | None:
    word = text.lower()
    return word.encode() if word in ("true", "false") else None


def _json_of(kind: type) -> Callable[[str], bytes | None]:
    def read(text: str) -> bytes | None:
        try:
            with REDUCED_STACK:
                value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return None
        return msgspec.json.format(text.encode(), indent=-1) if isinstance(value, kind) else None

    return read


_DEFAULTS: Final[dict[str, Callable[[str], bytes | None]]] = {
    "string": encode,
    "integer": _whole_number,
    "number": _number,
    "boolean": _boolean,
    "array": _json_of(list),
    "object": _json_of(dict),
}
"""For each input type, what makes JSON of the text of its default."""


_decode_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode


def result_from(done: OperationResult) -> bytes:
    """The MCP result: `output` as text (or `data` if there is none), and `data` as structured content."""
    data = b"" if not done.data else encode_members({name: _value(name, raw) for name, raw in done.data.items()})
    if done.success:
        texts = [done.output or data.decode()]
    else:
        texts = [text for text in (done.error, done.output) if text] or [
            "the operation failed, and the plugin does not say why"
        ]
    blocks = b",".join([b'{"type":"text","text":%b}' % encode(text) for text in texts])
    result = b'{"content":[%b]' % blocks
    if data:
        result += b',"structuredContent":%b' % data
    return result + (b"}" if done.success else b',"isError":true}')


def _value(name: str, raw: bytes) -> bytes:
    """One JSON value, checked by itself, as it could break out of what it is inserted into."""
    try:
        check_text(raw)
        with REDUCED_STACK:
            return single_line(_decode_raw(raw))
    except (BadMessage, msgspec.MsgspecError) as error:
        raise MalformedResult(f"the value `{name[:100]}` of its answer is not valid JSON: {error}") from None
    except RecursionError:
        raise MalformedResult(f"the value `{name[:100]}` of its answer is nested too deeply") from None
