"""What a run comes to, from what the agent lets us know on the way: its answer, or why it may not go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trunkline.agents.events import Answered, Complained, Looped, Offered, Retried, Said, Spent, Used
from trunkline.agents.providers.provider import Mode, Provider
from trunkline.core.errors import MODEL_LOOP, NATIVE_TOOL, TOOLS_LOST, TOOLS_NOT_LISTED, Problem


class Hearing:
    """Reads the agent's lines. `stopped` is done as soon as the run must not go on; `why_stopped` tells the reason."""

    def __init__(self, provider: Provider, mode: Mode, on_said: Callable[[Said], None]) -> None:
        self._provider = provider
        self._mode = mode
        self._on_said = on_said
        self._reader = provider.reader()
        self._offered_tools: tuple[str, ...] = ()
        self._problem: Problem | None = None
        self._fault: Exception | None = None
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer: str | None = None
        self.answered_at = 0.0
        """When that was, by the loop's clock."""
        self.complaint = ""
        self.spent = Spent(0, 0)
        self.retried: Retried | None = None
        """How its model could not be reached, if that is how things are now."""

    def why_stopped(self) -> Problem | None:
        """None where it may go on. Raises what went wrong with us while we listened."""
        if self._fault is not None:
            raise self._fault
        return self._problem

    def offers(self, tool: str) -> bool:
        """Whether its model has a tool of this name, as far as is known."""
        return tool in self._offered_tools or (self._mode != "native" and self._provider.is_ours(tool))

    def line(self, line: str) -> None:
        if self.stopped.done():
            return
        try:
            for said in self._reader.line(line):
                self._hear(said)
        except Exception as error:  # a callback of the loop: nobody else would hear of it
            self._fault = error
            self._stop(None)

    def _hear(self, said: Said) -> None:
        self._on_said(said)
        if not isinstance(said, Complained):
            self.retried = said if isinstance(said, Retried) else None
        match said:
            case Offered(tools):
                self._offered_tools = tools
                self._offered(tools)
            case Used(tool, ran=True) if self._mode == "intercept" and not self._provider.is_ours(tool):
                self._stop(native_tool(self._provider.name, "used", (tool,)))
            case Looped():
                self._stop(looped(self._provider.name))
            case Answered(text):
                self.answer, self.answered_at = text, self.stopped.get_loop().time()
            case Spent():
                self.spent = said
            case Complained(message):
                self.complaint = message
            case _:
                pass

    def _offered(self, tools: tuple[str, ...]) -> None:
        if self._mode == "native":
            return
        native = tuple(tool for tool in tools if not self._provider.is_ours(tool))
        if self._mode == "intercept" and native:
            self._stop(native_tool(self._provider.name, "was offered", native))
        elif len(native) == len(tools):
            self._stop(not_listed(self._provider.name, "began without the tools it was given"))

    def _stop(self, problem: Problem | None) -> None:
        if not self.stopped.done():
            self._problem = problem
            self.stopped.set_result(None)


def native_tool(agent: str, what: str, tools: tuple[str, ...]) -> Problem:
    names = ", ".join(f"`{tool}`" for tool in tools[:5]) + (" …" if len(tools) > 5 else "")
    return Problem(
        code=NATIVE_TOOL,
        message=f"`{agent}` {what} tools of its own: {names}",
        where=agent,
        hint="use a version that is verified, or `intercept_builtins: false` if its own tools may stay",
    )


def looped(agent: str) -> Problem:
    return Problem(
        code=MODEL_LOOP,
        message=f"the model of `{agent}` announces tool calls again and again, and makes none",
        where=agent,
        hint="start its server with the tool parser of this model, or use another model",
    )


def not_listed(agent: str, what: str) -> Problem:
    return Problem(
        code=TOOLS_NOT_LISTED,
        message=f"`{agent}` {what}, so what it says counts for nothing",
        where=agent,
        hint="use a version that is verified; what it wrote to stderr may tell more",
    )


def tools_lost(agent: str, tools: tuple[str, ...]) -> Problem:
    """`tools` are those whose calls were under way."""
    names = ", ".join(f"`{tool}`" for tool in dict.fromkeys(tools))
    return Problem(
        code=TOOLS_LOST,
        message=f"The program by which `{agent}` reaches its tools ended in the middle of a call of {names}, which was "
        "cancelled: how far it came is not known",
        where=agent,
        hint="was `mcp-serve` killed? The end of the system's log tells, for example of too little memory",
        executed="unknown",
    )
