"""Loading workflow text in tests, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent, indent
from typing import TypeVar

from trunkline.agents.workflow.document import State, Workflow
from trunkline.agents.workflow.load import LoadedWorkflow, load_workflow_text

S = TypeVar("S", bound=State)
ENVIRON = {"HOME": "/home/me"}


def load(text: str, environ: Mapping[str, str] | None = None) -> LoadedWorkflow:
    return load_workflow_text(text, Path("w.yaml"), environ=ENVIRON if environ is None else environ)


def load_states(states: str, environ: Mapping[str, str] | None = None, inputs: str = "[]") -> LoadedWorkflow:
    """A workflow with these states, the first of which is the initial one; they begin on line 5."""
    body = dedent(states).lstrip("\n")
    initial = body.partition(":")[0]
    return load(f"name: w\ninputs: {inputs}\nstates:\n  initial: {initial}\n{indent(body, '  ')}", environ)


def load_agent(keys: str, environ: Mapping[str, str] | None = None) -> LoadedWorkflow:
    """One agent step `a` with these keys beside its prompt; they begin on line 8, in column 5."""
    body = indent(dedent(keys).lstrip("\n"), "  ")
    return load_states(f"a:\n  type: agent\n  prompt: go\n{body}", environ)


def good(loaded: LoadedWorkflow) -> Workflow:
    assert loaded.workflow is not None, [str(problem) for problem in loaded.problems]
    return loaded.workflow


def state(loaded: LoadedWorkflow, name: str, kind: type[S]) -> S:
    found = good(loaded).states[name]
    assert isinstance(found, kind)
    return found


def found(loaded: LoadedWorkflow) -> list[tuple[str, int, int]]:
    """Code, line and column of every problem."""
    return [(p.code.id, p.span.line if p.span else 0, p.span.column if p.span else 0) for p in loaded.problems]


def codes(loaded: LoadedWorkflow) -> list[str]:
    return [problem.code.id for problem in loaded.problems]


def severities(loaded: LoadedWorkflow) -> list[tuple[str, str]]:
    return [(problem.code.id, problem.severity) for problem in loaded.problems]
