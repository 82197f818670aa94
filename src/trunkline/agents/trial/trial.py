"""One start of an agent in intercept mode against a model of ours: what it offers there, it would offer anywhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from trunkline.agents.installed import Installed
from trunkline.agents.provider import Provider
from trunkline.agents.runner import AgentResult, AgentRunner, Job
from trunkline.agents.said import Said
from trunkline.agents.trial.model import TrialModel
from trunkline.core.errors import GatewayError
from trunkline.runtime.overdue import first_of

_TRIAL_S: Final = 120.0
"""Gemini CLI may take most of a minute to start where the machine is busy."""
_PROMPT: Final = "Say hello."


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a trial showed. `own_tools` are those that are not ours; `why` is set where nothing could be found out."""

    own_tools: tuple[str, ...] = ()
    why: str = ""

    @property
    def isolated(self) -> bool:
        return not self.own_tools and not self.why


async def try_out(runner: AgentRunner, provider: Provider, installed: Installed, job: Job) -> Tried:
    """Start the agent as `job` would, but for its prompt and its model. Nothing of it is left afterwards."""
    model = TrialModel()
    await model.start()
    trial = replace(job, prompt=_PROMPT, instructions="", timeout_s=_TRIAL_S, model_url=model.url)
    run = asyncio.get_running_loop().create_task(runner.run(provider, installed, trial, None, _nobody))
    try:
        await first_of([run, model.offered], _TRIAL_S)
        if model.offered.done():
            return _judged(provider, model.offered.result())
        return Tried(why=_why_not(run))
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await model.close()


def _judged(provider: Provider, offered: tuple[str, ...]) -> Tried:
    if not any(provider.is_ours(tool) for tool in offered):
        return Tried(why="it did not offer our tools to its model")
    return Tried(own_tools=tuple(tool for tool in offered if not provider.is_ours(tool)))


def _why_not(run: asyncio.Task[AgentResult]) -> str:
    if not run.done():
        return f"it had not asked its model after {_TRIAL_S:g} s"
    error = run.exception()
    if isinstance(error, GatewayError):
        return error.problem.message
    if error is not None:
        raise error
    problem = run.result().problem
    return "it ended without asking its model" if problem is None else problem.message


def _nobody(said: Said) -> None:
    """What an agent says in a trial matters to nobody."""
