"""Runs steps with a model behind a chat completions API: we are its agent, and the step's tools are its only ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from trunkline.agents.events import AgentEvent, ModelRetry
from trunkline.agents.providers.openai.loop import converse
from trunkline.agents.providers.openai.request import (
    ChatEndpoint,
    FunctionTool,
    KnownDialects,
    ModelTools,
    ToolOutput,
)
from trunkline.agents.runs.step import AgentTask, StepResult
from trunkline.agents.runs.step_gateway import StepGateway
from trunkline.core.call import Caller
from trunkline.core.errors import MODEL_KEY, STEP_TIMEOUT, GatewayError, Problem
from trunkline.gateway.library.errors import CallError, ServerError
from trunkline.gateway.library.results import CallResult, result_of, tool_of
from trunkline.protocol.mcp.tool_results import cut_text
from trunkline.router.router import Router
from trunkline.search.finder import server_tools


async def run_model(
    task: AgentTask,
    gateway: StepGateway | None,
    on_event: Callable[[AgentEvent], None],
    instructions: str,
    dialects: KnownDialects,
) -> StepResult:
    """Run a step. Cancelling this ends the conversation, and the calls in progress."""
    endpoint = endpoint_of(task)
    last: list[AgentEvent] = []

    def remember(event: AgentEvent) -> None:
        last[:] = [event]
        on_event(event)

    try:
        async with task.in_time():
            prompt, tools = (f"{instructions}\n{task.prompt}" if instructions else task.prompt), _tools_of(gateway)
            conversed = await converse(endpoint, prompt, tools, remember, dialects=dialects)
    except GatewayError as error:
        if error.problem.code is STEP_TIMEOUT and last and isinstance(last[0], ModelRetry):
            raise GatewayError(task.timeout_problem(f"its model could not be reached: {last[0].reason}")) from None
        raise
    return StepResult(output=conversed.text)


def endpoint_of(task: AgentTask) -> ChatEndpoint:
    """The endpoint of a step. Raises GatewayError where something that the file refers to is not set."""
    options = task.state.options
    if options.missing:
        hint = "`trunkline validate` shows where that is in the file"
        raise GatewayError(Problem(code=MODEL_KEY, message="; ".join(options.missing), where=task.name, hint=hint))
    return ChatEndpoint(
        base_url=options.base_url,
        api_key=options.api_key,
        headers=options.headers,
        model=task.model,
        max_turns=options.max_turns,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
    )


def _tools_of(gateway: StepGateway | None) -> ModelTools:
    if gateway is None:
        return NO_TOOLS
    limit_bytes = gateway.settings.gateway.limits.request_bytes
    return RouterTools(gateway.router, gateway.caller, limit_bytes=limit_bytes)


_NO_ARGUMENTS: Final = b"{}"
_MOST_CHARACTERS: Final = 50_000
"""The longest result: as much as other agents show their models."""


class _NoTools:
    """For a step without a proxy: the model has nothing to call."""

    def definitions(self) -> Sequence[FunctionTool]:
        return ()

    async def call(self, name: str, arguments: bytes) -> ToolOutput:
        return ToolOutput(text=f"There is no tool `{name}`", is_error=True)


NO_TOOLS: Final = _NoTools()


class RouterTools:
    """The tools of a router that `caller` sees, for the model. Cancelling a call cancels it in the router."""

    def __init__(self, router: Router, caller: Caller, *, limit_bytes: int) -> None:
        self._router = router
        self._caller = caller
        self._limit_bytes = limit_bytes

    def definitions(self) -> Sequence[FunctionTool]:
        tools = (tool_of(entry) for entry in server_tools(self._router.views.of(self._caller)))
        return [
            FunctionTool(name=tool.name, description=tool.description, parameters=tool.input_schema) for tool in tools
        ]

    async def call(self, name: str, arguments: bytes) -> ToolOutput:
        """Arguments pass as the model wrote them; it is told where they are no JSON object."""
        wrong = self._arguments_problem(arguments.strip())
        if wrong:
            return ToolOutput(text=wrong, is_error=True)
        try:
            result = await self._result(name, arguments.strip() or _NO_ARGUMENTS)
        except ServerError as error:
            return ToolOutput(text=error.message or str(error), is_error=True)
        except CallError as error:
            return ToolOutput(text=f"{error.code}: {error.message}", is_error=True)
        return ToolOutput(text=cut_text(result_text(result), _MOST_CHARACTERS), is_error=result.is_error)

    def _arguments_problem(self, arguments: bytes) -> str:
        if len(arguments) > self._limit_bytes:
            return f"The arguments have more than {self._limit_bytes} bytes"
        try:
            msgspec.json.decode(arguments or _NO_ARGUMENTS, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return f"The arguments are not a JSON object: {error}"
        return ""

    async def _result(self, name: str, arguments: bytes) -> CallResult:
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = self._router.call_tool(
            self._caller,
            name,
            {"arguments": msgspec.Raw(arguments)},
            lambda _: None if answered.done() else answered.set_result(None),
        )
        try:
            await answered
        except asyncio.CancelledError:
            call.cancel("the step ended")
            raise
        return result_of(call)


def result_text(result: CallResult) -> str:
    """A result as text: text as it is, everything else by its name. Structured content only without any other."""
    blocks = [_block_text(block) for block in result.content]
    if blocks or result.structured is None:
        return "\n".join(blocks)
    return msgspec.json.encode(result.structured).decode()


def _block_text(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource":
        return _resource_text(block.get("resource"))
    if kind == "resource_link":
        return f"[link: {block.get('uri', '')}]"
    return f"[{kind}: {block.get('mimeType', 'of unknown type')}, which cannot be shown here]"


def _resource_text(resource: object) -> str:
    held = cast(dict[str, Any], resource) if isinstance(resource, dict) else {}
    text = held.get("text")
    if isinstance(text, str):
        return text
    return f"[resource: {held.get('uri', '')} ({held.get('mimeType', 'of unknown type')}), which cannot be shown here]"
