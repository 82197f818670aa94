"""Notifications of servers that a resource or a task has changed, as one client gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trunkline.core.call import Json
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    Message,
    MessageId,
    encode_members,
    encode_notification,
    members_of,
    read_id,
    single_line,
)
from trunkline.protocol.mcp.methods import CANCELLED, RESOURCE_UPDATED, TASK_TOLD
from trunkline.protocol.mcp.modern import SUBSCRIPTION_ID

# What a client's message is about, as far as a transport must know: its era, and which request it takes back.


def cancelled_id(message: Message) -> MessageId | None:
    """Which request a `notifications/cancelled` takes back; None for any other notification, and for nonsense."""
    if message.method != CANCELLED or message.params is None:
        return None
    try:
        request_id = members_of(message.params, "`params`").get("requestId")
        return None if request_id is None else read_id(request_id)
    except BadMessage:
        return None


def legacy_update(params: Json) -> bytes:
    """For a client that subscribed to it in a session. Raises BadMessage for what is not an object."""
    members, meta = _read(params)
    return _encode(RESOURCE_UPDATED, members, meta)


def modern_update(params: Json, subscription: bytes) -> bytes:
    """For a client that listens under this id of its own (as JSON). Raises BadMessage for what is not an object."""
    members, meta = _read(params)
    return _encode(RESOURCE_UPDATED, members, {**meta, SUBSCRIPTION_ID: subscription})


def modern_task(params: Json, subscription: bytes) -> bytes:
    """How a task is, for a client that listens under this id. Raises BadMessage for what is not an object."""
    members, meta = _read(params)
    return _encode(TASK_TOLD, members, {**meta, SUBSCRIPTION_ID: subscription})


def _read(params: Json) -> tuple[Members, dict[str, Json]]:
    """The parameters without `_meta`, and the members of that which do not belong to the server's own hop."""
    members = members_of(bytes(params), "`params`")
    raw_meta = members.pop("_meta", None)
    meta = {} if raw_meta is None else members_of(raw_meta, "`_meta`")
    return members, {name: bytes(value) for name, value in meta.items() if name != SUBSCRIPTION_ID}


def _encode(method: str, members: Members, meta: dict[str, Json]) -> bytes:
    whole: dict[str, Json] = {name: bytes(value) for name, value in members.items()}
    if meta:
        whole["_meta"] = encode_members(meta)
    return encode_notification(method, single_line(encode_members(whole)))


# How severe a log message is: the levels by name, the least severe first.

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
RANKS: Final[Mapping[str, int]] = {level: rank for rank, level in enumerate(LEVELS)}
"""A level by name → how severe it is; what is not here is no level."""


def wanted(level: str, least: str) -> bool:
    """Whether a message of `level` is for someone who wants `least` and above; an unknown level is wanted."""
    return RANKS.get(level, len(LEVELS)) >= RANKS.get(least, 0)
