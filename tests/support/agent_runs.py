"""Runs of real agents by `trunkline run`: a user with a home and a project, an agent whose model is scripted, and all
that can be known afterwards: events, log, spans, what the model was offered, which files changed, and what is left.

An `AgentKind` says how one CLI is pointed at the scripted model. Nothing that an agent does leaves the machine:
whatever it would ask of anyone else goes to the scripted model, which writes that down.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.child_trees import MARK, new_mark, survivors
from tests.support.models.script import Api, Script, Turn, in_order, says
from tests.support.peers.programs import AGENTS
from tests.support.scripted_model import ScriptedModel
from tests.support.waiting import at_most, until

from trunkline.runtime.temporary_folders import PREFIX

DONE = "All done."
BUILTINS = ("Bash", "Edit", "Glob", "Grep", "Read", "Write")
_OURS = "trunkline-"  # the folders of runs, and those of Bash, which the next gateway removes after one was killed
_RUN_S = at_most(75)
_END_S = 15.0
_TRUNKLINE = str(Path(sys.executable).with_name("trunkline"))


@dataclass(frozen=True)
class AgentKind:
    """`environ` makes, of the URL of a scripted model, the variables by which this agent finds it."""

    provider: str
    api: Api
    environ: Callable[[str], Mapping[str, str]]


@dataclass(frozen=True)
class Span:
    """One line of the file exporter."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    failed: bool


@dataclass
class AgentRun:
    """A run that is over. `processes` and `folders` are what was left of it, and should be nothing."""

    status: int
    events: list[dict[str, Any]]
    log: list[dict[str, Any]]
    spans: list[Span]
    stderr: str
    model: ScriptedModel
    changed: dict[str, str]
    """What became of files under the home and the project: `changed`, `gone` or `new`, by path."""
    processes: list[int]
    folders: list[str]
    temporary: list[str]
    """Everything that was left in TMPDIR, the agent's own included."""

    @property
    def offered(self) -> list[str]:
        """The tools that the model was offered, which are the same in every request."""
        lists = [sorted(asked.tools) for asked in self.model.requests]
        assert lists, self.stderr
        assert all(one == lists[0] for one in lists)
        return lists[0]

    @property
    def end(self) -> dict[str, Any]:
        [end] = self.of("run_ended")
        return end

    @property
    def code(self) -> str:
        """The code of what went wrong; empty where nothing did."""
        return (self.end["problem"] or {"code": ""})["code"]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]

    def span(self, name: str) -> Span:
        [found] = [span for span in self.spans if span.name == name]
        return found

    def calls(self) -> list[str]:
        """The tools whose calls our log has, in order."""
        return [line["tool"] for line in self.log if line.get("event") == "call"]

    def succeeded(self) -> None:
        """With the last words of the script, and nothing left."""
        assert (self.status, self.code, self.end["output"]) == (0, "", DONE), self.stderr
        self.left_nothing()

    def recorded(self, **spans: str) -> None:
        """Each call has a line in the log under its own name, and a span below its step under the name callers know."""
        assert sorted(self.calls()) == sorted(spans)
        assert {line["caller"] for line in self.log if line["event"] == "call"} == {"step:work"}
        step = self.span("step.work")
        below = [self.span(f"tool.call.{name}") for name in spans.values()]
        assert {(span.parent, span.trace) for span in below} == {(step.id, step.trace)}
        assert self.end["tool_calls"] == len(spans)

    def kept_files(self) -> None:
        """No file of the user's was changed or removed."""
        assert {path: what for path, what in self.changed.items() if what != "new"} == {}

    def left_nothing(self) -> None:
        assert (self.processes, self.folders) == ([], [])


def exposing(plugin: str, *operations: str, **keys: Any) -> dict[str, Any]:
    """A block for the proxy with these operations of a plugin."""
    return {"enable": True, "plugin_tools": [{"plugin": plugin, "expose": list(operations)}], **keys}


def mark(folder: Path, name: str) -> str:
    """A command that leaves a mark."""
    return f"touch {folder}/mark-{name}"


