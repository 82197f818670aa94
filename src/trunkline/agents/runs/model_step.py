"""A model behind a chat completions API: we are its agent, and its tools are those of the step and no others."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.agents.openai.endpoint import Endpoint
from trunkline.agents.openai.loop import converse
from trunkline.agents.openai.toolbox import Toolbox
from trunkline.agents.openai.wording import Wordings
from trunkline.agents.runs.agent_task import AgentTask
from trunkline.agents.runs.step_gateway import StepGateway
from trunkline.agents.runs.step_result import StepResult
from trunkline.agents.runs.toolbox import NO_TOOLS, RouterToolbox
from trunkline.agents.said import Retried, Said
from trunkline.core.errors import MODEL_KEY, STEP_TIMEOUT, GatewayError, Problem


async def run_model(
    task: AgentTask,
    gateway: StepGateway | None,
    on_said: Callable[[Said], None],
    instructions: str,
    wordings: Wordings,
) -> StepResult:
    """Cancelling this ends the conversation, and the calls that are under way."""
    endpoint = endpoint_of(task)
    last: list[Said] = []

    def heard(said: Said) -> None:
        last[:] = [said]
        on_said(said)

    try:
        async with task.in_time():
            told, tools = _told(task.prompt, instructions), _toolbox(gateway)
            conversed = await converse(endpoint, told, tools, heard, wordings=wordings)
    except GatewayError as error:
        if error.problem.code is STEP_TIMEOUT and last and isinstance(last[0], Retried):
            raise GatewayError(task.too_late(f"its model could not be reached: {last[0].reason}")) from None
        raise
    return StepResult(output=conversed.text)


def _told(prompt: str, instructions: str) -> str:
    """One message: not every model takes another one before it."""
    return f"{instructions}\n{prompt}" if instructions else prompt


def endpoint_of(task: AgentTask) -> Endpoint:
    """Raises GatewayError where something is not there that the file only refers to."""
    options = task.state.options
    if options.lacking:
        hint = "`trunkline validate` shows where that is in the file"
        raise GatewayError(Problem(code=MODEL_KEY, message="; ".join(options.lacking), where=task.name, hint=hint))
    return Endpoint(
        base_url=options.base_url,
        api_key=options.api_key,
        headers=options.headers,
        model=task.model,
        max_turns=options.max_turns,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
    )


def _toolbox(gateway: StepGateway | None) -> Toolbox:
    if gateway is None:
        return NO_TOOLS
    limit_bytes = gateway.settings.gateway.limits.request_bytes
    return RouterToolbox(gateway.router, gateway.caller, limit_bytes=limit_bytes)
