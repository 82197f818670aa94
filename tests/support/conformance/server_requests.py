"""How the conformance backend asks its client: by a request of its own in the legacy era, by `input_required` in the
modern one. Tools and prompts say what they want to know and need not care which."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Params = types.CallToolRequestParams | types.GetPromptRequestParams
Question = dict[str, Any]
Answers = dict[str, dict[str, Any]]

_KINDS: dict[str, tuple[type[Any], type[Any], str]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult, "elicitation"),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult, "sampling"),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult, "roots"),
}


class InputRequired(Exception):
    """The result that asks the client of the modern era to come back with answers."""

    def __init__(self, questions: dict[str, Question], state: str | None) -> None:
        super().__init__("input required")
        self.result: dict[str, Any] = {"resultType": "input_required", "inputRequests": questions}
        if state is not None:
            self.result["requestState"] = state


def form(message: str, properties: dict[str, Any], required: list[str] | None = None) -> Question:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required is not None:
        schema["required"] = required
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(prompt: str, max_tokens: int = 100) -> Question:
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": max_tokens}}


def roots() -> Question:
    return {"method": "roots/list", "params": {}}


def is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def declared(ctx: Context, question: Question) -> bool:
    """Whether the client said that it can be asked this."""
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and getattr(capabilities, _KINDS[question["method"]][2]) is not None


async def ask(ctx: Context, params: Params, questions: dict[str, Question], state: str | None = None) -> Answers:
    """The client's answers by key. In the modern era a request without them ends here, with `InputRequired`."""
    if is_modern(ctx):
        given = params.input_responses or {}
        if not questions.keys() <= given.keys():
            raise InputRequired(questions, state)
        return {key: dumped(given[key]) for key in questions}
    answers: Answers = {}

    async def ask_one(key: str, question: Question) -> None:
        answers[key] = await send(ctx, question)

    async with anyio.create_task_group() as together:
        for key, question in questions.items():
            together.start_soon(ask_one, key, question)
    return answers


async def send(ctx: Context, question: Question) -> dict[str, Any]:
    """One request to a client of the legacy era, on the stream of the call that caused it."""
    request, result, _ = _KINDS[question["method"]]
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    return dumped(await ctx.session.send_request(request.model_validate(question), result, metadata=related))


def dumped(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