def marks(folder: Path) -> set[str]:
    return {path.name.removeprefix("mark-") for path in folder.glob("mark-*")}


@dataclass
class Going:
    """A run that goes on."""

    process: asyncio.subprocess.Process
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    killed: bool = False

    def kill(self) -> None:
        """At once, without a chance to end anything."""
        self.killed = True
        self.process.kill()

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """As a terminal does it: for everything in the foreground."""
        os.killpg(self.process.pid, number)

    async def wait_for(self, event: str, **fields: Any) -> None:
        def happened() -> bool:
            return any(one["event"] == event and fields.items() <= one.items() for one in self.events)

        await until(happened, f"{event} {fields}", 40)


class AgentStage:
    """One user: put files with `home_file` and `project_file`, then `run`, as often as you like."""

    def __init__(self, folder: Path, kind: AgentKind, *, path: Sequence[Path] = ()) -> None:
        self.kind = kind
        self.folder = folder
        self.mark = new_mark()
        # The mark is part of the home: an agent may clear the environment of what it starts, but hardly of HOME.
        self.home = folder / f"home-{self.mark}"
        self.project = folder / "project"
        self.sources: dict[str, Any] = {}
        self.environ: dict[str, str] = {}
        self.above: dict[str, str] = {}
        """Files in the folder for temporary files, above those of all runs: anybody may have put some there."""
        self._path = [*map(str, path), str(AGENTS), str(Path(sys.executable).parent), os.environ["PATH"]]
        for place in (self.home, self.project):
            place.mkdir(parents=True)

    def home_file(self, name: str, content: str | dict[str, Any], *, mode: int = 0o600) -> Path:
        return _put(self.home / name, content, mode)

    def project_file(self, name: str, content: str | dict[str, Any], *, mode: int = 0o644) -> Path:
        return _put(self.project / name, content, mode)

    async def run(self, *turns: Turn, script: Script | None = None, **step: Any) -> AgentRun:
        """Run one step of the agent to its end; `step` goes into its state."""
        async with self.going(*turns, script=script, **step) as (_, finished):
            pass
        return finished[0]

    @asynccontextmanager
    async def going(
        self, *turns: Turn, script: Script | None = None, **step: Any
    ) -> AsyncIterator[tuple[Going, list[AgentRun]]]:
        """A run to do something with; when this ends, the run has ended too, and is the one item of the list."""
        before = self._hashes()
        finished: list[AgentRun] = []
        with tempfile.TemporaryDirectory(prefix="tl", dir="/tmp") as temporary:
            async with ScriptedModel(script or in_order(*turns, says(DONE)), self.kind.api) as model:
                process = await self._start(model, step, Path(temporary))
                going = Going(process)
                try:
                    async with asyncio.timeout(_RUN_S), asyncio.TaskGroup() as reading:
                        errors = reading.create_task(_read(process.stderr))
                        reading.create_task(_follow(process, going.events))
                        yield going, finished
                    status = await process.wait()
                finally:
                    if process.returncode is None:
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(process.pid, signal.SIGKILL)
                        await process.wait()
            if going.killed:  # what it leaves to its supervisor takes a moment; else everything is gone before its end
                await until(
                    lambda: not survivors(self.mark) and not folders_left(temporary, PREFIX), "nothing is left", _END_S
                )
            finished.append(
                AgentRun(
                    status=status,
                    events=going.events,
                    log=json_lines(self.folder / "log.jsonl"),
                    spans=read_spans(self.folder / "spans.jsonl"),
                    stderr=errors.result(),
                    model=model,
                    changed=self._changes(before),
                    processes=survivors(self.mark),
                    temporary=os.listdir(temporary),
                    folders=folders_left(temporary, PREFIX if going.killed else _OURS),
                )
            )

    async def _start(self, model: ScriptedModel, step: dict[str, Any], temporary: Path) -> asyncio.subprocess.Process:
        state = {
            "type": "agent",
            "provider": self.kind.provider,
            "prompt": "Do as planned",
            "timeout": f"{at_most(60)}s",
            **step,
        }
        states = {"initial": "work", "work": {"on_success": "fine", "on_failure": "bad", **state}}
        ends = {"fine": {"type": "terminal", "status": "success"}, "bad": {"type": "terminal", "status": "failure"}}
        workflow = _put(self.folder / "flow.yaml", {"name": "errand", "version": "1", "states": states | ends})
        telemetry = {"exporter": "file", "endpoint": str(self.folder / "spans.jsonl")}
        gateway = {"state_dir": str(self.folder / "state"), "telemetry": telemetry}
        config = _put(self.folder / "trunkline.json", {"gateway": gateway, "sources": self.sources})
        for name, content in self.above.items():
            _put(temporary / name, content)
        for name in ("log.jsonl", "spans.jsonl"):
            (self.folder / name).unlink(missing_ok=True)
        return await asyncio.create_subprocess_exec(
            *(_TRUNKLINE, "run", str(workflow), "--json", "-c", str(config)),
            *("--log", str(self.folder / "log.jsonl")),
            cwd=self.project,
            env=self._environment(model, temporary),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=64 << 20,
        )

    def _environment(self, model: ScriptedModel, temporary: Path) -> dict[str, str]:
        """Nothing of the caller's: a developer's own settings and keys must not count here."""
        return {
            "HOME": str(self.home),
            "PATH": os.pathsep.join(self._path),
            "LANG": "C.UTF-8",
            "TMPDIR": str(temporary),
            MARK: self.mark,
            "HTTP_PROXY": model.url,
            "HTTPS_PROXY": model.url,
            "NO_PROXY": "127.0.0.1,localhost",
            **self.kind.environ(model.url),
            **self.environ,
        }

    def _hashes(self) -> dict[str, str]:
        commands = self.home / ".local/state/trunkline/protected/commands"  # where all gateways of a user have them
        files = (path for root in (self.home, self.project) for path in root.rglob("*") if path.is_file())
        places = (path for path in files if not path.is_relative_to(commands))
        return {
            str(path.relative_to(self.folder)).replace(self.mark, ""): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in places
        }

    def _changes(self, before: Mapping[str, str]) -> dict[str, str]:
        after = self._hashes()
        new = dict.fromkeys(after.keys() - before.keys(), "new")
        gone = dict.fromkeys(before.keys() - after.keys(), "gone")
        changed = {path: "changed" for path in after.keys() & before.keys() if after[path] != before[path]}
        return dict(sorted((new | gone | changed).items()))


