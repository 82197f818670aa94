"""A step's tools for a model that we talk to ourselves: from its calls to the router, and back as text."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from trunkline.agents.openai.toolbox import ToolAnswer, ToolOffer
from trunkline.core.call import Caller
from trunkline.gateway.library.errors import CallError, ServerError
from trunkline.gateway.library.results import CallResult, result_of, tool_of
from trunkline.protocol.mcp.short_result import cut_text
from trunkline.router.router import Router
from trunkline.search.answers import offered

_NO_ARGUMENTS: Final = b"{}"
_MOST_CHARACTERS: Final = 50_000
"""Of one result: as much as other agents show their models."""


class _NoTools:
    """For a step without a proxy: the model has nothing to call."""

    def offers(self) -> Sequence[ToolOffer]:
        return ()

    async def call(self, name: str, arguments: bytes) -> ToolAnswer:
        return ToolAnswer(text=f"There is no tool `{name}`", is_error=True)


NO_TOOLS: Final = _NoTools()


class RouterToolbox:
    """What `caller` sees of a router. A call that nobody waits for any more is taken back."""

    def __init__(self, router: Router, caller: Caller, *, limit_bytes: int) -> None:
        self._router = router
        self._caller = caller
        self._limit_bytes = limit_bytes

    def offers(self) -> Sequence[ToolOffer]:
        tools = (tool_of(entry) for entry in offered(self._router.views.of(self._caller)))
        return [ToolOffer(name=tool.name, description=tool.description, parameters=tool.input_schema) for tool in tools]

    async def call(self, name: str, arguments: bytes) -> ToolAnswer:
        """Arguments pass as the model wrote them; what is no JSON object is told to it."""
        wrong = self._wrong_with(arguments.strip())
        if wrong:
            return ToolAnswer(text=wrong, is_error=True)
        try:
            result = await self._result(name, arguments.strip() or _NO_ARGUMENTS)
        except ServerError as error:
            return ToolAnswer(text=error.message or str(error), is_error=True)
        except CallError as error:
            return ToolAnswer(text=f"{error.code}: {error.message}", is_error=True)
        return ToolAnswer(text=cut_text(text_of(result), _MOST_CHARACTERS), is_error=result.is_error)

    def _wrong_with(self, arguments: bytes) -> str:
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


def text_of(result: CallResult) -> str:
    """A result for a model that reads text: text as it is, everything else by its name. Structured content only where
    there is nothing else."""
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
