"""Calls one of several callbacks so that an exception in it, which is a bug of ours, does not affect the others.

The event loop's exception handler gets the exception, as if a callback of its own had raised: the gateway logs it as
`internal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec

from trunkline.core.call import Call, Failure
from trunkline.core.errors import INTERNAL, Problem

P = ParamSpec("P")


def call_safely(what: str, run: Callable[P, object], *args: P.args, **more: P.kwargs) -> bool:
    """Call one of several callbacks and report what it raises; returns whether it succeeded. `what` names it."""
    try:
        run(*args, **more)
    except Exception as error:
        report_exception(what, error)
        return False
    return True


def resume_safely(call: Call, run: Callable[P, object], *args: P.args, **more: P.kwargs) -> None:
    """The same for a call that was held: it is finished with an error if resuming it raises."""
    if not call_safely("a call that was held", run, *args, **more):
        call.finish(Failure(internal_problem(call.source, call.tool)))


def report_exception(what: str, error: Exception) -> None:
    """Pass an exception to the event loop's exception handler."""
    asyncio.get_running_loop().call_exception_handler({"message": f"{what}:", "exception": error})


def internal_problem(source: str = "", tool: str = "") -> Problem:
    """The problem for a caller whose call hit a bug of ours."""
    return Problem(code=INTERNAL, message="Internal error", source=source, tool=tool, executed="unknown")