def wrapper(folder: Path, program: str, change: str) -> Path:
    """A folder for PATH in which `program` is the real one, once `change`, which is Python, had its way with the list
    `arguments` and with `os.environ`."""
    real = shutil.which(program, path=str(AGENTS))
    lines = [f"#!{sys.executable}", "import json, os, sys, time", "arguments = sys.argv[1:]", change]
    lines.append(f"os.execv({real!r}, [{real!r}, *arguments])")
    _put(folder / "bin" / program, "\n".join(lines) + "\n", 0o755)
    return folder / "bin"


def folders_left(temporary: str, prefix: str = _OURS) -> list[str]:
    return [name for name in os.listdir(temporary) if name.startswith(prefix)]


def _put(path: Path, content: str | dict[str, Any], mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    path.chmod(mode)
    return path


async def _read(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await stream.read()).decode(errors="replace")


async def _follow(process: asyncio.subprocess.Process, events: list[dict[str, Any]]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        events.append(json.loads(line))


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_spans(path: Path) -> list[Span]:
    groups = (line["resourceSpans"] for line in json_lines(path))
    return [
        _span(span)
        for group in groups
        for resource in group
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def _span(span: dict[str, Any]) -> Span:
    attributes = {one["key"]: next(iter(one["value"].values())) for one in span.get("attributes", [])}
    failed = span.get("status", {}).get("code") == 2
    return Span(span["name"], span["traceId"], span["spanId"], span.get("parentSpanId", ""), attributes, failed)
