"""What a client's message is about, as far as a transport must know: its era, and which request it takes back."""

from __future__ import annotations

from typing import Final

from trunkline.protocol.jsonrpc import BadMessage, Message, MessageId, members_of, read_id
from trunkline.protocol.mcp.modern import PROTOCOL_VERSION

CANCELLED: Final = "notifications/cancelled"
LIST_CHANGED: Final = "notifications/tools/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
RESOURCE_UPDATED: Final = "notifications/resources/updated"
_VERSION: Final = PROTOCOL_VERSION.encode()


def is_modern(message: Message) -> bool:
    """Whether a message describes itself, where no header says so (stdio, or a header that was left out)."""
    if message.params is None or _VERSION not in bytes(message.params):
        return False
    try:
        meta = members_of(message.params, "`params`").get("_meta")
        return meta is not None and PROTOCOL_VERSION in members_of(meta, "`_meta`")
    except BadMessage:
        return False


def cancelled_id(message: Message) -> MessageId | None:
    """Which request a `notifications/cancelled` takes back; None for any other notification, and for nonsense."""
    if message.method != CANCELLED or message.params is None:
        return None
    try:
        request_id = members_of(message.params, "`params`").get("requestId")
        return None if request_id is None else read_id(request_id)
    except BadMessage:
        return None
