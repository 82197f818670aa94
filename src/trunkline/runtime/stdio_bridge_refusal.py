"""Tells an agent that its run cannot be reached, as the response to its first request: agents show little else."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any, Final, cast

from trunkline.core.errors import GATEWAY_UNREACHABLE, Problem

_WAIT_S: Final = 10.0
_CHUNK_BYTES: Final = 64 * 1024
_MAX_LINE_BYTES: Final = 1024 * 1024


def answer_first_request(path: str, reason: str) -> None:
    """Respond to the agent's first request with an error, and write the same to stderr at once."""
    message = f"Cannot reach the run's router at `{path}`: {reason}"
    problem = Problem(code=GATEWAY_UNREACHABLE, message=message, hint="has the run ended?")
    os.write(2, f"{message} [{problem.code.id}]\n".encode(errors="backslashreplace"))
    request_id = _id_of(_first_line())
    if request_id is not None:
        error = {"code": problem.code.jsonrpc, "message": problem.message, "data": problem.data()}
        answer = {"jsonrpc": "2.0", "id": request_id, "error": error}
        try:
            os.write(1, json.dumps(answer).encode() + b"\n")
        except OSError:
            return  # the agent is gone


def _first_line() -> bytes:
    """The first line on stdin; empty or incomplete if it does not arrive in time."""
    text = b""
    deadline = time.monotonic() + _WAIT_S
    while b"\n" not in text and len(text) < _MAX_LINE_BYTES:
        ready, _, _ = select.select([0], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(0, _CHUNK_BYTES) if ready else b""
        if not data:
            return text
        text += data
    return text.partition(b"\n")[0]


def _id_of(line: bytes) -> int | str | None:
    try:
        message: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or "method" not in message:
        return None
    found = cast(dict[str, Any], message).get("id")
    return found if isinstance(found, int | str) else None
