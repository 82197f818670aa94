"""Calls by the library's user, from Python values to the router and back."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from msgspec import Raw

from trunkline.core.call import PROGRESS, Call, Caller, Failure, Json
from trunkline.core.errors import DEADLINE, INVALID_PARAMS, REQUEST_TOO_LARGE, Executed, Phase, Problem
from trunkline.gateway.library.embedded import log
from trunkline.gateway.library.errors import CallError
from trunkline.gateway.library.results import CallResult, Progress, read_progress, result_of
from trunkline.router.router import Router
from trunkline.runtime.deadlines import Deadline

OnProgress = Callable[[Progress], None]


async def call_tool(
    router: Router,
    caller: Caller,
    name: str,
    arguments: Mapping[str, Any] | None,
    *,
    timeout: float | None,
    on_progress: OnProgress | None,
    limit_bytes: int,
) -> CallResult:
    """Call a tool and wait for its result. Raises CallError if there is none; cancelling this cancels the call."""
    _check_usage(name, timeout, on_progress)
    loop = asyncio.get_running_loop()
    members = {"arguments": Raw(_encoded(name, arguments, limit_bytes))}
    if timeout is not None and timeout <= 0:
        raise CallError(_too_late(timeout, tool=name))  # not even sent, so it certainly did not run
    answered: asyncio.Future[None] = loop.create_future()
    call = router.call_tool(
        caller,
        name,
        members,
        lambda _: None if answered.done() else answered.set_result(None),
        on_notification=None if on_progress is None else _progress_handler(on_progress),
        progress=on_progress is not None,
    )
    timer = None if timeout is None else Deadline(timeout, partial(_expire, call, timeout))
    try:
        await answered
    except asyncio.CancelledError:
        call.cancel("the caller cancelled it")
        raise
    finally:
        if timer is not None:
            timer.cancel()
    return result_of(call)


def _check_usage(name: Any, timeout: Any, on_progress: Any) -> None:
    """Raise TypeError or ValueError for arguments of the wrong type, before anything is sent."""
    if not isinstance(name, str):
        raise TypeError(f"a tool is called by its name, a string, not {type(name).__name__}")
    check_timeout(timeout)
    if on_progress is not None and (not callable(on_progress) or inspect.iscoroutinefunction(on_progress)):
        raise TypeError("`on_progress` must be a plain function, not async: nobody would await it")


def check_timeout(timeout: Any) -> None:
    if timeout is None:
        return
    if not isinstance(timeout, int | float):
        raise TypeError(f"`timeout` is a number of seconds or None, not {type(timeout).__name__}")
    if math.isnan(timeout):
        raise ValueError("`timeout` is a number of seconds or None, not NaN")


def _encoded(name: str, arguments: Any, limit_bytes: int) -> bytes:
    given: Any = {} if arguments is None else arguments
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise _bad_arguments(name, f"The arguments of `{name}` must be a dict of names and values, not {kind}")
    try:
        encoded = json.dumps(dict(cast(Mapping[str, Any], given)), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _bad_arguments(name, f"The arguments of `{name}` are not JSON: {error}") from None
    if len(encoded) > limit_bytes:
        message = f"The arguments of `{name}` have more than {limit_bytes} bytes (`limits.request_bytes`)"
        hint = "pass a path or a link instead, or raise `gateway.limits.request_bytes`"
        raise CallError(Problem(code=REQUEST_TOO_LARGE, message=message, tool=name, hint=hint))
    return encoded


def _bad_arguments(name: str, message: str) -> CallError:
    hint = "arguments consist of strings, numbers, lists, dicts, True, False and None"
    return CallError(Problem(code=INVALID_PARAMS, message=message, tool=name, hint=hint))


def _progress_handler(on_progress: OnProgress) -> Callable[[str, Json], None]:
    def handle(method: str, params: Json) -> None:
        progress = read_progress(params) if method == PROGRESS else None
        if progress is None:
            return
        try:
            on_progress(progress)
        except (Exception, asyncio.CancelledError):  # a bug in the program must not affect the server's other calls
            log.exception("on_progress failed")

    return handle


def _expire(call: Call, timeout_s: float) -> None:
    problem = _too_late(timeout_s, source=call.source, tool=call.tool, phase=call.phase, executed=call.executed)
    call.give_up(Failure(problem))


def _too_late(
    timeout_s: float, *, tool: str, source: str = "", phase: Phase = "queued", executed: Executed = "no"
) -> Problem:
    return Problem(
        code=DEADLINE,
        message=f"Tool execution timed out after {max(timeout_s, 0):g} seconds",
        source=source,
        tool=tool,
        phase=phase,
        executed=executed,
        retryable=executed == "no",
        hint="give `call` a longer `timeout`",
    )
