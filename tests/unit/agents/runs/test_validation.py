"""Validation of a workflow against its surroundings: plugins and agent programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.plugin_rig import JOBS, FaultyPlugin
from tests.support.processes import alive
from tests.support.servers import Records, StdioFaults
from tests.support.trust import trust

from trunkline.agents.providers import provider_of
from trunkline.agents.runs.agent_gateway_settings import settings_of_step
from trunkline.agents.runs.plugins import probe_plugins
from trunkline.agents.runs.validation import CheckedWorkflow, PluginStart, check_environment, read_workflow_files
from trunkline.agents.workflow.document import Proxy
from trunkline.sources.builtin import BuiltinSection
from trunkline.sources.plugin import PluginSection, operations

PROXY = "USER.MCP_PROXY."


def write(folder: Path, workflow: str, **plugins: dict[str, Any]) -> Path:
    (folder / ".awf").mkdir()
    (folder / ".awf" / "plugins.yaml").write_text(yaml.safe_dump({"plugins": plugins}))
    (folder / "w.yaml").write_text(workflow)
    return folder


def put_agent(folder: Path, name: str, version: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{name} {version}'\n")
    program.chmod(0o755)


async def check(
    folder: Path, *, start: PluginStart = "trusted", config: Path | None = None, trusted: bool = True
) -> CheckedWorkflow:
    """As `validate` does it."""
    environ = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder)}
    if trusted:
        trust(folder, environ)
    read = read_workflow_files(folder / "w.yaml", config, cwd=folder, home=folder, environ=environ, inspect_only=True)
    return await check_environment(read, environ=environ, start=start)


def found(checked: CheckedWorkflow) -> list[tuple[str, int, int, str, str]]:
    """Code, line, column, severity and step of every problem."""
    return [
        (p.code.id, p.span.line if p.span else 0, p.span.column if p.span else 0, p.severity, p.step)
        for p in checked.problems
    ]


def jobs(*args: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [JOBS, *args]}


ALL_SIX = """\
name: x
states:
  initial: one
  one:
    type: agent
    provider: codex
    prompt: go
    mcp_proxy:
      enable: true
      enabled: true
      plugin_tools:
        - plugin: jobs
          expose: [echo, ecoh]
        - plugin: jbos
          expose: [x]
        - plugin: jobs
          expose: [all-types, echo]
    on_success: two
  two:
    type: step
    agent:
      provider: opencode
      prompt: go
      mcp_proxy:
        enable: true
        intercept_builtins: false
"""


async def test_all_that_can_be_seen_without_a_plugin_is_reported_at_once_in_the_order_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plugin is started where anything is wrong, and it is said what was not checked."""
    monkeypatch.chdir(tmp_path)
    journal = Records(tmp_path, "jobs")
    checked = await check(write(tmp_path, ALL_SIX, jobs=jobs(str(journal.journal))))
    assert found(checked) == [
        (f"{PROXY}UNSUPPORTED_PROVIDER", 6, 15, "warning", "one"),
        (f"{PROXY}UNKNOWN_KEY", 10, 7, "error", "one"),
        ("TL605", 12, 19, "warning", "one"),
        (f"{PROXY}UNKNOWN_PLUGIN", 14, 19, "error", "one"),
        (f"{PROXY}NAME_COLLISION", 17, 31, "error", "one"),
        (f"{PROXY}EMPTY_PROXY", 25, 9, "error", "two"),
    ]
    assert checked.workflow is None
    hints = {problem.code.id: problem.hint for problem in checked.problems}
    assert hints[f"{PROXY}UNKNOWN_PLUGIN"] == "did you mean `jobs`?"
    assert (checked.unchecked, journal.events("start")) == (("jobs",), [])


