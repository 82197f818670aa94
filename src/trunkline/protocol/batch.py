"""JSON-RPC batches, which only 2025-03-26 has: several messages of a client in one array."""

from __future__ import annotations

from typing import Final

import msgspec

from trunkline.core.errors import INVALID_REQUEST, PARSE_ERROR
from trunkline.protocol.jsonrpc import BadMessage, Message, check_text, members_of_message

MAX_MESSAGES: Final = 100
VERSION: Final = "2025-03-26"
_BRACKET: Final = b"["
_decode: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_batch(data: bytes) -> bool:
    return data.lstrip()[:1] == _BRACKET


def split_batch(data: bytes) -> list[bytes]:
    """The texts of its messages, or BadMessage where it is none that could be served."""
    check_text(data)
    try:
        parts = _decode(data)
    except msgspec.DecodeError as error:
        raise BadMessage(PARSE_ERROR, f"batch is not valid JSON: {error}") from None
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "batch is nested too deeply") from None
    if not parts:
        raise BadMessage(INVALID_REQUEST, "A batch must not be empty")
    if len(parts) > MAX_MESSAGES:
        raise BadMessage(INVALID_REQUEST, f"A batch holds at most {MAX_MESSAGES} messages")
    return [bytes(part) for part in parts]


def read_member(text: bytes) -> Message | BadMessage:
    """One message of a batch; a handshake is no part of one."""
    try:
        message = Message(members_of_message(text))
    except BadMessage as error:
        return error
    if message.method == "initialize":
        return BadMessage(INVALID_REQUEST, "`initialize` must not be part of a batch", message.id_json)
    return message
