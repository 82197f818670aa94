"""Runs steps with a model behind a chat completions API: we are its agent, and the step's tools are its only ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from trunkline.agents.events import AgentEvent, ModelRetry
from trunkline.agents.lenient_json import mapping
from trunkline.agents.providers.openai.loop import converse
from trunkline.agents.providers.openai.request import ChatEndpoint, FunctionTool, KnownDialects, ModelTools
from trunkline.agents.runs.agent_gateway import AgentGateway
from trunkline.agents.runs.step import AgentTask, StepResult
from trunkline.core.call import Caller
from trunkline.core.errors import MODEL_KEY, STEP_TIMEOUT, GatewayError, Problem
from trunkline.gateway.library.errors import CallError, ServerError
from trunkline.gateway.library.results import CallResult, result_of, tool_of
from trunkline.protocol.mcp.tool_results import cut_text
from trunkline.router.router import Router
from trunkline.search.finder import server_tools


async def run_model(
    task: AgentTask,
    gateway: AgentGateway | None,
    on_event: Callable[[AgentEvent], None],
    instructions: str,
    dialects: KnownDialects,
) -> StepResult:
    """Run a step. Cancelling this ends the conversation, and the calls in progress."""
    endpoint = endpoint_of(task)
    tools: ModelTools = _NoTools()
    if gateway is not None:
        limit_bytes = gateway.settings.gateway.limits.request_bytes
        tools = RouterTools(gateway.router, gateway.caller, limit_bytes=limit_bytes)
    last: list[AgentEvent] = []

    def remember(event: AgentEvent) -> None:
        last[:] = [event]
        on_event(event)

    try:
        async with task.in_time():
            # in one message: not every model accepts another one before the prompt
            prompt = f"{instructions}\n{task.prompt}" if instructions else task.prompt
            output = await converse(endpoint, prompt, tools, remember, dialects=dialects)
    except GatewayError as error:
        if error.problem.code is STEP_TIMEOUT and last and isinstance(last[0], ModelRetry):
            raise GatewayError(task.timeout_problem(f"its model could not be reached: {last[0].reason}")) from None
        raise
    return StepResult(output=output)


def endpoint_of(task: AgentTask) -> ChatEndpoint:
    """The endpoint of a step. Raises GatewayError if something that the file refers to is not set."""
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


_MOST_CHARACTERS: Final = 50_000
"""The longest result: as much as other agents show their models."""


class _NoTools:
    """For a step without a proxy: the model has nothing to call."""

    def definitions(self) -> Sequence[FunctionTool]:
        return ()

    async def call(self, name: str, arguments: bytes) -> str:
        return f"There is no tool `{name}`"


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

    async def call(self, name: str, arguments: bytes) -> str:
        if len(arguments) > self._limit_bytes:
            return f"The arguments have more than {self._limit_bytes} bytes"
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
        try:
            result = result_of(call)
        except ServerError as error:
            return error.message or str(error)
        except CallError as error:
            return f"{error.code}: {error.message}"
        return cut_text(result_text(result), _MOST_CHARACTERS)


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
    unshown = "which cannot be shown here"
    if kind == "resource":
        held = mapping(block.get("resource"))
        if isinstance(text := held.get("text"), str):
            return text
        return f"[resource: {held.get('uri', '')} ({held.get('mimeType', 'of unknown type')}), {unshown}]"
    if kind == "resource_link":
        return f"[link: {block.get('uri', '')}]"
    return f"[{kind}: {block.get('mimeType', 'of unknown type')}, {unshown}]"
