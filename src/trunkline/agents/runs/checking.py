"""A workflow file checked as a whole: by itself, against the configuration, and against its plugins and agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from trunkline.agents.runs.outside_checks import KeptBack, check_outside
from trunkline.agents.runs.plugins import Plugins, plugin_sections
from trunkline.agents.runs.step_settings import kept_safe
from trunkline.agents.workflow.document import Workflow
from trunkline.agents.workflow.load import LoadedWorkflow, load_workflow
from trunkline.agents.workflow.proxy import source_name
from trunkline.config.found import find_config, find_plugins
from trunkline.config.gateway import GatewaySettings
from trunkline.config.load import Loaded, load_config, look_at_config
from trunkline.config.render import render
from trunkline.config.report import FileProblem
from trunkline.config.settings import Settings
from trunkline.config.trust.verdict import Verdict
from trunkline.sources import section_kinds
from trunkline.telemetry.redact import Redactor

Starting = Literal["none", "trusted", "all"]
"""Which plugins may be started for a moment: none, those of files that count, or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Everything that was read, and everything that is wrong with it. `configured` is our own file, None where there is
    none: a workflow can do without. `unchecked` are plugins that were not asked for their operations."""

    loaded: LoadedWorkflow
    configured: Loaded | None
    plugins: Plugins
    unchecked: tuple[str, ...] = ()

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

    @property
    def untrusted(self) -> tuple[Verdict, ...]:
        """The files that were found by looking and do not count."""
        found = () if self.configured is None else self.configured.verdicts
        beside = () if self.plugins.verdict is None else (self.plugins.verdict,)
        verdicts = {verdict.path: verdict for verdict in (*found, *beside)}
        return tuple(verdict for verdict in verdicts.values() if not verdict.counts)

    def untrusted_plugins(self) -> dict[str, Verdict]:
        """The plugins by name that come from such a file, with the verdict on it."""
        found: dict[str, Verdict] = {}
        for name in self.plugins.sections:
            verdict = self.plugins.verdict
            if name not in self.plugins.of_file:
                verdict = None if self.configured is None else self.configured.verdict_on(name)
            if verdict is not None and not verdict.counts:
                found[name] = verdict
        return found

    def shown(self) -> str:
        """The problems as people read them, each with its line."""
        texts = dict(self.plugins.texts)
        if self.configured is not None:
            texts |= self.configured.others
            own = {problem.file for problem in self.configured.problems} - texts.keys()
            texts |= dict.fromkeys(own, self.configured.text)
        return render(self.problems, self.loaded.text, texts).rstrip("\n")


def read_files(
    workflow: Path,
    config: Path | None,
    *,
    cwd: Path,
    home: Path,
    environ: Mapping[str, str],
    only_look: bool = False,
) -> Checked:
    """A workflow and all that belongs to it, as far as files tell. Waits for a file that is a pipe, so it is not to be
    called in a loop. With `only_look` files that are not trusted are read too, for whoever starts nothing of them."""
    loaded = load_workflow(workflow, environ=environ)
    ours = find_config(config, cwd, home, workflow=workflow)
    load = look_at_config if only_look else load_config
    configured = None if ours is None else load(ours, environ=environ, kinds=section_kinds())
    if configured is not None and configured.settings is not None:
        configured = replace(configured, settings=kept_safe(configured.settings, workflow))
    settings = None if configured is None else configured.settings
    if configured is not None and configured.untrusted and not only_look:
        return Checked(loaded=loaded, configured=configured, plugins=Plugins())  # the rest has to wait for that
    file = find_plugins(workflow, cwd, home)
    plugins = plugin_sections(settings, file, environ=environ, only_look=only_look)
    if plugins.verdict is not None and not plugins.verdict.counts and not _needs_plugins_file(loaded, settings):
        plugins = plugin_sections(settings, None, environ=environ)
    return Checked(loaded=loaded, configured=configured, plugins=plugins)


def _needs_plugins_file(loaded: LoadedWorkflow, settings: Settings | None) -> bool:
    """Whether any tools come from AWF's file, or could: a name of a configuration that was named, or is the user's own,
    is never taken by it."""
    ours = settings.sources.keys() if settings is not None and settings.origin != "found" else ()
    named = {source_name(name.text) for use in loaded.uses for name in (*use.plugins, *use.sources)}
    return not named <= {*ours}


async def check_read(read: Checked, *, environ: Mapping[str, str], start: Starting = "trusted") -> Checked:
    """The same with what the outside says. Plugins that the workflow exposes are started for a moment, of files that
    count or of all, but none where anything is wrong already; nothing of them is left on return."""
    settings, plugins = read.settings, read.plugins
    # where a file cannot be used it is not known which plugins there are
    known = plugins if not plugins.failed and (read.configured is None or settings is not None) else None
    said = settings or Settings(Path(), GatewaySettings(), {})
    asked = plugins.added_to(said)
    redact = Redactor(asked.secrets(environ), asked.names())
    kept_back = KeptBack(
        all_of_them=start == "none", untrusted={} if start == "all" else read.untrusted_plugins(), failed=read.failed
    )
    unchecked = await check_outside(read.loaded, known, environ=environ, redact=redact, kept_back=kept_back)
    return replace(read, unchecked=unchecked)
