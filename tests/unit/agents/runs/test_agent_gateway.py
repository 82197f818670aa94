"""The gateway of one step: its sources and its protected files."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runs import settings_in
from tests.support.waiting import START_WAIT_S, at_most

from trunkline.agents.runs.agent_gateway import AgentGateway
from trunkline.agents.runs.agent_gateway_settings import AgentGatewaySettings, settings_of_session, settings_of_step
from trunkline.agents.runs.model_step import RouterTools, result_text
from trunkline.agents.workflow.document import PluginTools, Proxy
from trunkline.config.sandbox import SandboxSettings
from trunkline.config.sources import SourceSection
from trunkline.core.call import Caller
from trunkline.core.events import Events
from trunkline.gateway.library.results import CallResult
from trunkline.sources.builtin import BuiltinSection
from trunkline.sources.plugin import PluginSection
from trunkline.sources.sections import McpStdioSection

BUILT_IN = ("Read", "Write", "Edit", "Glob", "Grep", "Bash")


@asynccontextmanager
async def started(wanted: AgentGatewaySettings, *private: Path) -> AsyncIterator[AgentGateway]:
    gateway = AgentGateway(
        wanted,
        Events(),
        caller=Caller(principal="step:a"),
        environ=os.environ,
        redact=str,
        private=tuple(map(str, private)),
    )
    try:
        await gateway.start(at_most_s=START_WAIT_S)
        yield gateway
    finally:
        await gateway.close()


def toolbox(gateway: AgentGateway) -> RouterTools:
    return RouterTools(gateway.router, gateway.caller, limit_bytes=1000)


@pytest.mark.law
async def test_built_in_tools_keep_away_from_the_folder_of_the_run(tmp_path: Path) -> None:
    private, wanted = tmp_path / "run", settings_of_step(settings_in(tmp_path / "x"), Proxy(), {}, tmp_path)
    private.mkdir()
    (private / "serve.json").write_text("its way")
    (tmp_path / "open.json").write_text("anyone's")
    async with started(wanted, private) as gateway:
        tools = toolbox(gateway)
        assert gateway.tools() == BUILT_IN
        assert (await tools.call("Read", b'{"path": "open.json"}')).endswith("anyone's")
        assert "its way" not in await tools.call("Read", b'{"path": "run/serve.json"}')
        assert "serve.json" not in (await tools.call("Glob", b'{"pattern": "**/*.json"}'))
        assert "its way" not in (await tools.call("Grep", b'{"pattern": "way", "output_mode": "content"}'))


async def test_what_a_model_calls_wrongly_is_told_to_it_in_words(tmp_path: Path) -> None:
    async with started(settings_of_step(settings_in(tmp_path / "x"), Proxy(), {}, tmp_path)) as gateway:
        tools = toolbox(gateway)
        long = b'{"pattern": "%b"}' % (b"a" * 1000)
        assert "1000 bytes" in await tools.call("Glob", long)
        assert "pattern" in await tools.call("Glob", b"{}")
        assert "Nothing" in await tools.call("Nothing", b"{}")


async def test_a_session_has_every_source_and_the_built_in_tools_where_the_agent_loses_its_own(tmp_path: Path) -> None:
    sources: dict[str, SourceSection] = {
        "files": BuiltinSection(root=tmp_path / "elsewhere", sandbox=SandboxSettings(mode="required")),
        "down": McpStdioSection(command="/does/not/exist", prefix="down"),
    }
    base = settings_in(tmp_path / "x", sources)
    wanted = settings_of_session(base, tmp_path, builtin=True)
    assert list(wanted.settings.sources) == ["builtin", "down"]
    builtin = wanted.settings.sources["builtin"]
    assert isinstance(builtin, BuiltinSection)
    assert (builtin.root, builtin.sandbox.mode, builtin.runs_commands) == (tmp_path, "required", True)
    assert list(settings_of_session(base, tmp_path, builtin=False).settings.sources) == ["files", "down"]
    relaxed = replace(base, sources={"down": sources["down"]})
    async with started(settings_of_session(relaxed, tmp_path, builtin=True)) as gateway:
        assert gateway.tools() == BUILT_IN  # what is down stops nothing


SLOW = McpStdioSection(command=sys.executable, args=("-c", "import time; time.sleep(600)"), prefix="slow")


@pytest.mark.parametrize("at_most_s", [None, 0.3])
async def test_a_server_that_is_still_starting_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_most_s: float | None
) -> None:
    monkeypatch.setattr("trunkline.agents.runs.agent_gateway.START_S", 0.3)
    monkeypatch.setattr("trunkline.agents.runs.agent_gateway._SPARE_S", 0.1)
    settings = settings_in(tmp_path / "x", {"slow": SLOW.replace(start_timeout=at_most(1))})
    events, noted = Events(), []
    events.noted.append(noted.append)
    wanted = settings_of_session(settings, tmp_path, builtin=True)
    gateway = AgentGateway(wanted, events, caller=Caller(principal="step:a"), environ=os.environ, redact=str)
    try:
        await gateway.start(at_most_s)
        assert set(BUILT_IN) <= set(gateway.tools())
    finally:
        await gateway.close()
    [note] = [note for note in noted if note.event == "source_starting"]
    assert (note.level, dict(note.fields)["source"], dict(note.fields)["code"]) == ("warning", "slow", "TL214")
    assert "`slow`" in note.message


async def test_a_server_that_starts_in_time_is_not_named(tmp_path: Path) -> None:
    events, noted = Events(), []
    events.noted.append(noted.append)
    wanted = settings_of_step(settings_in(tmp_path / "x"), Proxy(), {}, tmp_path)
    gateway = AgentGateway(wanted, events, caller=Caller(principal="step:a"), environ=os.environ, redact=str)
    try:
        await gateway.start()
    finally:
        await gateway.close()
    assert [note for note in noted if note.event == "source_starting"] == []


def test_a_plugin_may_be_called_as_the_built_in_source_is(tmp_path: Path) -> None:
    proxy = Proxy(plugin_tools=(PluginTools(plugin="builtin", expose=("a[b]*",)),))
    plugin = PluginSection(command="x", prefix="other", timeout=7.0)
    wanted = settings_of_step(settings_in(tmp_path), proxy, {"builtin": plugin}, tmp_path)
    assert list(wanted.settings.sources) == ["builtin_", "builtin"]
    section = wanted.settings.sources["builtin"]
    assert (section.prefix, section.tools.allow, section.timeout) == ("builtin", ("a[[]b][*]",), 7.0)
    gateway = wanted.settings.gateway
    assert (gateway.meta_tools, gateway.disclosure, gateway.naming) == (False, "all", "prefixed")


@pytest.mark.parametrize(
    ("content", "structured", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], {"x": 1}, "a\nb"),
        ([], {"x": 1}, '{"x":1}'),
        ([], None, ""),
        ([{"type": "image", "mimeType": "image/png", "data": "AAAA"}], None, "[image: image/png"),
        ([{"type": "resource", "resource": {"uri": "u", "text": "held"}}], None, "held"),
        ([{"type": "resource", "resource": {"uri": "file:///u", "blob": "AA"}}], None, "[resource: file:///u"),
        ([{"type": "resource_link", "uri": "file:///l"}], None, "[link: file:///l]"),
    ],
)
def test_results_become_text_and_what_is_none_is_named(content: list, structured: object, text: str) -> None:
    result = CallResult(content=content, structured=structured, is_error=False, meta={}, raw=b"")
    assert result_text(result).startswith(text)
    assert "AAAA" not in result_text(result)
