"""The exceptions of the library, with one base class for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trunkline.config.problems import render, summarize
from trunkline.core.errors import Executed, Problem


class TrunklineError(Exception):
    """Base of all exceptions of the library.

    `code` is stable and explained by `trunkline explain`; `hint` says what to do, where there is something.
    """

    code: str = ""
    message: str = ""
    hint: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without calling `__init__`, so that errors can be sent to another process."""
        return _new, (type(self), *self.args), self.__dict__


def _new(kind: type[TrunklineError], *arguments: Any) -> TrunklineError:
    return kind.__new__(kind, *arguments)


class ConfigurationError(TrunklineError):
    """The configuration cannot be used. The text shows every problem, `problems` has them one by one."""

    def __init__(self, problems: Sequence[Problem], text: str = "") -> None:
        errors = [problem for problem in problems if problem.severity == "error"]
        super().__init__(f"{summarize(errors)} in the configuration\n{render(errors, text)}".rstrip("\n"))
        self.problems = tuple(errors)
        self.code, self.message, self.hint = errors[0].code.id, errors[0].message, errors[0].hint


class CallError(TrunklineError):
    """A call without a result: the tool is unknown, its server is down, or the call timed out.

    `executed` is `"no"` when the tool certainly did not run, else `"unknown"`. `retryable` says that trying again may
    help. A tool that ran and failed is no error of this kind but a result with `is_error`.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.code, self.message, self.hint = problem.code.id, problem.message, problem.hint
        self.server = problem.source
        self.tool = problem.tool
        self.executed: Executed = problem.executed
        self.retryable = problem.retryable


class ServerError(CallError):
    """The server refused the call with a JSON-RPC error of its own. `code` is empty: the number is the server's."""

    def __init__(self, server: str, tool: str, rpc_code: int, message: str, data: Any) -> None:
        TrunklineError.__init__(self, f"{server}: {message} ({rpc_code})")
        self.message = message
        self.server, self.tool = server, tool
        self.rpc_code = rpc_code
        self.data = data
        self.executed = "unknown"
        self.retryable = False
