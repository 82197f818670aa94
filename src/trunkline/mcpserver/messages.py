"""JSON-RPC: one line of bytes in, a message or the error to answer out. Nothing a client sends raises anything else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeGuard, cast

Json = dict[str, Any]
MessageId = int | str

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
UNSUPPORTED_VERSION: Final = -32022


class RpcError(Exception):
    """A request that is refused. `id` is the one to answer with where the message was too broken to be routed."""

    def __init__(
        self, code: int, message: str, data: Json | None = None, *, message_id: MessageId | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.message_id = message_id


@dataclass(frozen=True, slots=True)
class Message:
    """A request, or without an id a notification."""

    method: str
    params: Json
    id: MessageId | None

    @property
    def meta(self) -> Json:
        meta = self.params.get("_meta")
        return cast(Json, meta) if isinstance(meta, dict) else {}


def decode(line: bytes) -> Any:
    """The JSON value of a line; RpcError for anything that is none."""
    try:
        return json.loads(line.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise RpcError(PARSE_ERROR, "The message is not UTF-8") from None
    except RecursionError:
        raise RpcError(PARSE_ERROR, "The message is nested too deeply") from None
    except ValueError as error:
        raise RpcError(PARSE_ERROR, f"The message is not JSON: {error}") from None


def read_message(value: Any) -> Message | None:
    """The request or notification that a JSON value is; None for a response, which nobody here waits for."""
    if not isinstance(value, dict):
        raise RpcError(INVALID_REQUEST, "A message is a JSON object")
    members = cast(Json, value)
    message_id = _read_id(members)
    if members.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, '`jsonrpc` must be "2.0"', message_id=message_id)
    method, params = members.get("method"), members.get("params")
    if method is None and ("result" in members or "error" in members):
        return None
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "`method` must be a string", message_id=message_id)
    if params is not None and not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "`params` must be an object", message_id=message_id)
    return Message(method, cast(Json, params or {}), message_id)


def _read_id(members: Json) -> MessageId | None:
    if "id" not in members or (members["id"] is None and "error" in members):
        return None
    message_id = members["id"]
    if not is_id(message_id):
        raise RpcError(INVALID_REQUEST, "`id` must be a string or an integer")
    return message_id


def is_id(value: Any) -> TypeGuard[MessageId]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def response(message_id: MessageId | None, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(message_id), result)


def refusal(message_id: MessageId | None, error: RpcError) -> bytes:
    described: Json = {"code": error.code, "message": str(error)} | ({} if error.data is None else {"data": error.data})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode(message_id), encode(described))


def notification(method: str, params: Json) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


NOT_JSON: Final = (TypeError, ValueError, RecursionError)
"""What `encode` raises for something that JSON cannot hold."""


def encode(value: Any) -> bytes:
    """One line of JSON, without its end.

    Half a surrogate pair, which Python's text can hold and UTF-8 cannot, becomes a question mark.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
