"""What the library returns: tools, results and progress as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from trunkline.core.call import Call, Failure, Json, NeedsInput, RemoteError, Result
from trunkline.core.errors import NOT_ANSWERED, SOURCE_PROTOCOL, Code, Problem
from trunkline.gateway.library.errors import CallError, ServerError
from trunkline.router.catalog import ToolEntry

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as callers see it. `name` is what models are given; `address` is unambiguous."""

    name: str
    address: str
    server: str
    title: str
    description: str
    input_schema: Object
    output_schema: Object | None
    annotations: Object
    definition: Object
    """The server's whole definition."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a tool. With `is_error` the tool ran and reports a failure; `text` then says why."""

    content: list[Object]
    structured: Any
    is_error: bool
    meta: Object
    raw: bytes
    """The result as its server wrote it, in JSON."""

    @property
    def text(self) -> str:
        """The text blocks of the content, joined by line breaks."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


def tool_of(entry: ToolEntry) -> Tool:
    tool = entry.tool
    definition = _object(tool.definition)
    annotations = _dict(definition.get("annotations"))
    output_schema = definition.get("outputSchema")
    return Tool(
        name=entry.public_name,
        address=tool.address,
        server=tool.source,
        title=_text(definition.get("title")) or _text(annotations.get("title")),
        description=_text(definition.get("description")),
        input_schema=_dict(definition.get("inputSchema")),
        output_schema=cast(Object, output_schema) if isinstance(output_schema, dict) else None,
        annotations=annotations,
        definition=definition,
    )


def result_of(call: Call) -> CallResult:
    """The result of a call that has ended. Raises CallError if it has none."""
    match call.outcome:
        case Result(raw=raw):
            return _result(call, bytes(raw))
        case RemoteError(raw=raw):
            error = _object(raw)
            code = error.get("code")
            rpc_code = code if isinstance(code, int) else 0
            raise ServerError(call.source, call.tool, rpc_code, _text(error.get("message")), error.get("data"))
        case Failure(problem=problem):
            raise CallError(problem)
        case NeedsInput():
            what = "the tool asks its client for input, which the library does not support"
            raise CallError(_problem(call, NOT_ANSWERED, what))
        case None:
            raise AssertionError("the call has not ended")


def _result(call: Call, raw: bytes) -> CallResult:
    try:
        result = msgspec.json.decode(raw, type=dict[str, Any])
    except _UNREADABLE:
        raise CallError(_problem(call, SOURCE_PROTOCOL, "its result cannot be read")) from None
    return CallResult(
        content=_blocks(result.get("content")),
        structured=result.get("structuredContent"),
        is_error=result.get("isError") is True,
        meta=_dict(result.get("_meta")),
        raw=raw,
    )


def _blocks(content: Any) -> list[Object]:
    blocks = cast(list[Any], content) if isinstance(content, list) else []
    return [cast(Object, block) for block in blocks if isinstance(block, dict)]


def _problem(call: Call, code: Code, what: str) -> Problem:
    message = f"Server {call.source}: {what}"
    return Problem(code=code, message=message, source=call.source, tool=call.tool, phase="sent", executed="unknown")


def _object(raw: Json) -> Object:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except _UNREADABLE:
        return {}


def _dict(value: Any) -> Object:
    return cast(Object, value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call. `progress` grows towards `total`, if that is known."""

    progress: float
    total: float | None = None
    message: str = ""


def read_progress(params: Json) -> Progress | None:
    """Decode a progress notification; None if it is malformed."""
    values = _object(params)
    progress, total = values.get("progress"), values.get("total")
    if not isinstance(progress, int | float):
        return None
    return Progress(progress, total if isinstance(total, int | float) else None, _text(values.get("message")))
