"""Ids of tasks. Each server makes its own, so callers get ids of ours: sealed, and good for whoever got them alone.

Nothing is stored: the id itself says which server has the task and under which id.
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
    """A server, and its own id of a task."""

    source: str
    task_id: str


def declares_tasks(caller: Caller) -> bool:
    """Whether this caller understands the tasks of 2026-07-28."""
    capabilities = caller.capabilities
    return capabilities != NOTHING and TASKS in extensions(capabilities)


class TaskIds:
    def __init__(self, sealer: Sealer | None = None) -> None:
        self._sealer = sealer or Sealer()

    def shown(self, caller: Caller, place: TaskLocation) -> str:
        """The id that this caller gets for a server's task."""
        return self._sealer.seal(_purpose(caller), encode(place))

    def place(self, caller: Caller, task_id: str) -> TaskLocation | None:
        """The task behind an id of ours; None for one that was made up or given to somebody else."""
        payload = self._sealer.open(_purpose(caller), task_id)
        return None if payload is None else msgspec.json.decode(payload, type=TaskLocation)

    def to_caller(self, caller: Caller, source: str, raw: Json) -> Json:
        """A result or the parameters of a notification or question, with our ids in place of the server's."""
        text = bytes(raw)
        return map_task_ids(text, lambda own: self.shown(caller, TaskLocation(source, own))) if _MARK in text else raw


def _purpose(caller: Caller) -> str:
    return "task" + encode([caller.principal, caller.session]).decode()


def may_have_task_ids(raw: bytes) -> bool:
    """A cheap test: hardly any message has one."""
    return _MARK in raw


def map_task_ids(raw: bytes, change: _Change) -> bytes:
    """Every id of a task where the protocol has one; the same object where there is none."""
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
