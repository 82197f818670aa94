"""What Gemini CLI prints in its format `stream-json`: one event per line, from its first words to its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from trunkline.agents.json_lines import count, mapping, object_of, text
from trunkline.agents.said import Answered, Complained, Said, Spent, Spoke, Used

_REFUSALS: Final = ("tool_not_registered", "policy_violation", "invalid_tool_params")
"""Errors of a call that was not carried out. Any other counts as carried out."""


class GeminiReader:
    """`is_ours` tells our tools from its own. What the model said since its last call is its answer."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._own_calls: dict[str, str] = {}
        self._words: list[str] = []

    def line(self, line: str, /) -> Iterator[Said]:
        event = object_of(line)
        match event.get("type"):
            case "message" if event.get("role") == "assistant" and (words := text(event.get("content"))):
                self._words.append(words)
                yield Spoke(words)
            case "tool_use":
                self._words.clear()
                if not self._is_ours(name := text(event.get("tool_name"))):
                    self._own_calls[text(event.get("tool_id"))] = name
            case "tool_result" if (own := self._own_calls.pop(text(event.get("tool_id")), None)) is not None:
                yield Used(own, ran=not _refused(event))
            case "error" if event.get("severity") == "error":
                yield Complained(text(event.get("message")))
            case "result":
                yield from self._result(event)
            case _:
                return

    def _result(self, event: Mapping[str, Any]) -> Iterator[Said]:
        stats = mapping(event.get("stats"))
        yield Spent(count(stats.get("input_tokens")), count(stats.get("output_tokens")))
        if event.get("status") == "success":
            yield Answered("".join(self._words))
        else:
            yield Complained(text(mapping(event.get("error")).get("message")) or "it ended with an error")


def _refused(event: Mapping[str, Any]) -> bool:
    return event.get("status") == "error" and text(mapping(event.get("error")).get("type")) in _REFUSALS
