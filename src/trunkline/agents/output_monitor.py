"""Follows the output of an agent's run: its answer, or why the run must be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trunkline.agents import events
from trunkline.agents.providers.provider import Mode, Provider
from trunkline.core.errors import MODEL_LOOP, NATIVE_TOOL, TOOLS_LOST, TOOLS_NOT_LISTED, Problem


class OutputMonitor:
    """Parses the agent's lines. `stopped` is done as soon as the run must not continue; `stop_reason` tells why."""

    def __init__(self, provider: Provider, mode: Mode, on_event: Callable[[events.AgentEvent], None]) -> None:
        self._provider = provider
        self._mode = mode
        self._on_event = on_event
        self._parser = provider.parser()
        self._offered_tools: tuple[str, ...] = ()
        self._problem: Problem | None = None
        self._fault: Exception | None = None
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer: str | None = None
        self.answered_at = 0.0
        """The time of the answer, by the loop's clock."""
        self.reported_error = ""
        self.usage = events.TokenUsage(0, 0)
        self.retried: events.ModelRetry | None = None
        """The last failure to reach the model, if nothing came after it."""

    def stop_reason(self) -> Problem | None:
        """None if the run may continue. Raises what our own handling of a line raised."""
        if self._fault is not None:
            raise self._fault
        return self._problem

    def has_tool(self, tool: str) -> bool:
        """Whether its model has a tool of this name, as far as is known."""
        return tool in self._offered_tools or (self._mode != "native" and self._provider.is_ours(tool))

    def line(self, line: str) -> None:
        if self.stopped.done():
            return
        try:
            for event in self._parser.line(line):
                self._handle(event)
        except Exception as error:  # in a callback of the loop it would only be logged
            self._fault = error
            self._stop(None)

    def _handle(self, event: events.AgentEvent) -> None:
        self._on_event(event)
        if not isinstance(event, events.AgentError):
            self.retried = event if isinstance(event, events.ModelRetry) else None
        match event:
            case events.ToolsOffered(tools):
                self._offered_tools = tools
                if self._mode != "native":
                    self._check_offered(tools)
            case events.NativeToolUsed(tool, ran=True) if self._mode == "intercept" and not self._provider.is_ours(
                tool
            ):
                self._stop(native_tool_problem(self._provider.name, "used", (tool,)))
            case events.ModelLooping():
                message = f"the model of `{self._provider.name}` keeps announcing tool calls and makes none"
                hint = "start its server with the tool parser for this model, or use another model"
                self._stop(Problem(code=MODEL_LOOP, message=message, where=self._provider.name, hint=hint))
            case events.FinalAnswer(text):
                self.answer, self.answered_at = text, self.stopped.get_loop().time()
            case events.TokenUsage():
                self.usage = event
            case events.AgentError(message):
                self.reported_error = message
            case _:
                pass

    def _check_offered(self, tools: tuple[str, ...]) -> None:
        native = tuple(tool for tool in tools if not self._provider.is_ours(tool))
        if self._mode == "intercept" and native:
            self._stop(native_tool_problem(self._provider.name, "was offered", native))
        elif len(native) == len(tools):
            self._stop(not_listed_problem(self._provider.name, "began without the tools it was given"))

    def _stop(self, problem: Problem | None) -> None:
        if not self.stopped.done():
            self._problem = problem
            self.stopped.set_result(None)


def native_tool_problem(agent: str, what: str, tools: tuple[str, ...]) -> Problem:
    names = ", ".join(f"`{tool}`" for tool in tools[:5]) + (" …" if len(tools) > 5 else "")
    return Problem(
        code=NATIVE_TOOL,
        message=f"`{agent}` {what} tools of its own: {names}",
        where=agent,
        hint="use a version that is verified, or `intercept_builtins: false` if its own tools may stay",
    )


def not_listed_problem(agent: str, what: str) -> Problem:
    return Problem(
        code=TOOLS_NOT_LISTED,
        message=f"`{agent}` {what}, so its answer does not count",
        where=agent,
        hint="use a version that is verified; its stderr may say more",
    )


def tools_lost_problem(agent: str, tools: tuple[str, ...]) -> Problem:
    """`tools` are those whose calls were in progress."""
    names = ", ".join(f"`{tool}`" for tool in dict.fromkeys(tools))
    return Problem(
        code=TOOLS_LOST,
        message=f"The program by which `{agent}` reaches its tools ended in the middle of a call of {names}, which was "
        "cancelled; whether it took effect is not known",
        where=agent,
        hint="was `mcp-serve` killed? The end of the system log may say why, for example too little memory",
        executed="unknown",
    )
