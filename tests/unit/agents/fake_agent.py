"""A scripted agent for tests of the runner: a provider and a small Python program."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trunkline.agents.events import (
    AgentError,
    AgentEvent,
    AgentText,
    FinalAnswer,
    ModelRetry,
    NativeToolUsed,
    TokenUsage,
    ToolsOffered,
)
from trunkline.agents.installed_agent import InstalledAgent
from trunkline.agents.providers.provider import LaunchPlan, LaunchRequest, Provider, UserSetupQuery

PYTHON = InstalledAgent(program=sys.executable, version="1.2.3")
ANSWER = 'import json; print(json.dumps({"answer": "Done."}))'


class FakeOutputParser:
    def line(self, line: str, /) -> Iterator[AgentEvent]:
        event: dict[str, Any] = json.loads(line)
        match event:
            case {"answer": text}:
                yield FinalAnswer(text)
            case {"offer": tools}:
                yield ToolsOffered(tuple(tools))
            case {"used": tool, "ran": ran}:
                yield NativeToolUsed(tool, ran)
            case {"spent": [first, second]}:
                yield TokenUsage(first, second)
            case {"complaint": text}:
                yield AgentError(text)
            case {"again": attempt, "why": reason}:
                yield ModelRetry(attempt, 10, reason)
            case {"say": text}:
                yield AgentText(text)
            case _:
                raise ValueError(line)


class FakeAgent(Provider):
    """Runs `script`; what `plan_keys` hold goes into its plan, and what the runner asked for is kept."""

    name = "fake"
    program = "fake-agent"
    install = "make fake-agent"
    verified = frozenset({"1.2.3"})
    instructions = ("AGENTS.md",)
    result_chars = 1000
    prefix = "ours_"

    def __init__(self, script: str = ANSWER, query: UserSetupQuery | None = None, **plan_keys: Any) -> None:
        self._script = script
        self._query = query or UserSetupQuery()
        self._plan_keys = plan_keys
        self.requests: list[LaunchRequest] = []

    def tool_name(self, tool: str, /) -> str:
        return f"ours_{tool}"

    def user_setup_query(self, home: Path, environ: Mapping[str, str], /) -> UserSetupQuery:
        return self._query

    def plan(self, request: LaunchRequest, /) -> LaunchPlan:
        self.requests.append(request)
        return LaunchPlan(argv=(request.program, "-c", self._script), **self._plan_keys)

    def parser(self) -> FakeOutputParser:
        return FakeOutputParser()
