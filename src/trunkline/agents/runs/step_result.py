"""What a step is given, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trunkline.agents.workflow.template import Template
from trunkline.core.errors import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What texts of a workflow may refer to, as it is when a step begins."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def of(self, template: Template | None) -> str:
        """The text that is meant; empty where there is none."""
        return "" if template is None else template.render(self.inputs, self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """`problem` is None where the step did what it was to do. What a failed step put out is kept too."""

    output: str = ""
    problem: Problem | None = None
    exit_code: int | None = None
    """Of a command that ended by itself, or by a signal (128 and its number, as shells say it)."""

    @property
    def exit_status(self) -> int:
        """What conditions compare: 0 where it did what it was to do, and 1 where it failed and has no exit code."""
        return self.exit_code if self.exit_code is not None else int(self.problem is not None)
