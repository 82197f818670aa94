"""What a request tells its server about whom it is for: capabilities and log level, in the way of either era."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from trunkline.core.call import Call, Failure, Json, Request
from trunkline.core.errors import SOURCE_LOST
from trunkline.protocol.mcp.capabilities import TASKS
from trunkline.protocol.mcp.modern import stamp
from trunkline.protocol.mcp.notifications import LEVELS, RANKS
from trunkline.protocol.mcp.versions import LEGACY
from trunkline.version import __version__

if TYPE_CHECKING:
    from trunkline.sources.mcp.lane import Lane

CLIENT_NAME: Final = "trunkline"
SET_LEVEL: Final = "logging/setLevel"
_MOST_STAMPS: Final = 256
_LEVEL_OF_LEGACY_CLIENTS: Final = "info"
"""A legacy client that never named a level expects to hear something."""
_SET_LEVEL_S: Final = 10.0


_ABOUT_TASKS: Final = frozenset({"subscriptions/listen", "tasks/get"})
_KNOWS_TASKS: Final = b'{"extensions":{"%b":{}}}' % TASKS.encode()


def own_stamp(capabilities: bytes = b"{}") -> bytes:
    """For requests of our own: nobody can be asked anything."""
    return stamp(CLIENT_NAME, __version__, capabilities)


def level_in(params: Json) -> str:
    """The level that a `logging/setLevel` names; empty when it names none."""
    try:
        return msgspec.json.decode(params, type=_SetLevel).level
    except msgspec.MsgspecError:
        return ""


class _SetLevel(msgspec.Struct):
    level: str


class Stamps:
    """A modern server learns it from every request anew. The same callers come again and again, so it is kept."""

    def __init__(self, *, logs: bool, tasks: bool = False) -> None:
        self._logs = logs
        self._own = own_stamp()
        self._own_about_tasks = own_stamp(_KNOWS_TASKS) if tasks else self._own
        self._made: dict[tuple[bytes, str, str], bytes] = {}

    def __call__(self, request: Request) -> bytes:
        if not isinstance(request, Call):
            return self._own_about_tasks if request.method in _ABOUT_TASKS else self._own
        caller = request.caller
        key = (caller.capabilities, caller.log_level, caller.version)
        made = self._made.get(key)
        return self._make(*key) if made is None else made

    def _make(self, capabilities: bytes, level: str, version: str) -> bytes:
        if len(self._made) >= _MOST_STAMPS:
            self._made.clear()
        wanted = level or (_LEVEL_OF_LEGACY_CLIENTS if version in LEGACY else "")
        made = stamp(CLIENT_NAME, __version__, capabilities, wanted if self._logs and wanted in RANKS else "")
        self._made[capabilities, level, version] = made
        return made


class LaneLevel:
    """A legacy server keeps one level per conversation: it is told whenever a call wants to hear more than before."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._told = len(LEVELS)

    def __call__(self, request: Request) -> bytes:
        if isinstance(request, Call) and request.caller.log_level:
            self.want(request.caller.log_level)
        return b""

    def want(self, level: str) -> None:
        """Whoever wants less gets less from us: the server is never told to say less."""
        rank = RANKS.get(level, self._told)
        if rank >= self._told:
            return
        self._told = rank
        lane = self._lane
        request = Request(SET_LEVEL, b'{"level":"%b"}' % level.encode(), lambda _: timer.cancel())
        late = Failure(lane.problem(SOURCE_LOST, f"no answer to `{SET_LEVEL}` in time"))
        timer = asyncio.get_running_loop().call_later(_SET_LEVEL_S, request.give_up, late)
        lane.send(request)
