"""What comes back from a gateway, read: progress in words, a tool's schema, problems with their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from trunkline.core.call import Json
from trunkline.core.errors import CODES, Problem
from trunkline.core.tool import Tool
from trunkline.protocol.jsonrpc import BadMessage, members_of
from trunkline.search.definitions import parse_definition


def progress_line(params: Json) -> str:
    """A `notifications/progress` in words."""
    try:
        members = members_of(bytes(params), "params")
        told = {key: msgspec.json.decode(value) for key, value in members.items() if key != "progressToken"}
    except (BadMessage, msgspec.MsgspecError, RecursionError):
        return ""
    message, done, total = told.get("message"), told.get("progress"), told.get("total")
    amount = f"{done:g}" if isinstance(done, int | float) else ""
    amount += f" of {total:g}" if amount and isinstance(total, int | float) else ""
    return " ".join(part for part in (amount, message if isinstance(message, str) else "") if part)


def input_schema(tool: Tool) -> Mapping[str, Any]:
    """Its `inputSchema`; empty where there is none that can be read."""
    try:
        schema: Any = msgspec.json.decode(parse_definition(tool).input_schema)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return cast(dict[str, Any], schema) if isinstance(schema, dict) else {}


class _Data(msgspec.Struct):
    code: str
    hint: str = ""


class _JsonRpcError(msgspec.Struct):
    data: _Data
    message: str = ""


class _RestError(msgspec.Struct):
    code: str
    detail: str = ""
    hint: str = ""


def problem_in_error(raw: Json) -> Problem | None:
    """The problem behind a JSON-RPC error of a gateway; None for an error of anybody else."""
    try:
        error = msgspec.json.decode(raw, type=_JsonRpcError)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return _problem(error.data.code, error.message, error.data.hint)


def problem_in_page(body: bytes) -> Problem | None:
    """The same for the answer of an HTTP route."""
    try:
        error = msgspec.json.decode(body, type=_RestError)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return _problem(error.code, error.detail, error.hint)


def _problem(code: str, message: str, hint: str) -> Problem | None:
    known = CODES.get(code)
    return None if known is None else Problem(code=known, message=message, hint=hint)