async def test_operations_are_checked_once_all_else_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Records(tmp_path, "jobs")
    text = workflow("{plugin: jobs, expose: [echo, ecoh]}")
    checked = await check(write(tmp_path, text, jobs=jobs(str(journal.journal))))
    [problem] = checked.problems
    assert (problem.code.id, problem.hint) == (f"{PROXY}UNKNOWN_OPERATION", "did you mean `echo`?")
    (start,) = journal.events("start")
    assert not alive(start["pid"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".awf", ".local", journal.journal.name, "w.yaml"]


async def test_an_operation_behind_the_last_that_counts_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MAX_ITEMS", 2)
    checked = await check(write(tmp_path, workflow("{plugin: jobs, expose: [sleep]}"), jobs=jobs()))
    [problem] = checked.problems
    assert problem.code.id == f"{PROXY}UNKNOWN_OPERATION"
    assert "`ListOperations` was cut after 2 operations" in problem.message


async def test_a_plugin_of_a_file_that_is_not_trusted_is_started_only_where_that_is_asked_for(tmp_path: Path) -> None:
    journal = Records(tmp_path, "jobs")
    write(tmp_path, workflow("{plugin: jobs, expose: [nope]}"), jobs=jobs(str(journal.journal)))
    checked = await check(tmp_path, trusted=False)
    assert [(p.code.id, p.severity) for p in checked.problems] == [("TL605", "warning"), ("TL116", "warning")]
    assert "--start-plugins" in checked.problems[0].hint
    assert (checked.unchecked, journal.events("start")) == (("jobs",), [])
    checked = await check(tmp_path, trusted=False, start="all")
    assert [p.code.id for p in checked.problems] == [f"{PROXY}UNKNOWN_OPERATION", "TL116"]
    assert (checked.unchecked, len(journal.events("start"))) == ((), 1)


async def test_nothing_of_it_is_started_where_the_workflow_has_errors(tmp_path: Path) -> None:
    journal = Records(tmp_path, "jobs")
    text = workflow("{plugin: jobs, expose: [nope]}").replace("prompt:", "promt:")
    checked = await check(write(tmp_path, text, jobs=jobs(str(journal.journal))), trusted=False, start="all")
    assert checked.failed
    assert (checked.unchecked, journal.events("start")) == (("jobs",), [])


def workflow(*tools: str, provider: str = "claude") -> str:
    """One step with these entries of `plugin_tools`, from line 8 on."""
    head = f"name: x\nstates:\n  initial: a\n  a:\n    type: agent\n    provider: {provider}\n    prompt: x\n"
    return f"{head}    mcp_proxy: {{enable: true, plugin_tools: [{', '.join(tools)}]}}\n"


async def test_what_is_known_of_an_agent_is_said_also_where_the_plugins_are_not_known(tmp_path: Path) -> None:
    checked = await check(write(tmp_path, workflow("{plugin: jobs, expose: [echo]}", provider="codex"), jobs={}))
    assert [(p.code.id, p.severity) for p in checked.problems] == [
        (f"{PROXY}UNSUPPORTED_PROVIDER", "warning"),
        ("TL105", "error"),
    ]


async def test_a_plugin_is_not_taken_for_another_whose_name_its_own_becomes(tmp_path: Path) -> None:
    journal = Records(tmp_path, "other")
    text = workflow("{plugin: a.b, expose: [nope]}")
    checked = await check(write(tmp_path, text, **{"a.b": jobs(), "a_b": jobs(str(journal.journal))}))
    [problem] = [problem for problem in checked.problems if problem.severity == "error"]
    assert (problem.code.id, problem.hint) == (f"{PROXY}UNKNOWN_PLUGIN", "write `a_b_2`, or rename the plugin")
    assert journal.events("start") == []
    (tmp_path / "w.yaml").write_text(workflow("{plugin: a_b_2, expose: [echo]}"))
    assert (await check(tmp_path)).workflow is not None


async def test_a_good_workflow_with_a_plugin_is_fine(tmp_path: Path) -> None:
    text = workflow("{plugin: jobs, expose: [echo]}", "{plugin: jobs, expose: [all-types]}")
    checked = await check(write(tmp_path, text, jobs=jobs()))
    assert checked.problems == ()
    assert checked.workflow is not None


async def test_plugins_that_cannot_be_asked_are_problems_of_their_own_and_stop_no_other_check(tmp_path: Path) -> None:
    names = ("jobs", "gone", "ends")
    text = workflow(*(f"{{plugin: {name}, expose: [nope]}}" for name in names))
    broken = FaultyPlugin(tmp_path, "ends", exit=3, stderr="no licence\n").entry()["ends"]
    folder = write(
        tmp_path,
        text,
        jobs=jobs(),
        gone={"command": "/nonexistent/plugin"},
        ends={"command": broken["command"], "args": broken["args"]},
    )
    checked = await check(folder)
    codes = [problem.code.id for problem in checked.problems if problem.severity == "error"]
    assert codes == [f"{PROXY}UNKNOWN_OPERATION", "TL605", "TL605"]
    assert "no licence" in checked.shown()


async def test_plugins_that_are_switched_off_or_lack_something_are_problems_too(tmp_path: Path) -> None:
    text = workflow(*(f"{{plugin: {name}, expose: [nope]}}" for name in ("idle", "lacks")))
    plugins: dict[str, Any] = {"idle": {"command": "x", "enabled": False}, "lacks": {"command": "${NOPE}"}}
    checked = await check(write(tmp_path, text, **plugins))
    assert [p.code.id for p in checked.problems if p.severity == "error"] == ["TL605", "TL605"]


@pytest.mark.slow
async def test_a_plugin_that_never_answers_is_given_up(tmp_path: Path) -> None:
    entry = FaultyPlugin(tmp_path, "slow", init="hang").entry()["slow"]
    section = PluginSection(command=entry["command"], args=tuple(entry["args"]))
    probed = await probe_plugins({"slow": section}, tmp_path / "w.yaml", environ=dict(os.environ), start_s=2.0)
    assert probed["slow"].trouble
    assert probed["slow"].operations == ()


async def test_no_plugin_is_started_where_that_is_not_wanted(tmp_path: Path) -> None:
    journal = Records(tmp_path, "jobs")
    text = workflow("{plugin: jobs, expose: [nope]}", "{plugin: jbos, expose: [x]}", "{plugin: idle, expose: [x]}")
    folder = write(tmp_path, text, jobs=jobs(str(journal.journal)), idle={"command": "x", "enabled": False})
    checked = await check(folder, start="none")
    assert [problem.code.id for problem in checked.problems] == [f"{PROXY}UNKNOWN_PLUGIN", "TL605"]
    assert journal.events("start") == []


@pytest.mark.parametrize("selection", [{"deny": ["ec*"]}, {"allow": ["all-types"]}])
async def test_a_plugin_of_the_configuration_counts_with_what_it_denies(
    tmp_path: Path, selection: dict[str, list[str]]
) -> None:
    folder = write(tmp_path, workflow("{plugin: ours, expose: [echo]}"))
    section = {"kind": "plugin", **jobs(), "prefix": "other", "tools": selection}
    config = tmp_path / "c" / "trunkline.yaml"
    config.parent.mkdir()
    config.write_text(yaml.safe_dump({"sources": {"ours": section}}))
    checked = await check(folder, config=config)
    codes = [problem.code.id for problem in checked.problems if problem.severity == "error"]
    assert codes == [f"{PROXY}UNKNOWN_OPERATION"]
    assert "tools.deny" in checked.shown()


async def test_names_that_awf_takes_and_we_do_not_are_found(tmp_path: Path) -> None:
    folder = write(tmp_path, workflow("{plugin: my jobs, expose: [echo]}"), **{"my jobs": jobs()})
    checked = await check(folder)
    assert [(p.code.id, p.severity) for p in checked.problems] == [("TL123", "warning")]
    assert checked.workflow is not None


async def test_mistakes_in_the_other_files_are_shown_with_their_lines(tmp_path: Path) -> None:
    folder = write(tmp_path, workflow("{plugin: jobs, expose: [nope]}"))
    (folder / ".awf" / "plugins.yaml").write_text("plugins:\n  jobs: {comand: x}\n")
    (folder / "trunkline.yaml").write_text("gateway: {max_nmae: 5}\n")
    checked = await check(folder)
    assert checked.workflow is None
    shown = checked.shown()
    assert "  1 | gateway: {max_nmae: 5}" in shown
    assert shown.count("  2 |   jobs: {comand: x}") == 2  # read once, though two look at it
    assert PROXY not in shown  # which plugins there are is not known


# -- what a configuration may say of a workflow ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elsewhere", "named", "may"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_a_configuration_that_was_found_does_not_weaken_a_workflow_that_lies_elsewhere(
    tmp_path: Path, elsewhere: bool, named: bool, may: bool
) -> None:
    repository, mine = tmp_path / "repository", tmp_path / "mine"
    (repository / "flows").mkdir(parents=True)
    mine.mkdir()
    sandbox = {"mode": "off", "network": "on", "folders": {"/srv": "rw"}, "env": {"A": "b"}}
    weak = {"kind": "builtin", "root": ".", "sandbox": sandbox, "protect": "off"}
    config = repository / "trunkline.yaml"
    config.write_text(yaml.safe_dump({"sources": {"b": weak}}))
    environ = {"HOME": str(tmp_path)}
    trust(config, environ)
    flow = (mine if elsewhere else repository / "flows") / "w.yaml"
    flow.write_text(workflow())
    (repository / "link.yaml").symlink_to(flow)
    for path in (flow, repository / "link.yaml"):
        read = read_workflow_files(path, config if named else None, cwd=repository, home=tmp_path, environ=environ)
        assert read.settings is not None
        proxy = Proxy()
        section = settings_of_step(read.settings, proxy, {}, repository).settings.sources["builtin"]
        assert isinstance(section, BuiltinSection)
        assert (section.sandbox.mode, section.sandbox.network) == (("off", "on") if may else ("auto", "loopback"))
        assert (bool(section.sandbox.folders), bool(section.sandbox.env), not section.protect.on) == (may, may, may)


