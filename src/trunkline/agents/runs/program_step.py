"""An agent that is a program of its own: run with our tools in place of its own, beside them, or as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from trunkline.agents import provider_of
from trunkline.agents.installed import Installed, find_installed
from trunkline.agents.known_versions import KnownVersions
from trunkline.agents.plan import ToolServer
from trunkline.agents.provider import Provider
from trunkline.agents.runner import AgentRunner, Job
from trunkline.agents.runs.agent_door import AgentDoor
from trunkline.agents.runs.agent_task import AgentTask
from trunkline.agents.runs.isolation import Isolation, judge
from trunkline.agents.runs.step_gateway import StepGateway
from trunkline.agents.runs.step_result import StepResult
from trunkline.agents.said import Said
from trunkline.agents.trial.trial import Tried, try_out
from trunkline.agents.trial.verdicts import Verdicts
from trunkline.core.errors import STEP_TIMEOUT, Problem
from trunkline.runtime.children import Children
from trunkline.runtime.run_folder import RunFolder

Warn = Callable[[Problem], None]
Ready = Callable[[str], None]
"""Told the version of the agent, once it is about to be started."""


class ProgramSteps:
    """`home` and `environ` are those of the user whose agents these are."""

    def __init__(self, children: Children, *, home: Path, environ: Mapping[str, str], state_dir: Path) -> None:
        self._children = children
        self._environ = environ
        self._runner = AgentRunner(children, home=home, environ=environ)
        self._verdicts = Verdicts(state_dir)
        self._versions = KnownVersions(state_dir)

    def folder(self, task: AgentTask) -> RunFolder:
        """The private folder of one run: the way to its gateway, and below it what the agent is given."""
        return RunFolder(self._children, task.name)

    async def run(
        self,
        task: AgentTask,
        folder: Path,
        gateway: StepGateway | None,
        on_said: Callable[[Said], None],
        *,
        instructions: str,
        warn: Warn,
        ready: Ready,
    ) -> StepResult:
        provider = provider_of(task.state.provider)
        async with AsyncExitStack() as stack:
            async with task.in_time():
                installed = await find_installed(provider, self._children, self._environ, self._versions)
                job, door = await self._job(task, provider, _part(folder, "a"), gateway, stack)
                isolation = await self._isolation(task, provider, installed, folder, gateway)
            for warning in isolation.warnings:
                warn(warning)
            ready(installed.version)
            job = replace(job, mitigation=isolation.mitigation, instructions=instructions, timeout_s=task.left_s)
            result = await self._runner.run(provider, installed, job, door, on_said)
        for warning in result.warnings:
            warn(warning)
        timed_out = result.problem is not None and result.problem.code is STEP_TIMEOUT
        return StepResult(
            output=result.output,
            # the agent's own time is what was left of the step's, and only that one is written anywhere
            problem=task.too_late(result.unreached) if timed_out else result.problem,
        )

    async def _job(
        self, task: AgentTask, provider: Provider, part: Path, gateway: StepGateway | None, stack: AsyncExitStack
    ) -> tuple[Job, AgentDoor | None]:
        """What the agent is to do, and the door through which it gets its tools; none where it keeps its own alone."""
        door: AgentDoor | None = None
        server: ToolServer | None = None
        if gateway is not None:
            door = AgentDoor(gateway, part, result_chars=provider.result_chars)
            stack.push_async_callback(door.close)
            server = await door.open()
        job = Job(
            mode=task.mode,
            prompt=task.prompt,
            model=task.model,
            project=task.folder,
            run=_part(part, "run"),
            server=server,
            timeout_s=task.left_s,
        )
        return job, door

    async def _isolation(
        self,
        task: AgentTask,
        provider: Provider,
        installed: Installed,
        folder: Path,
        gateway: StepGateway | None,
    ) -> Isolation:
        async def trial() -> Tried:
            async with AsyncExitStack() as stack:
                job, _ = await self._job(task, provider, _part(folder, "t"), gateway, stack)
                return await try_out(self._runner, provider, installed, job)

        return await judge(provider, installed, task.mode, self._verdicts, trial, model=task.model)


def _part(folder: Path, name: str) -> Path:
    part = folder / name
    part.mkdir(mode=0o700)
    return part
