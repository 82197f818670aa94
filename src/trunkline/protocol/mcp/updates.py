"""Notifications of servers that a resource or a task has changed, as one client gets them."""

from __future__ import annotations

from typing import Final

from trunkline.core.call import Json
from trunkline.protocol.jsonrpc import Members, encode_members, encode_notification, members_of, single_line
from trunkline.protocol.mcp.incoming import RESOURCE_UPDATED
from trunkline.protocol.mcp.modern import SUBSCRIPTION_ID

TASK_TOLD: Final = "notifications/tasks"


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
