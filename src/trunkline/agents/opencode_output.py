"""What `opencode run` prints in its format `json`: one event per line, each with the part of a message it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from trunkline.agents.json_lines import count, mapping, object_of, text
from trunkline.agents.said import Answered, Complained, Looped, Said, Spent, Spoke, Used

_REFUSALS: Final = (
    "Model tried to call unavailable tool",
    "The user has specified a rule which prevents you from using this specific tool call",
    "The user rejected permission to use this specific tool call",
)
"""How it begins to say that a call was not carried out. Any other error counts as carried out."""
_NO_TOOL: Final = "invalid"
"""Called in place of a tool that there is not, or whose arguments are wrong: it only says so."""
_MORE_TO_COME: Final = "tool-calls"
_MOST_EMPTY: Final = 3
"""Steps in a row that end with calls and have none."""


class OpenCodeReader:
    """`is_ours` tells our tools from its own. What the model said in its last step is its answer."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._words: list[str] = []
        self._spent = Spent(0, 0)
        self._called = False
        self._empty_steps = 0

    def line(self, line: str, /) -> Iterator[Said]:
        event = object_of(line)
        part = mapping(event.get("part"))
        match event.get("type"):
            case "step_start":
                self._words.clear()
                self._called = False
            case "text" if words := text(part.get("text")):
                self._words.append(words)
                yield Spoke(words)
            case "tool_use":
                self._called = True
                if not self._is_ours(name := text(part.get("tool"))):
                    yield Used(name, ran=name != _NO_TOOL and not _refused(mapping(part.get("state"))))
            case "step_finish":
                yield from self._finished(part)
            case "error":
                yield Complained(_reason(mapping(event.get("error"))))
            case _:
                return

    def _finished(self, part: Mapping[str, Any]) -> Iterator[Said]:
        tokens = mapping(part.get("tokens"))
        cache = mapping(tokens.get("cache"))
        self._spent = Spent(
            self._spent.input_tokens
            + sum(count(value) for value in (tokens.get("input"), cache.get("read"), cache.get("write"))),
            self._spent.output_tokens + sum(count(value) for value in (tokens.get("output"), tokens.get("reasoning"))),
        )
        yield self._spent
        if part.get("reason") != _MORE_TO_COME:
            yield Answered("\n".join(self._words))
            return
        self._empty_steps = 0 if self._called else self._empty_steps + 1
        if self._empty_steps == _MOST_EMPTY:
            yield Looped()


def _refused(state: Mapping[str, Any]) -> bool:
    return state.get("status") == "error" and text(state.get("error")).startswith(_REFUSALS)


def _reason(error: Mapping[str, Any]) -> str:
    message = text(mapping(error.get("data")).get("message")) or text(error.get("message"))
    return message or text(error.get("name")) or "it reported an error"
