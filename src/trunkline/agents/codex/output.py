"""What `codex exec --json` prints: one event per line, for what was begun and what is done."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from trunkline.agents.json_lines import count, mapping, object_of, text
from trunkline.agents.plan import SERVER
from trunkline.agents.said import Answered, Complained, Retried, Said, Spent, Spoke, Used

_NO_TOOL: Final = ("agent_message", "error", "reasoning", "user_message")
"""Items that no tool has part in. An `error` among them is a warning, after which the run goes on."""
RESOURCE_TOOLS: Final = ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource")
"""Tools of Codex's own that can do nothing but ask its servers. They cannot be taken away."""

_AGAIN: Final = re.compile(r"Reconnecting\.\.\. (\d{1,6})/(\d{1,6})(?: \((.*)\))?", re.DOTALL)


class CodexReader:
    """Calls that were refused are not among the events; what is begun has not been refused. What the model said since
    its last call is its answer."""

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._last_words = ""

    def line(self, line: str, /) -> Iterator[Said]:
        event = object_of(line)
        match event.get("type"):
            case "item.started" | "item.updated" | "item.completed" as kind:
                yield from self._item(mapping(event.get("item")), done=kind == "item.completed")
            case "turn.completed":
                usage = mapping(event.get("usage"))
                yield Spent(count(usage.get("input_tokens")), count(usage.get("output_tokens")))
                yield Answered(self._last_words)
            case "error" if again := _AGAIN.match(text(event.get("message"))):
                yield Retried(int(again[1]), int(again[2]), again[3] or "no answer")
            case "turn.failed":
                yield Complained(text(mapping(event.get("error")).get("message")) or "its turn failed")
            case _:
                return

    def _item(self, item: Mapping[str, Any], *, done: bool) -> Iterator[Said]:
        kind = text(item.get("type"))
        if kind == "agent_message" and done:
            self._last_words = text(item.get("text"))
            yield Spoke(self._last_words)
        elif kind not in _NO_TOOL and (number := text(item.get("id"))) not in self._begun:
            self._begun.add(number)
            self._last_words = ""
            yield from self._used(kind, item)

    def _used(self, kind: str, item: Mapping[str, Any]) -> Iterator[Said]:
        """A tool of its own, which is told of once, as soon as it is begun."""
        if not _is_ours(item):
            server, tool = text(item.get("server")), text(item.get("tool"))
            yield Used(f"{server}/{tool}" if server else tool or kind, ran=item.get("status") != "declined")


def _is_ours(item: Mapping[str, Any]) -> bool:
    """A call that asks all servers at once has `codex` for its server."""
    called = item.get("server") == SERVER or item.get("tool") in RESOURCE_TOOLS
    return item.get("type") == "mcp_tool_call" and called
