"""Checks a workflow file as a whole: by itself, against the configuration, and against its plugins and agents."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from trunkline.agents.installed_agent import VersionCache, find_installed
from trunkline.agents.providers import OWN_TOOLS_IN_DOUBT, provider_of
from trunkline.agents.runs.agent_gateway_settings import (
    WITHOUT_SOURCE,
    enforce_default_protection,
    known_operations,
    obstacle_of,
)
from trunkline.agents.runs.plugins import (
    PLUGIN,
    PluginProbeResult,
    WorkflowPlugins,
    plugin_sections,
    probe_plugins,
    source_kind,
)
from trunkline.agents.workflow.document import Workflow
from trunkline.agents.workflow.load import LoadedWorkflow, load_workflow
from trunkline.agents.workflow.proxy import source_name
from trunkline.agents.workflow.reader import ProxyBlock
from trunkline.config.files import find_config, find_plugins
from trunkline.config.load import LoadedConfig, load_config
from trunkline.config.problems import FileProblem, hint_for, render
from trunkline.config.settings import GatewaySettings, Settings
from trunkline.config.sources import SourceSection, ToolSelection
from trunkline.config.tree import Scalar
from trunkline.config.trust.verdict import Verdict
from trunkline.core.errors import (
    PLUGIN_NOT_CHECKED,
    PROXY_PROVIDER,
    PROXY_UNKNOWN_OPERATION,
    PROXY_UNKNOWN_PLUGIN,
    PROXY_UNKNOWN_SOURCE,
    SOURCE_NOT_USABLE,
    GatewayError,
)
from trunkline.router.options import NameRules
from trunkline.runtime.children import Children
from trunkline.sources import section_kinds
from trunkline.sources.list_limits import is_about_cut
from trunkline.telemetry.redaction import Redactor

PluginStart = Literal["none", "trusted", "all"]
"""Which plugins may be started to be checked: none, those of trusted files, or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedWorkflow:
    """A workflow with all files that belong to it, and everything that is wrong with them. `configured` is the
    configuration, None if there is none. `unchecked` are plugins that were not asked for their operations."""

    loaded: LoadedWorkflow
    configured: LoadedConfig | None
    plugins: WorkflowPlugins
    unchecked: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[FileProblem, ...]:
        """The problems of the workflow first, each once."""
        others = () if self.configured is None else self.configured.problems
        return tuple(dict.fromkeys((*self.loaded.problems, *others, *self.plugins.awf.problems)))

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
        """The files that were found by searching and are not trusted."""
        found = () if self.configured is None else self.configured.verdicts
        beside = () if self.plugins.awf.verdict is None else (self.plugins.awf.verdict,)
        verdicts = {verdict.path: verdict for verdict in (*found, *beside)}
        return tuple(verdict for verdict in verdicts.values() if not verdict.is_trusted)

    def untrusted_plugins(self) -> dict[str, Verdict]:
        """The plugins from files that are not trusted, by name, with the verdict on the file."""
        found: dict[str, Verdict] = {}
        for name in self.plugins.sections:
            verdict = self.plugins.awf.verdict
            if name not in self.plugins.awf.found:
                verdict = None if self.configured is None else self.configured.verdict_on(name)
            if verdict is not None and not verdict.is_trusted:
                found[name] = verdict
        return found

    def shown(self) -> str:
        """The problems as text, each with its line of the file."""
        texts = {problem.file: self.plugins.awf.text for problem in self.plugins.awf.problems}
        if self.configured is not None:
            texts |= self.configured.others
            own = {problem.file for problem in self.configured.problems} - texts.keys()
            texts |= dict.fromkeys(own, self.configured.text)
        return render(self.problems, self.loaded.text, texts).rstrip("\n")


def read_workflow_files(
    workflow: Path,
    config: Path | None,
    *,
    cwd: Path,
    home: Path,
    environ: Mapping[str, str],
    inspect_only: bool = False,
) -> CheckedWorkflow:
    """Read a workflow and the files that belong to it. Blocks if a file is a pipe, so it must not run in an event
    loop. With `inspect_only` untrusted files are read too, for callers that start nothing of them."""
    loaded = load_workflow(workflow, environ=environ)
    ours = find_config(config, cwd, home, workflow=workflow)
    configured: LoadedConfig | None = None
    if ours is not None:
        configured = load_config(ours, environ=environ, kinds=section_kinds(), inspect_only=inspect_only)
    if configured is not None and configured.settings is not None:
        configured = replace(configured, settings=enforce_default_protection(configured.settings, workflow))
    settings = None if configured is None else configured.settings
    if configured is not None and configured.untrusted and not inspect_only:
        return CheckedWorkflow(loaded=loaded, configured=configured, plugins=WorkflowPlugins())  # trust comes first
    file = find_plugins(workflow, cwd, home)
    plugins = plugin_sections(settings, file, environ=environ, inspect_only=inspect_only)
    if plugins.awf.verdict is not None and not plugins.awf.verdict.is_trusted:
        # it never takes the names of a configuration that was named, or is the user's own
        ours = settings.sources.keys() if settings is not None and settings.origin != "found" else ()
        named = {source_name(name.text) for proxy in loaded.proxies for name in (*_plugins(proxy), *proxy.sources)}
        if named <= {*ours}:  # it provides none of the tools
            plugins = plugin_sections(settings, None, environ=environ)
    return CheckedWorkflow(loaded=loaded, configured=configured, plugins=plugins)


