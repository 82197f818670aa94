"""What Claude Code prints in its format `stream-json`: one event per line, from its first words to its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from trunkline.agents.json_lines import count, listed, mapping, object_of, text
from trunkline.agents.said import Answered, Complained, Offered, Retried, Said, Spent, Spoke, Used

_REFUSALS: Final = ("<tool_use_error>Error: No such tool available", "Claude requested permissions to use")
"""How it begins to say that a call was not carried out. Anything else counts as carried out, a failure too; what a tool
printed before it failed may hold any words."""


class ClaudeReader:
    """`is_ours` tells our tools from its own."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._own_calls: dict[str, str] = {}
        self._spent: dict[str, Spent] = {}

    def line(self, line: str, /) -> Iterator[Said]:
        event = object_of(line)
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                yield Offered(tuple(map(text, listed(event.get("tools")))))
            case "system" if event.get("subtype") == "api_retry":
                yield Retried(count(event.get("attempt")), count(event.get("max_retries")), _reason(event))
            case "assistant":
                yield from self._assistant(mapping(event.get("message")))
            case "user":
                yield from self._results(mapping(event.get("message")))
            case "result":
                yield from _result(event)
            case _:
                return

    def _assistant(self, message: Mapping[str, Any]) -> Iterator[Said]:
        for block in map(mapping, listed(message.get("content"))):
            if block.get("type") == "text" and (words := text(block.get("text"))):
                yield Spoke(words)
            elif block.get("type") == "tool_use" and not self._is_ours(name := text(block.get("name"))):
                self._own_calls[text(block.get("id"))] = name
        self._spent[text(message.get("id"))] = _tokens(message)
        spent = self._spent.values()
        yield Spent(sum(one.input_tokens for one in spent), sum(one.output_tokens for one in spent))

    def _results(self, message: Mapping[str, Any]) -> Iterator[Said]:
        for block in map(mapping, listed(message.get("content"))):
            if block.get("type") == "tool_result":
                name = self._own_calls.pop(text(block.get("tool_use_id")), None)
                if name is not None:
                    yield Used(name, ran=not _refused(block))


def _reason(retry: Mapping[str, Any]) -> str:
    """Without a status there was no answer at all, and it says no more than `unknown`."""
    if not (status := count(retry.get("error_status"))):
        return "no answer"
    return " ".join((f"status {status}", text(retry.get("error")))).strip()


def _refused(block: Mapping[str, Any]) -> bool:
    content = block.get("content")
    words = text(content) or " ".join(text(mapping(part).get("text")) for part in listed(content))
    return block.get("is_error") is True and words.startswith(_REFUSALS)


def _result(event: Mapping[str, Any]) -> Iterator[Said]:
    """Its last event. A refused request to the model, too, has the subtype `success`, and its message as result."""
    if event.get("usage"):
        yield _tokens(event)
    if event.get("is_error") is True or event.get("subtype") != "success":
        reasons = [text(reason) for reason in listed(event.get("errors"))]
        yield Complained("; ".join(filter(None, [text(event.get("result")), *reasons])) or text(event.get("subtype")))
    else:
        yield Answered(text(event.get("result")))


def _tokens(owner: Mapping[str, Any]) -> Spent:
    """What was read from a cache, or put into one, was input as well."""
    usage = mapping(owner.get("usage"))
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Spent(sum(count(usage.get(name)) for name in names), count(usage.get("output_tokens")))
