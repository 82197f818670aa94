"""A workflow file checked as a whole: by itself, against the configuration, and against its plugins and agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trunkline.config.gateway import GatewaySettings
from trunkline.config.load import Loaded, find_config, load_config
from trunkline.config.render import render
from trunkline.config.report import FileProblem
from trunkline.config.settings import Settings
from trunkline.runs.outside_checks import check_outside
from trunkline.runs.plugins import Plugins, plugin_sections
from trunkline.sources import section_kinds
from trunkline.telemetry.redact import Redactor
from trunkline.workflow.document import Workflow
from trunkline.workflow.load import LoadedWorkflow, load_workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Everything that was read, and everything that is wrong with it. `configured` is our own file, None where there is
    none: a workflow can do without."""

    loaded: LoadedWorkflow
    configured: Loaded | None
    plugins: Plugins

    @property
    def problems(self) -> tuple[FileProblem, ...]:
        """Those of the workflow first; a file that was read twice is wrong once."""
        others = () if self.configured is None else self.configured.problems
        return tuple(dict.fromkeys((*self.loaded.problems, *others, *self.plugins.problems)))

    @property
    def failed(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    @property
    def workflow(self) -> Workflow | None:
        """None as soon as any problem is an error."""
        return None if self.failed else self.loaded.workflow

    @property
    def settings(self) -> Settings | None:
        return None if self.configured is None else self.configured.settings

    def shown(self) -> str:
        """The problems as people read them, each with its line."""
        texts = dict(self.plugins.texts)
        if self.configured is not None:
            texts |= self.configured.others
            own = {problem.file for problem in self.configured.problems} - texts.keys()
            texts |= dict.fromkeys(own, self.configured.text)
        return render(self.problems, self.loaded.text, texts).rstrip("\n")


def read_files(workflow: Path, config: Path | None, *, cwd: Path, home: Path, environ: Mapping[str, str]) -> Checked:
    """A workflow and all that belongs to it, as far as files tell. Waits for a file that is a pipe, so it is not to be
    called in a loop."""
    loaded = load_workflow(workflow, environ=environ)
    path = find_config(config, cwd, home)
    configured = None if path is None else load_config(path, environ=environ, kinds=section_kinds())
    settings = None if configured is None else configured.settings
    plugins = plugin_sections(settings, workflow, cwd, environ=environ)
    return Checked(loaded=loaded, configured=configured, plugins=plugins)


async def check_read(read: Checked, *, environ: Mapping[str, str], start_plugins: bool = True) -> Checked:
    """The same with what the outside says. With `start_plugins`, those that the workflow exposes are started for a
    moment; nothing of them is left on return."""
    settings, plugins = read.settings, read.plugins
    # where a file cannot be used it is not known which plugins there are
    known = plugins if not plugins.failed and (read.configured is None or settings is not None) else None
    said = settings or Settings(Path(), GatewaySettings(), {})
    asked = plugins.added_to(said)
    redact = Redactor(asked.secrets(environ), asked.names())
    await check_outside(read.loaded, known, environ=environ, redact=redact, start_plugins=start_plugins)
    return read