async def check_environment(
    checked: CheckedWorkflow, *, environ: Mapping[str, str], start: PluginStart = "trusted"
) -> CheckedWorkflow:
    """Check a workflow that was read against installed agents and started plugins. `start` says which plugins the
    workflow exposes may be started; none are if anything is wrong already. Nothing of them is left on return."""
    loaded, plugins = checked.loaded, checked.plugins
    async with asyncio.TaskGroup() as group:
        group.create_task(_check_providers(loaded, environ))
        if plugins.awf.failed or (checked.configured is not None and checked.settings is None):
            return checked  # a file cannot be used, so it is not known which plugins there are
        _check_named(loaded, plugins)
        named = {plugin.text: plugins.find(plugin.text) for proxy in loaded.proxies for plugin in _plugins(proxy)}
        wanted = {source_name(name): found for name, found in named.items() if found and not obstacle_of(found)}
        left = _not_started_plugins(checked, wanted, start)
        to_start = {name: section for name, section in wanted.items() if name not in left}
        if to_start:
            group.create_task(_check_operations(checked, to_start, environ))
    return replace(checked, unchecked=left)


# -- plugins ----------------------------------------------------------------------------------------------------------


def _not_started_plugins(
    checked: CheckedWorkflow, wanted: Mapping[str, SourceSection], start: PluginStart
) -> tuple[str, ...]:
    """The plugins that are not started, each with a warning if the workflow names it."""
    if start == "none":
        return tuple(wanted)
    untrusted = {} if start == "all" else checked.untrusted_plugins()
    failed = checked.failed
    left = tuple(name for name in wanted if failed or name in untrusted)
    for proxy in checked.loaded.proxies:
        with checked.loaded.report.of_step(proxy.step):
            for plugin in _plugins(proxy):
                name = source_name(plugin.text)
                if name in left and checked.plugins.find(plugin.text) is not None:
                    _not_started(checked.loaded, plugin, None if failed else untrusted[name])
    return left


def _not_started(loaded: LoadedWorkflow, plugin: Scalar, verdict: Verdict | None) -> None:
    """`verdict` is on the plugin's file; None if errors are the reason."""
    message = f"The operations of the plugin `{plugin.text}` are not checked: "
    if verdict is None:
        message, hint = f"{message}it is not started while there are errors", "fix those first"
    else:
        message += f"{verdict.path} is not trusted, so it is not started"
        hint = f"`trunkline trust {shlex.quote(str(verdict.path))}`, or start it anyway with `--start-plugins`"
    loaded.report.warn(PLUGIN_NOT_CHECKED, plugin.span, message, hint)


def _check_named(loaded: LoadedWorkflow, plugins: WorkflowPlugins) -> None:
    """Check that the plugins and sources that steps name exist, and could be started. None is started for that."""
    for proxy in loaded.proxies:
        with loaded.report.of_step(proxy.step):
            for plugin in _plugins(proxy):
                section = plugins.find(plugin.text)
                if section is None:
                    _unknown_plugin(loaded, plugin, plugins)
                elif obstacle := obstacle_of(section):
                    _not_checked(loaded, plugin, obstacle)
            for source in proxy.sources:
                section = plugins.sources.get(source.text)
                if section is None:
                    hint = hint_for(source.text, plugins.sources, "sources") or "declare it in the configuration file"
                    message = f"There is no source `{source.text}`"
                    loaded.report.error(PROXY_UNKNOWN_SOURCE, source.span, message, hint)
                elif obstacle := obstacle_of(section):
                    message = f"The source `{source.text}` cannot be started: {obstacle}"
                    loaded.report.error(SOURCE_NOT_USABLE, source.span, message, WITHOUT_SOURCE)


def _plugins(proxy: ProxyBlock) -> list[Scalar]:
    """The plugins of a step, each where it is named first."""
    first: dict[str, Scalar] = {}
    for entry in proxy.plugin_tools:
        first.setdefault(entry.plugin.text, entry.plugin)
    return list(first.values())


