"""Tools over REST: find them, be given them, run them, and what they cost. The same as the gateway's own tools do, also
where those are switched off.

A caller has no session here: what it is given is its principal's, or that of the handle it names as `session`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from trunkline.core.call import Call, Caller
from trunkline.core.errors import DEADLINE, GatewayError, Problem
from trunkline.frontends.http.call_answers import answer_call, answer_problem
from trunkline.frontends.http.operator import switches
from trunkline.frontends.http.trace import trace_in
from trunkline.frontends.mcp.client_calls import ClientCalls
from trunkline.frontends.rest.rest import Visit
from trunkline.frontends.rest.tool_requests import in_body, in_query, refusing
from trunkline.router.router import Router
from trunkline.runtime.deadlines import Deadline
from trunkline.search.arguments import Discover, Execute, Provision, Unprovision
from trunkline.search.budget import budget, when_counted
from trunkline.search.discovery import Discovery

TOOLS: Final = "tools"
_PATIENCE_S: Final = 30.0


class ToolsApi:
    """`calls_of` gives what a principal has in flight, whichever door it came in by."""

    def __init__(self, router: Router, discovery: Discovery, calls_of: Callable[[str], ClientCalls]) -> None:
        self._router = router
        self._discovery = discovery
        self._calls_of = calls_of

    # -- finding and being given ----------------------------------------------------------------------------------

    def discover_by_query(self, visit: Visit) -> None:
        self._discover(visit, in_query(visit.request))

    def discover(self, visit: Visit) -> None:
        self._discover(visit, in_body(visit.request, Discover))

    def _discover(self, visit: Visit, asked: Discover) -> None:
        later = _Later(visit, "The search")
        with refusing():
            self._discovery.discover(_caller(visit), asked, later.answer_with)
        later.begin()

    def provision(self, visit: Visit) -> None:
        asked = in_body(visit.request, Provision)
        later = _Later(visit, "Waiting for the servers")
        # Right after a start a server may not have said yet what it offers.
        self._router.when_listed(lambda: later.answer_with(partial(self._discovery.provision, _caller(visit), asked)))
        later.begin()

    def unprovision(self, visit: Visit) -> None:
        asked = in_body(visit.request, Unprovision)
        with refusing():
            visit.answer(200, self._discovery.unprovision(_caller(visit), asked))

    # -- costs ----------------------------------------------------------------------------------------------------

    def budget(self, visit: Visit) -> None:
        with_tools = switches(visit.request, TOOLS, otherwise=True)[TOOLS]
        catalog = self._router.views.of(_caller(visit))
        later = _Later(visit, "Counting tokens")

        def counted() -> None:
            told = budget(self._discovery, catalog)
            later.answer(told if with_tools else {name: value for name, value in told.items() if name != TOOLS})

        self._router.when_listed(lambda: when_counted(self._discovery, catalog, counted))
        later.begin()

    # -- running --------------------------------------------------------------------------------------------------

    def execute(self, visit: Visit) -> None:
        """Whatever becomes of it, the answer says whether the tool may have run."""
        try:
            self._execute(visit)
        except GatewayError as error:
            self._router.events.count("requests_refused", error.problem.code.id)
            answer_problem(visit, error.problem)

    def _execute(self, visit: Visit) -> None:
        """The call that an MCP client would make of the tool: one path, with every rule and limit of it."""
        caller, exchange = _caller(visit), visit.exchange
        asked = in_body(visit.request, Execute)
        with refusing():
            name, members = self._discovery.execution.target(caller, asked)
        calls = self._calls_of(visit.principal)
        refusal = calls.refusal(exchange)
        if refusal is not None:
            raise GatewayError(refusal)
        call = self._router.call_tool(
            caller, name, members, partial(_ended, visit, calls), meta=trace_in(visit.request.headers)
        )
        if not call.done:
            calls.add(exchange, call)
            exchange.on_gone = lambda: _cancel(call)


def _ended(visit: Visit, calls: ClientCalls, call: Call) -> None:
    calls.remove(visit.exchange)
    answer_call(visit, call)


def _cancel(call: Call) -> None:
    call.cancel("the client closed the connection")


def _caller(visit: Visit) -> Caller:
    return Caller(visit.principal)


class _Later:
    """An answer that may have to wait for something. It comes in time, or the client is told that it did not."""

    def __init__(self, visit: Visit, what: str) -> None:
        self._visit = visit
        self._what = what
        self._timer: Deadline | None = None

    def begin(self) -> None:
        """Unless it was answered by now."""
        if not self._visit.exchange.over:
            self._timer = Deadline(_PATIENCE_S, self._too_late)
            self._visit.exchange.on_gone = self._timer.cancel

    def answer(self, document: dict[str, Any]) -> None:
        self._stop()
        self._visit.answer(200, document)

    def answer_with(self, make: Callable[[], dict[str, Any]]) -> None:
        if self._visit.exchange.over:  # too late, or nobody waits any more
            return
        try:
            with refusing():
                self.answer(make())
        except GatewayError as error:
            self._stop()
            answer_problem(self._visit, error.problem)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _too_late(self) -> None:
        message = f"{self._what} took more than {_PATIENCE_S:g} seconds"
        answer_problem(self._visit, Problem(code=DEADLINE, message=message, retryable=True))
