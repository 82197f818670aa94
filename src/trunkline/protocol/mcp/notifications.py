"""Notifications: cancellations, updates of resources and tasks as a client gets them, and log levels."""

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
from trunkline.protocol.mcp.methods import NOTIFICATIONS_CANCELLED, NOTIFICATIONS_RESOURCES_UPDATED, NOTIFICATIONS_TASKS
from trunkline.protocol.mcp.modern import SUBSCRIPTION_ID

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
RANKS: Final[Mapping[str, int]] = {level: rank for rank, level in enumerate(LEVELS)}
"""The severity of each log level."""


def cancelled_id(message: Message) -> MessageId | None:
    """The id of the request that a `notifications/cancelled` cancels; None for any other notification."""
    if message.method != NOTIFICATIONS_CANCELLED or message.params is None:
        return None
    try:
        request_id = members_of(message.params, "`params`").get("requestId")
        return None if request_id is None else read_id(request_id)
    except BadMessage:
        return None


def legacy_update(params: Json) -> bytes:
    """A resource update for a client that subscribed in a session. Raises BadMessage unless `params` is an object."""
    members, meta = _read(params)
    return _encode(NOTIFICATIONS_RESOURCES_UPDATED, members, meta)


def modern_update(params: Json, subscription: bytes) -> bytes:
    """A resource update for a client that listens with this subscription id (JSON). Raises BadMessage likewise."""
    members, meta = _read(params)
    return _encode(NOTIFICATIONS_RESOURCES_UPDATED, members, {**meta, SUBSCRIPTION_ID: subscription})


def modern_task(params: Json, subscription: bytes) -> bytes:
    """A task's status for a client that listens with this subscription id (JSON). Raises BadMessage likewise."""
    members, meta = _read(params)
    return _encode(NOTIFICATIONS_TASKS, members, {**meta, SUBSCRIPTION_ID: subscription})


def _read(params: Json) -> tuple[Members, dict[str, Json]]:
    """The parameters without `_meta`, and the members of `_meta` except the server's own subscription id."""
    members = members_of(bytes(params), "`params`")
    raw_meta = members.pop("_meta", None)
    meta = {} if raw_meta is None else members_of(raw_meta, "`_meta`")
    return members, {name: bytes(value) for name, value in meta.items() if name != SUBSCRIPTION_ID}


def _encode(method: str, members: Members, meta: dict[str, Json]) -> bytes:
    whole: dict[str, Json] = {name: bytes(value) for name, value in members.items()}
    if meta:
        whole["_meta"] = encode_members(meta)
    return encode_notification(method, single_line(encode_members(whole)))


def is_level_wanted(level: str, least: str) -> bool:
    """Whether a message of `level` is at least as severe as `least`; unknown levels are."""
    return RANKS.get(level, len(LEVELS)) >= RANKS.get(least, 0)
