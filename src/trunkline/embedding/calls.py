"""One call of an embedding program: from Python data to the router and back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from trunkline.core.call import PROGRESS, Call, Caller, Failure, Json
from trunkline.core.errors import DEADLINE, INVALID_PARAMS, Problem
from trunkline.embedding.errors import CallError
from trunkline.embedding.logs import log
from trunkline.embedding.progress import Progress, read_progress
from trunkline.embedding.results import CallResult, result_of
from trunkline.router.router import Router

OnProgress = Callable[[Progress], None]


async def call_tool(
    router: Router,
    caller: Caller,
    name: str,
    arguments: Mapping[str, Any] | None,
    timeout: float | None,
    on_progress: OnProgress | None,
) -> CallResult:
    """Raises CallError where there is no result. Whoever stops waiting takes the call back."""
    loop = asyncio.get_running_loop()
    members = {"arguments": Raw(_encoded(name, arguments or {}))}
    answered: asyncio.Future[None] = loop.create_future()
    call = router.call_tool(
        caller,
        name,
        members,
        lambda _: None if answered.done() else answered.set_result(None),
        notice=None if on_progress is None else _teller(on_progress),
        progress=on_progress is not None,
    )
    timer = None if timeout is None else loop.call_later(timeout, _expire, call, timeout)
    try:
        await answered
    except asyncio.CancelledError:
        call.cancel("nobody waits for it any more")
        raise
    finally:
        if timer is not None:
            timer.cancel()
    return result_of(call)


def _encoded(name: str, arguments: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(dict(arguments), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        problem = Problem(code=INVALID_PARAMS, message=f"The arguments of `{name}` are not JSON: {error}", tool=name)
        raise CallError(problem) from None


def _teller(on_progress: OnProgress) -> Callable[[str, Json], None]:
    def notice(method: str, params: Json) -> None:
        progress = read_progress(params) if method == PROGRESS else None
        if progress is None:
            return
        try:
            on_progress(progress)
        except Exception:  # a bug of the program must not reach the server's other calls
            log.exception("on_progress failed")

    return notice


def _expire(call: Call, timeout_s: float) -> None:
    problem = Problem(
        code=DEADLINE,
        message=f"Tool execution timed out after {timeout_s:g} seconds",
        source=call.source,
        tool=call.tool,
        phase=call.phase,
        executed=call.executed,
        retryable=call.executed == "no",
        hint="give `call` a longer `timeout`",
    )
    call.give_up(Failure(problem))
