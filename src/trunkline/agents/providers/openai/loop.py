"""The conversation: turns of the model, and the calls it wants in between, until it wants no more."""

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
    ConversationResult,
    KnownDialects,
    Message,
    ModelToolCall,
    ModelTools,
    ModelTurn,
    ToolDefinition,
    arguments_of,
    assistant_message,
    tool_message,
    user_message,
)
from trunkline.core.errors import MODEL_LOOP, MODEL_REFUSED, MODEL_STREAM, TURN_LIMIT, Code, GatewayError, Problem

CALLS_AT_ONCE: Final = 64
_ANNOUNCED: Final = frozenset(
    {"tool_calls", "function_call", "tool_use", "function_call_filter", "malformed_function_call"}
)
_CUT: Final = frozenset({"length", "max_tokens", "model_length"})
_FILTERED: Final = frozenset({"content_filter", "refusal", "safety", "sensitive"})
"""How servers name the same ends of a turn, in small letters and without what follows a colon."""
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
) -> ConversationResult:
    """Have the model work on the prompt with these tools. `dialects` is what conversations before have learned. Raises
    GatewayError; whoever cancels this closes the connection and ends the calls that run."""
    asking = ChatClient(endpoint, limits, on_event, {} if dialects is None else dialects)
    try:
        return await _Conversation(endpoint, asking, tools, on_event).go_on(prompt)
    finally:
        await asking.close()


class _Conversation:
    def __init__(
        self, endpoint: ChatEndpoint, asking: ChatClient, tools: ModelTools, on_event: Callable[[AgentEvent], None]
    ) -> None:
        self._max_turns = endpoint.max_turns
        self._client = asking
        self._tools = tools
        self._on_event = on_event
        self._calls = 0

    async def go_on(self, prompt: str) -> ConversationResult:
        messages: list[Message] = [user_message(prompt)]
        self._on_event(ToolsOffered(tuple(definition.name for definition in self._tools.definitions())))
        for number in range(self._max_turns):
            definitions = self._tools.definitions()
            known = frozenset(definition.name for definition in definitions)
            turn = _with_names(await self._client.turn(number, messages, definitions), known)
            self._calls += len(turn.calls)
            _refuse_unusable(turn)
            _refuse_no_answer(turn, known)
            if not turn.calls:
                return self._over(turn, number + 1)
            if turn.text:
                self._on_event(AgentText(turn.text))
            if number + 1 < self._max_turns:  # else nobody would see what they came to
                messages += [assistant_message(turn), *await self._results(turn.calls, definitions)]
        raise _failed(
            TURN_LIMIT,
            f"the model still asks for tools after {self._max_turns} turns",
            "Raise `options.max_turns`, or give the model a smaller task",
        )

    def _over(self, turn: ModelTurn, turns: int) -> ConversationResult:
        self._on_event(FinalAnswer(turn.text))
        return ConversationResult(
            text=turn.text,
            input_tokens=self._client.spent.input_tokens,
            output_tokens=self._client.spent.output_tokens,
            turns=turns,
            calls=self._calls,
        )

    # -- calls ----------------------------------------------------------------------------------------------------

    async def _results(self, calls: Sequence[ModelToolCall], definitions: Sequence[ToolDefinition]) -> list[Message]:
        """The answers in the order of the calls, which run side by side."""
        gate, known = asyncio.Semaphore(CALLS_AT_ONCE), [definition.name for definition in definitions]

        async def result(call: ModelToolCall) -> Message:
            async with gate:
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
        """A model that got a call wrong is told so: it can do better in its next turn."""
        if call.name not in known:
            return f"Error: there is no tool `{call.name}`. The tools are: {', '.join(known) or 'none'}"
        arguments = arguments_of(call)
        if arguments is None:
            return f"Error: the arguments are not a JSON object: {call.arguments[:_SHOWN_CHARACTERS]}"
        return (await self._tools.call(call.name, arguments)).text


def _with_names(turn: ModelTurn, known: Collection[str]) -> ModelTurn:
    """The turn with tools called by the names that they have."""
    if all(call.name in known for call in turn.calls):
        return turn
    return replace(turn, calls=tuple(replace(call, name=_meant(call.name, known)) for call in turn.calls))


def _meant(name: str, known: Collection[str]) -> str:
    """Some models put the name of the group before that of the tool, as their templates do, and the number of the call
    behind it."""
    bare = name.strip()
    if (prefixed := _PREFIX.fullmatch(bare)) is not None:
        bare = prefixed[1]
    return next((meant for meant in (name, bare, _NUMBER.sub("", bare)) if meant in known), name)


def _refuse_no_answer(turn: ModelTurn, known: Collection[str]) -> None:
    if turn.calls:
        return
    reasoned = any(value for name, value in turn.extra.items() if name not in SIGNATURES)
    problem = answer_problem("the model", turn.text, lambda name: _meant(name, known) in known, reasoned=reasoned)
    if problem is not None:
        raise GatewayError(problem)


def _refuse_unusable(turn: ModelTurn) -> None:
    """Turns that cannot be answered, or that are not what the model would have said."""
    end = turn.finish_reason.partition(":")[0].strip().lower()
    cut = end in _CUT
    if end in _FILTERED:
        raise _failed(MODEL_REFUSED, "the server's content filter stopped the model", "Change the prompt")
    if cut and (not turn.calls or arguments_of(turn.calls[-1]) is None):
        raise _failed(MODEL_STREAM, "the model reached its longest answer in the middle of it", _LENGTH)
    if not turn.calls and end in _ANNOUNCED:
        raise _failed(
            MODEL_LOOP,
            f"the model's turn ended with `{end}` but has no call in it",
            "Start the model's server with the tool parser for this model, or use another model",
        )
    if any(not call.name for call in turn.calls):
        raise _failed(MODEL_STREAM, "the model calls a tool without a name", "")


_LENGTH: Final = "Raise `options.max_tokens`, or give the model a smaller task"


def _failed(code: Code, message: str, hint: str) -> GatewayError:
    return GatewayError(Problem(code=code, message=message, hint=hint))
