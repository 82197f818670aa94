"""The conversation with a model: its turns, and the tool calls in between, until it wants no more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from trunkline.agents.events import AgentEvent, AgentText, FinalAnswer, ToolsOffered
from trunkline.agents.final_answer import answer_problem
from trunkline.agents.providers.openai.client import ChatClient
from trunkline.agents.providers.openai.reasoning import SIGNATURES
from trunkline.agents.providers.openai.request import (
    DEFAULT_LIMITS,
    ChatEndpoint,
    ChatLimits,
    FunctionTool,
    KnownDialects,
    Message,
    ModelToolCall,
    ModelTools,
    ModelTurn,
    arguments_of,
    assistant_message,
    model_error,
    tool_message,
    user_message,
)
from trunkline.core.errors import MODEL_LOOP, MODEL_REFUSED, MODEL_STREAM, TURN_LIMIT, GatewayError

CALLS_AT_ONCE: Final = 64
_ANNOUNCED: Final = frozenset(
    {"tool_calls", "function_call", "tool_use", "function_call_filter", "malformed_function_call"}
)
_CUT: Final = frozenset({"length", "max_tokens", "model_length"})
_FILTERED: Final = frozenset({"content_filter", "refusal", "safety", "sensitive"})
"""Servers' names for the same finish reasons, in lower case and without what follows a colon."""
_PREFIX: Final = re.compile(r"(?:functions|default_api)[.:](.+)", re.DOTALL)
_NUMBER: Final = re.compile(r":\d{1,4}\Z")
_SHOWN_CHARACTERS: Final = 200


async def converse(
    endpoint: ChatEndpoint,
    prompt: str,
    tools: ModelTools,
    on_event: Callable[[AgentEvent], None],
    *,
    limits: ChatLimits = DEFAULT_LIMITS,
    dialects: KnownDialects | None = None,
) -> str:
    """The model's answer to the prompt, with these tools. `dialects` holds what earlier conversations learned. Raises
    GatewayError. Cancelling this closes the connection and ends the running calls."""
    client = ChatClient(endpoint, limits, on_event, {} if dialects is None else dialects)
    try:
        return await _Conversation(endpoint, client, tools, on_event).run(prompt)
    finally:
        await client.close()


class _Conversation:
    def __init__(
        self, endpoint: ChatEndpoint, client: ChatClient, tools: ModelTools, on_event: Callable[[AgentEvent], None]
    ) -> None:
        self._max_turns = endpoint.max_turns
        self._client = client
        self._tools = tools
        self._on_event = on_event

    async def run(self, prompt: str) -> str:
        messages: list[Message] = [user_message(prompt)]
        self._on_event(ToolsOffered(tuple(definition.name for definition in self._tools.definitions())))
        for number in range(self._max_turns):
            definitions = self._tools.definitions()
            known = frozenset(definition.name for definition in definitions)
            turn = await self._client.turn(number, messages, definitions)
            turn = replace(turn, calls=tuple(replace(call, name=_canonical(call.name, known)) for call in turn.calls))
            _refuse_unusable(turn)
            if not turn.calls:
                return self._finished(turn, known)
            if turn.text:
                self._on_event(AgentText(turn.text))
            if number + 1 < self._max_turns:  # otherwise the results would go nowhere
                messages += [assistant_message(turn), *await self._results(turn.calls, definitions)]
        raise model_error(
            TURN_LIMIT,
            f"the model still asks for tools after {self._max_turns} turns",
            "Raise `options.max_turns`, or give the model a smaller task",
        )

    def _finished(self, turn: ModelTurn, known: Collection[str]) -> str:
        """The answer in the last turn. Raises GatewayError if there is none."""
        reasoned = any(value for name, value in turn.extra.items() if name not in SIGNATURES)
        problem = answer_problem(
            "the model", turn.text, lambda name: _canonical(name, known) in known, reasoned=reasoned
        )
        if problem is not None:
            raise GatewayError(problem)
        self._on_event(FinalAnswer(turn.text))
        return turn.text

    async def _results(self, calls: Sequence[ModelToolCall], definitions: Sequence[FunctionTool]) -> list[Message]:
        """The results in the order of the calls, which run concurrently."""
        limit, known = asyncio.Semaphore(CALLS_AT_ONCE), [definition.name for definition in definitions]

        async def result(call: ModelToolCall) -> Message:
            async with limit:
                return tool_message(call, await self._text_of(call, known))

        loop = asyncio.get_running_loop()
        running = [loop.create_task(result(call)) for call in calls]
        try:
            return list(await asyncio.gather(*running))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _text_of(self, call: ModelToolCall, known: Sequence[str]) -> str:
        """The result as text. A model that got a call wrong is told so, and can correct it in its next turn."""
        if call.name not in known:
            return f"Error: there is no tool `{call.name}`. The tools are: {', '.join(known) or 'none'}"
        arguments = arguments_of(call)
        if arguments is None:
            return f"Error: the arguments are not a JSON object: {call.arguments[:_SHOWN_CHARACTERS]}"
        return await self._tools.call(call.name, arguments)


def _canonical(name: str, known: Collection[str]) -> str:
    """The tool's real name. Some models put their template's namespace before it, and the number of the call after
    it."""
    bare = name.strip()
    if (prefixed := _PREFIX.fullmatch(bare)) is not None:
        bare = prefixed[1]
    return next((meant for meant in (name, bare, _NUMBER.sub("", bare)) if meant in known), name)


def _refuse_unusable(turn: ModelTurn) -> None:
    """Raise GatewayError for turns that cannot be continued, or that a filter or a limit has changed."""
    end = turn.finish_reason.partition(":")[0].strip().lower()
    if end in _FILTERED:
        raise model_error(MODEL_REFUSED, "the server's content filter stopped the model", "Change the prompt")
    if end in _CUT and (not turn.calls or arguments_of(turn.calls[-1]) is None):
        message = "the model's answer was cut off at its token limit"
        raise model_error(MODEL_STREAM, message, "Raise `options.max_tokens`, or give the model a smaller task")
    if not turn.calls and end in _ANNOUNCED:
        raise model_error(
            MODEL_LOOP,
            f"the model's turn ended with `{end}` but contains no call",
            "Start the model's server with the tool parser for this model, or use another model",
        )
    if any(not call.name for call in turn.calls):
        raise model_error(MODEL_STREAM, "the model calls a tool without a name", "")
