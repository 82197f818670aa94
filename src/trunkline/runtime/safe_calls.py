"""One of many goes wrong, and the others go on: for whatever tells, ends or begins several things in a row.

What raises there is a bug of ours. The loop's own handler hears of it, as it does of a callback that raised: the
gateway logs it as `internal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec

from trunkline.core.call import Call, Failure
from trunkline.core.errors import INTERNAL, Problem

P = ParamSpec("P")


def contained(what: str, run: Callable[P, object], *args: P.args, **more: P.kwargs) -> bool:
    """Run one of many. Whether it went well."""
    try:
        run(*args, **more)
    except Exception as error:
        report_bug(what, error)
        return False
    return True


def handed_on(call: Call, run: Callable[P, object], *args: P.args, **more: P.kwargs) -> None:
    """The same for a call that waited: whoever waits for it is owed an answer all the same."""
    if not contained("a call that waited for its server", run, *args, **more):
        call.finish(Failure(bug_problem(call.source, call.tool)))


def report_bug(what: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"{what}:", "exception": error})


def bug_problem(source: str = "", tool: str = "") -> Problem:
    """For whoever is owed an answer by what raised."""
    return Problem(code=INTERNAL, message="Internal error", source=source, tool=tool, executed="unknown")
