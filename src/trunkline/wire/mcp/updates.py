"""Notifications of servers that a resource has changed, as one client gets them."""

from __future__ import annotations

from trunkline.core.call import Json
from trunkline.wire.jsonrpc import Members, encode_members, encode_notification, members_of, single_line
from trunkline.wire.mcp.incoming import RESOURCE_UPDATED
from trunkline.wire.mcp.modern import SUBSCRIPTION_ID


def legacy_update(params: Json) -> bytes:
    """For a client that subscribed to it in a session. Raises BadMessage for what is not an object."""
    members, meta = _read(params)
    return _encode(members, meta)


def modern_update(params: Json, subscription: bytes) -> bytes:
    """For a client that listens under this id of its own (as JSON). Raises BadMessage for what is not an object."""
    members, meta = _read(params)
    return _encode(members, {**meta, SUBSCRIPTION_ID: subscription})


def _read(params: Json) -> tuple[Members, dict[str, Json]]:
    """The parameters without `_meta`, and the members of that which do not belong to the server's own hop."""
    members = members_of(bytes(params), "`params`")
    raw_meta = members.pop("_meta", None)
    meta = {} if raw_meta is None else members_of(raw_meta, "`_meta`")
    return members, {name: bytes(value) for name, value in meta.items() if name != SUBSCRIPTION_ID}


def _encode(members: Members, meta: dict[str, Json]) -> bytes:
    whole: dict[str, Json] = {name: bytes(value) for name, value in members.items()}
    if meta:
        whole["_meta"] = encode_members(meta)
    return encode_notification(RESOURCE_UPDATED, single_line(encode_members(whole)))
