"""Ids of tasks: callers get sealed ids, valid only for the caller who received them, in place of the servers' own.

Nothing is stored: the sealed id itself holds the server and the server's own id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from trunkline.core.call import Caller, Json
from trunkline.core.seal import Sealer
from trunkline.protocol.jsonrpc import BadMessage, encode, encode_members, members_of
from trunkline.protocol.mcp.capabilities import NOTHING, TASKS, extensions

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
_MARK: Final = b"taskId"

_Change = Callable[[str], str]


class TaskLocation(NamedTuple):
    """A source, and its own id of a task."""

    source: str
    task_id: str


def declares_tasks(caller: Caller) -> bool:
    """Whether the caller declared the tasks extension of MCP 2026-07-28."""
    capabilities = caller.capabilities
    return capabilities != NOTHING and TASKS in extensions(capabilities)


class TaskIds:
    """Converts task ids between servers and callers."""

    def __init__(self, sealer: Sealer | None = None) -> None:
        self._sealer = sealer or Sealer()

    def public_id(self, caller: Caller, location: TaskLocation) -> str:
        """The id that this caller gets for a task."""
        return self._sealer.seal(_purpose(caller), encode(location))

    def locate(self, caller: Caller, task_id: str) -> TaskLocation | None:
        """The task of a sealed id; None if the id was not made here, or for another caller."""
        payload = self._sealer.open(_purpose(caller), task_id)
        return None if payload is None else msgspec.json.decode(payload, type=TaskLocation)

    def rewrite(self, caller: Caller, source: str, raw: Json) -> Json:
        """Replace the server's task ids in a result, or in the parameters of a notification or server request."""
        text = bytes(raw)
        return (
            map_task_ids(text, lambda own: self.public_id(caller, TaskLocation(source, own))) if _MARK in text else raw
        )


def _purpose(caller: Caller) -> str:
    return "task" + encode([caller.principal, caller.session]).decode()


def may_have_task_ids(raw: bytes) -> bool:
    """Whether a message may have task ids; a quick test, which hardly any message passes."""
    return _MARK in raw


def map_task_ids(raw: bytes, change: _Change) -> bytes:
    """Apply `change` to every task id; returns the same object if there is none."""
    try:
        return _mapped(raw, change) or raw
    except (BadMessage, msgspec.MsgspecError, RecursionError):
        return raw


def _mapped(raw: bytes | msgspec.Raw, change: _Change) -> bytes | None:
    members = members_of(raw, "result")
    changed: dict[str, bytes] = {}
    if "taskId" in members:
        changed["taskId"] = encode(change(msgspec.json.decode(members["taskId"], type=str)))
    for name, inner in (("task", _with_id), ("tasks", _list_with_ids), ("_meta", _related)):
        if name in members and _MARK in bytes(members[name]):
            new = inner(members[name], change)
            if new is not None:
                changed[name] = new
    return encode_members({**members, **changed}) if changed else None


def _with_id(raw: msgspec.Raw, change: _Change) -> bytes | None:
    members = members_of(raw, "task")
    if "taskId" not in members:
        return None
    task_id = msgspec.json.decode(members["taskId"], type=str)
    return encode_members({**members, "taskId": encode(change(task_id))})


def _list_with_ids(raw: msgspec.Raw, change: _Change) -> bytes:
    tasks = msgspec.json.decode(raw, type=list[msgspec.Raw])
    return b"[%b]" % b",".join([_with_id(task, change) or bytes(task) for task in tasks])


def _related(raw: msgspec.Raw, change: _Change) -> bytes | None:
    meta = members_of(raw, "`_meta`")
    related = _with_id(meta[RELATED_TASK], change) if RELATED_TASK in meta else None
    return None if related is None else encode_members({**meta, RELATED_TASK: related})
