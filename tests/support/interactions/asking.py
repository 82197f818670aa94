"""How the feature server asks its client: at once on an old connection, by `input_required` on a new one.

Tools say what they want to know with `RequestContext.ask`; which of the two ways it takes is decided here alone.
Answers of earlier rounds travel in `requestState`, whose checksum shows that it came back as it was sent.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)

MODERN = "2026-07-28"
_RESULTS: dict[str, Any] = {
    "sampling/createMessage": CreateMessageResult,
    "elicitation/create": ElicitResult,
    "roots/list": ListRootsResult,
}


class InputNeeded(Exception):
    """The request ends here, for now: the client is asked."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("input needed")
        self.result = result


class RequestContext:
    """One request that the server is answering, and the way to whoever made it."""

    def __init__(self, ctx: ServerRequestContext[Any, Any], params: Any) -> None:
        self.ctx = ctx
        self.params = params
        self.modern = ctx.protocol_version == MODERN
        self._answers: dict[str, Any] = opened(getattr(params, "request_state", None))
        for key, answer in (getattr(params, "input_responses", None) or {}).items():
            self._answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    @property
    def arguments(self) -> dict[str, Any]:
        return self.params.arguments or {}

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the client declared, as it declared it."""
        declared = self.ctx.session.client_capabilities
        return {} if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def ask(self, **questions: InputRequest) -> dict[str, Any]:
        """The answers, by key. All questions of one call are asked at once."""
        if not self.modern:
            answers = await asyncio.gather(*(self._send(question) for question in questions.values()))
            return dict(zip(questions, answers, strict=True))
        missing = {key: question for key, question in questions.items() if key not in self._answers}
        if missing:
            raise InputNeeded(InputRequiredResult(input_requests=missing, request_state=sealed(self._answers)))
        return {key: self._answers[key] for key in questions}

    async def _send(self, question: InputRequest) -> dict[str, Any]:
        related = ServerMessageMetadata(related_request_id=self.ctx.request_id)
        answer = await self.ctx.session.send_request(question, _RESULTS[question.method], metadata=related)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def sealed(answers: dict[str, Any]) -> str:
    text = base64.b64encode(json.dumps(answers).encode()).decode()
    return f"{text}.{hashlib.sha256(text.encode()).hexdigest()}"


def opened(state: str | None) -> dict[str, Any]:
    if state is None:
        return {}
    text, _, checksum = state.partition(".")
    if hashlib.sha256(text.encode()).hexdigest() != checksum:
        raise MCPError(INVALID_PARAMS, "the request state is not what was sent")
    return json.loads(base64.b64decode(text))


# The questions --------------------------------------------------------------------------------------------------------


def sampling(text: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(text=text))
    return CreateMessageRequest(
        params=CreateMessageRequestParams(messages=[message], max_tokens=100, system_prompt="Be brief.")
    )


def form(message: str, **properties: dict[str, Any]) -> ElicitRequest:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def visit(message: str, url: str, elicitation_id: str, *, modern: bool) -> ElicitRequest:
    """Elicitations by URL have an id on the old wire only."""
    identity = {} if modern else {"elicitation_id": elicitation_id}
    return ElicitRequest(params=ElicitRequestURLParams(message=message, url=url, **identity))


def roots() -> ListRootsRequest:
    return ListRootsRequest()
