"""Sessions of real agents by `trunkline agent`: as `agent_runs.py`, with the agent's own output, or on a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.agent_runs import DONE, AgentKind, AgentStage, Span, folders_left, json_lines, read_spans
from tests.support.child_trees import survivors
from tests.support.gateway import TRUNKLINE
from tests.support.models.script import Script, Turn, in_order, says
from tests.support.processes import read_process
from tests.support.scripted_model import ScriptedModel
from tests.support.waiting import at_most

_SESSION_S = at_most(60)


@dataclass
class Session:
    """A session that is over. `processes` and `folders` are what was left of it, and should be nothing."""

    status: int
    stdout: str
    stderr: str
    log: list[dict[str, Any]]
    spans: list[Span]
    model: ScriptedModel
    processes: list[str]
    folders: list[str]

    @property
    def offered(self) -> list[str]:
        """The tools that the model was offered last."""
        return sorted(self.model.requests[-1].tools)

    def calls(self) -> list[str]:
        return [line["tool"] for line in self.log if line.get("event") == "call"]

    @property
    def end(self) -> dict[str, Any]:
        """The line of the log about its end."""
        [end] = [line for line in self.log if line.get("event") == "session_ended"]
        return end

    def left_nothing(self) -> None:
        assert (self.processes, self.folders) == ([], []), f"left: {self.processes}, {self.folders}"


@dataclass(frozen=True)
class Started:
    """What it takes to start one: the command, and its environment."""

    command: list[str]
    environ: dict[str, str]
    model: ScriptedModel
    temporary: str


class SessionStage(AgentStage):
    """One user. `args` are the agent's own; what is `options` stands before them."""

    def __init__(self, folder: Path, kind: AgentKind, **keys: Any) -> None:
        super().__init__(folder, kind, **keys)
        self.log = folder / "log.jsonl"

    async def session(self, *turns: Turn, args: list[str], options: list[str] | None = None) -> Session:
        """Run one to its end, without a terminal."""
        async with self.made(*turns, args=args, options=options) as started:
            process = await asyncio.create_subprocess_exec(
                *started.command,
                cwd=self.project,
                env=started.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(_SESSION_S):
                    out, errors = await process.communicate()
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            return self.over(started, process.returncode or 0, out.decode(), errors.decode())

    @asynccontextmanager
    async def made(
        self, *turns: Turn, args: list[str], options: list[str] | None = None, script: Script | None = None
    ) -> AsyncIterator[Started]:
        """A model, a configuration and a folder for temporary files, as long as this lasts."""
        with tempfile.TemporaryDirectory(prefix="tl", dir="/tmp") as temporary:
            async with ScriptedModel(script or in_order(*turns, says(DONE)), self.kind.api) as model:
                environ = self._environment(model, Path(temporary))
                command = [TRUNKLINE, "agent", self.kind.provider, "-c", str(self._configuration())]
                command += ["--log", str(self.log), *(options or []), "--", *args]
                yield Started(command, environ, model, temporary)

    def over(self, started: Started, status: int, stdout: str, stderr: str = "") -> Session:
        return Session(
            status=status,
            stdout=stdout,
            stderr=stderr,
            log=json_lines(self.log),
            spans=read_spans(self.folder / "spans.jsonl"),
            model=started.model,
            processes=[repr(read_process(pid)) for pid in survivors(self.mark)],
            folders=folders_left(started.temporary),
        )

    def _configuration(self) -> Path:
        for path in (self.log, self.folder / "spans.jsonl"):
            path.unlink(missing_ok=True)
        telemetry = {"exporter": "file", "endpoint": str(self.folder / "spans.jsonl")}
        gateway = {"state_dir": str(self.folder / "state"), "telemetry": telemetry}
        config = self.folder / "trunkline.json"
        config.write_text(json.dumps({"gateway": gateway, "sources": self.sources}))
        return config