def test_a_configuration_beside_the_workflow_comes_before_that_of_the_working_folder(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    for name in ("mine", "repository"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trunkline.yaml").write_text(f"mcpServers: {{{name}: {{command: cat}}}}\n")
        trust(tmp_path / name / "trunkline.yaml", environ)
    flow = tmp_path / "mine" / "w.yaml"
    flow.write_text(workflow())

    def sources() -> list[str]:
        read = read_workflow_files(flow, None, cwd=tmp_path / "repository", home=tmp_path, environ=environ)
        assert read.settings is not None
        return list(read.settings.sources)

    assert sources() == ["mine"]
    (tmp_path / "mine" / "trunkline.yaml").unlink()
    assert sources() == ["repository"]


def test_it_can_make_it_stricter_all_the_same(tmp_path: Path) -> None:
    config = tmp_path / "repository" / "trunkline.yaml"
    config.parent.mkdir()
    strict = {"kind": "builtin", "root": ".", "sandbox": {"mode": "required", "network": "off"}, "protect": ["mine"]}
    config.write_text(yaml.safe_dump({"sources": {"b": strict}}))
    environ = {"HOME": str(tmp_path)}
    trust(config, environ)
    (tmp_path / "w.yaml").write_text(workflow())
    read = read_workflow_files(tmp_path / "w.yaml", None, cwd=config.parent, home=tmp_path, environ=environ)
    assert read.settings is not None
    section = read.settings.sources["b"]
    assert isinstance(section, BuiltinSection)
    assert (section.sandbox.mode, section.sandbox.network, section.protect.more) == ("required", "off", ("mine",))


# -- providers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["codex", "opencode"])
async def test_an_agent_that_may_keep_its_own_tools_is_warned_of_where_its_version_is_not_verified(
    tmp_path: Path, provider: str
) -> None:
    write(tmp_path, workflow(provider=provider))
    verified = next(iter(provider_of(provider).verified))
    for version in ("", verified, "99.0.0"):
        if version:
            put_agent(tmp_path, provider, version)
            os.utime(tmp_path / provider, ns=(1, int(version == verified)))  # what was asked before may have changed
        checked = await check(tmp_path)
        assert checked.workflow is not None
        if version == verified:
            assert checked.problems == ()
        else:
            (problem,) = checked.problems
            assert (problem.code.id, problem.severity) == (f"{PROXY}UNSUPPORTED_PROVIDER", "warning")
            assert (f"not verified for the installed version {version}" in problem.message) == bool(version)


@pytest.mark.parametrize("provider", ["codex", "opencode"])
async def test_a_step_that_leaves_the_agent_its_own_tools_is_not_warned_of_them(tmp_path: Path, provider: str) -> None:
    put_agent(tmp_path, provider, "99.0.0")
    text = workflow("{plugin: jobs, expose: [echo]}", provider=provider)
    additive = text.replace("enable: true", "enable: true, intercept_builtins: false")
    checked = await check(write(tmp_path, additive, jobs=jobs()))
    assert checked.problems == ()


@pytest.mark.parametrize("provider", ["claude", "gemini", "openai-compatible"])
async def test_other_providers_have_no_warning(tmp_path: Path, provider: str) -> None:
    checked = await check(write(tmp_path, workflow(provider=provider)))
    assert f"{PROXY}UNSUPPORTED_PROVIDER" not in [problem.code.id for problem in checked.problems]


async def test_sources_are_checked_against_the_configuration_and_not_started(tmp_path: Path) -> None:
    text = workflow().replace("plugin_tools: []", "sources: [here, idle, lacks, heer]")
    here = Records(tmp_path, "here")
    command = {"kind": "mcp_stdio", "command": "touch", "args": [str(here.journal)]}
    sources = {"here": command, "idle": {**command, "enabled": False}, "lacks": {**command, "command": "${NOPE}"}}
    config = tmp_path / "trunkline.yaml"
    config.write_text(yaml.safe_dump({"sources": sources}))
    (tmp_path / "w.yaml").write_text(text)
    checked = await check(tmp_path, config=config)
    problems = [problem for problem in checked.problems if problem.step == "a"]
    assert [problem.code.id for problem in problems] == ["TL609", "TL609", f"{PROXY}UNKNOWN_SOURCE"]
    assert all(problem.hint for problem in problems)
    assert problems[-1].hint == "did you mean `here`?"
    assert not here.journal.exists()


async def test_an_mcp_server_of_awfs_file_has_its_tools_exposed_one_by_one(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "books")
    command, *args = server.command
    text = workflow("{plugin: books, expose: [echo, ecoh]}")
    checked = await check(write(tmp_path, text, books={"type": "mcp", "command": command, "args": args}))
    [problem] = checked.problems
    assert (problem.code.id, problem.hint) == (f"{PROXY}UNKNOWN_OPERATION", "did you mean `echo`?")
    assert not server.pids()


async def test_plugins_that_awf_has_installed_are_found_behind_those_that_are_declared(tmp_path: Path) -> None:
    installed = tmp_path / ".local" / "share" / "awf" / "plugins"
    for name in ("jobs", "books"):
        folder = installed / f"awf-plugin-{name}"
        folder.mkdir(parents=True)
        (folder / "plugin.yaml").write_text(f"name: {name}\nversion: 1.0.0\n")
        program = folder / f"awf-plugin-{name}"
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {JOBS}\n")
        program.chmod(0o755)
    gone = installed / "gone"
    gone.mkdir()
    (gone / "plugin.yaml").write_text("name: gone\n")
    text = workflow("{plugin: jobs, expose: [echo]}", "{plugin: books, expose: [echo]}")
    [problem] = (await check(write(tmp_path, text, jobs={"command": "/does/not/exist"}))).problems
    assert (problem.code.id, "`jobs`" in problem.message) == ("TL605", True)
    (tmp_path / "w.yaml").write_text(workflow("{plugin: gone, expose: [x]}"))
    [problem] = (await check(tmp_path)).problems
    assert (problem.code.id, "`gone`" in problem.message) == ("TL605", True)