def _unknown_plugin(loaded: LoadedWorkflow, plugin: Scalar, plugins: WorkflowPlugins) -> None:
    renamed = plugins.awf.renamed.get(plugin.text)
    if renamed:
        message = f"`{plugin.text}` is called `{renamed}` here: its own name is not valid for a source"
        loaded.report.error(PROXY_UNKNOWN_PLUGIN, plugin.span, message, f"write `{renamed}`, or rename the plugin")
        return
    message = f"There is no plugin `{plugin.text}`"
    if (other := plugins.sources.get(plugin.text)) is not None:
        message = f"`{plugin.text}` is a source of the kind `{source_kind(other)}`, not a {PLUGIN}"
    hint = hint_for(plugin.text, plugins.sections, "plugins") or "declare it in `.awf/plugins.yaml` or under `sources`"
    loaded.report.error(PROXY_UNKNOWN_PLUGIN, plugin.span, message, hint)


def _not_checked(loaded: LoadedWorkflow, plugin: Scalar, why: str, hint: str = "") -> None:
    message = f"The operations of the plugin `{plugin.text}` cannot be listed: {why}"
    loaded.report.error(PLUGIN_NOT_CHECKED, plugin.span, message, hint)


async def _check_operations(
    checked: CheckedWorkflow, wanted: Mapping[str, SourceSection], environ: Mapping[str, str]
) -> None:
    loaded, plugins = checked.loaded, checked.plugins
    settings = plugins.added_to(checked.settings or Settings(Path(), GatewaySettings(), {}))
    redact = Redactor(settings.secrets(environ), settings.names())
    probed = await probe_plugins(wanted, loaded.path, environ=environ, redact=redact)
    for proxy in loaded.proxies:
        with loaded.report.of_step(proxy.step):
            for plugin in _plugins(proxy):
                found = _probed(plugin, plugins, probed)
                if found is not None and found.trouble:
                    _not_checked(loaded, plugin, found.trouble, found.hint)
            for plugin, operations in proxy.plugin_tools:
                found = _probed(plugin, plugins, probed)
                if found is not None and not found.trouble:
                    selection = plugins.sections[source_name(plugin.text)].tools
                    for operation in operations:
                        _check_operation(loaded, operation, plugin.text, found, selection)


def _probed(
    plugin: Scalar, plugins: WorkflowPlugins, probed: Mapping[str, PluginProbeResult]
) -> PluginProbeResult | None:
    return None if plugins.find(plugin.text) is None else probed.get(source_name(plugin.text))


def _check_operation(
    loaded: LoadedWorkflow, operation: Scalar, plugin: str, found: PluginProbeResult, selection: ToolSelection
) -> None:
    name = operation.text
    if name in found.operations:
        if not NameRules(prefix="", allow=selection.allow, deny=selection.deny).shows(name):
            message = f"`{name}` of the plugin `{plugin}` is denied by the configuration (`tools.allow`, `tools.deny`)"
            loaded.report.error(PROXY_UNKNOWN_OPERATION, operation.span, message)
        return
    why = "; ".join(warning for warning in found.warnings if f"`{name}`" in warning or is_about_cut(warning))
    message = f"The plugin `{plugin}` has no operation `{name}`{f' to offer: {why}' if why else ''}"
    loaded.report.error(PROXY_UNKNOWN_OPERATION, operation.span, message, known_operations(name, found.operations))


# -- providers --------------------------------------------------------------------------------------------------------


async def _check_providers(loaded: LoadedWorkflow, environ: Mapping[str, str]) -> None:
    """Warn if an agent that should have only our tools may keep its own."""
    intercepting = [proxy for proxy in loaded.proxies if proxy.intercepts]
    doubted = [
        (proxy.step, proxy.provider)
        for proxy in intercepting
        if proxy.provider and proxy.provider.text in OWN_TOOLS_IN_DOUBT
    ]
    if not doubted:
        return
    children = Children()
    try:
        doubts = {name: await _doubt(name, children, environ) for name in {provider.text for _, provider in doubted}}
    finally:
        await children.close()
    for step, provider in doubted:
        if doubt := doubts[provider.text]:
            with loaded.report.of_step(step):
                loaded.report.warn(PROXY_PROVIDER, provider.span, doubt)


async def _doubt(name: str, children: Children, environ: Mapping[str, str]) -> str:
    """Why the installed agent may keep tools of its own; empty if its version is verified."""
    provider = provider_of(name)
    verified = ", ".join(sorted(provider.verified)) or "none yet"
    try:
        version = (await find_installed(provider, children, environ, VersionCache())).version
    except GatewayError as error:
        why = error.problem.message
        return f"Isolation of {name} is verified for {verified}; the installed version is not known: {why}"
    if version in provider.verified:
        return ""
    return f"Isolation of {name} is not verified for the installed version {version}, only for {verified}"
