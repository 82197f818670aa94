"""Log messages of servers: which of them a client wants."""

from __future__ import annotations

from trunkline.core.errors import UNKNOWN_METHOD, Problem
from trunkline.doors.mcp.answer import refuse
from trunkline.doors.mcp.asked import Asked
from trunkline.router.router import Router
from trunkline.wire.jsonrpc import Members


def stated_level(meta: Members) -> str:
    """The level that a modern request asks for; empty where it wants none."""
    return ""


def set_level(router: Router, asked: Asked) -> None:
    refuse(asked.answer, Problem(code=UNKNOWN_METHOD, message="Unknown method: logging/setLevel"))
