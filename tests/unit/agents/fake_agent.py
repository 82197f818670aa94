"""An agent that does as it is told, for tests of how agents are run: a provider, and a small program of Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trunkline.agents.events import Answered, Complained, Offered, Retried, Said, Spent, Spoke, Used
from trunkline.agents.installed import Installed
from trunkline.agents.providers.provider import Asked, Plan, Wants

PYTHON = Installed(program=sys.executable, version="1.2.3")
ANSWER = 'import json; print(json.dumps({"answer": "Done."}))'


class FakeReader:
    def line(self, line: str, /) -> Iterator[Said]:
        event: dict[str, Any] = json.loads(line)
        match event:
            case {"answer": text}:
                yield Answered(text)
            case {"offer": tools}:
                yield Offered(tuple(tools))
            case {"used": tool, "ran": ran}:
                yield Used(tool, ran)
            case {"spent": [first, second]}:
                yield Spent(first, second)
            case {"complaint": text}:
                yield Complained(text)
            case {"again": attempt, "why": reason}:
                yield Retried(attempt, 10, reason)
            case {"say": text}:
                yield Spoke(text)
            case _:
                raise ValueError(line)


class FakeAgent:
    """Runs `script`; what `plan_keys` hold goes into its plan, and what the runner asked for is kept."""

    name = "fake"
    program = "fake-agent"
    install = "make fake-agent"
    verified = frozenset({"1.2.3"})
    instructions = ("AGENTS.md",)
    result_chars = 1000

    def __init__(self, script: str = ANSWER, wants: Wants | None = None, **plan_keys: Any) -> None:
        self._script = script
        self._wants = wants or Wants()
        self._plan_keys = plan_keys
        self.asked: list[Asked] = []

    def tool_name(self, tool: str, /) -> str:
        return f"ours_{tool}"

    def is_ours(self, tool: str, /) -> bool:
        return tool.startswith("ours_")

    def wants(self, home: Path, environ: Mapping[str, str], /) -> Wants:
        return self._wants

    def plan(self, asked: Asked, /) -> Plan:
        self.asked.append(asked)
        return Plan(argv=(asked.program, "-c", self._script), **self._plan_keys)

    def reader(self) -> FakeReader:
        return FakeReader()
