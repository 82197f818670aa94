"""The `mcp_proxy` block: its four keys, and the names of its tools."""

from __future__ import annotations

import pytest
from tests.support.workflow_files import codes, found, load_agent, load_states, severities, state

from trunkline.agents.workflow.document import AgentState, PluginTools, Proxy
from trunkline.agents.workflow.load import LoadedWorkflow

KEY, EMPTY, COLLISION = (f"USER.MCP_PROXY.{name}" for name in ("UNKNOWN_KEY", "EMPTY_PROXY", "NAME_COLLISION"))


def load(block: str) -> LoadedWorkflow:
    """The block is on line 9, from column 16."""
    return load_agent(f"provider: claude\nmcp_proxy: {block}")


def proxy(loaded: LoadedWorkflow) -> Proxy | None:
    return state(loaded, "a", AgentState).proxy


@pytest.mark.parametrize("block", ["", "{}", "null", "{enable: false}", "{enable: false, intercept_builtins: false}"])
def test_without_enable_the_proxy_is_off(block: str) -> None:
    loaded = load(block)
    assert codes(loaded) == []
    assert proxy(loaded) is None
    assert loaded.proxies == ()


def test_a_block_says_what_it_wants() -> None:
    loaded = load("{enable: true, plugin_tools: [{plugin: p, expose: [x, z]}, {plugin: q.r, expose: [x]}]}")
    assert codes(loaded) == []
    assert proxy(loaded) == Proxy(
        plugin_tools=(PluginTools(plugin="p", expose=("x", "z")), PluginTools(plugin="q_r", expose=("x",)))
    )
    (block,) = loaded.proxies
    assert (block.step, block.intercepts) == ("a", True)
    written = [(plugin.text, [operation.text for operation in expose]) for plugin, expose in block.plugin_tools]
    assert written == [("p", ["x", "z"]), ("q.r", ["x"])]
    additive = load("{enable: true, intercept_builtins: false, plugin_tools: [{plugin: p, expose: [x]}]}")
    assert proxy(additive) == Proxy(intercept_builtins=False, plugin_tools=(PluginTools(plugin="p", expose=("x",)),))


@pytest.mark.parametrize("enable", ["true", "false"])
def test_unknown_keys_are_found_whether_it_is_enabled_or_not(enable: str) -> None:
    loaded = load(f"{{enable: {enable}, intercept: false, plugin_tools: [{{plugin: p, expose: [x], exposes: [z]}}]}}")
    assert codes(loaded) == [KEY, KEY]
    assert {problem.step for problem in loaded.problems} == {"a"}


def test_an_unknown_key_is_found_at_its_place_with_what_may_be_meant() -> None:
    loaded = load("{enabled: true, enable: true}")
    assert found(loaded) == [(KEY, 9, 17)]
    assert loaded.problems[0].hint == "did you mean `enable`?"


@pytest.mark.parametrize(
    "tools", ["", ", plugin_tools: []", ", plugin_tools: null", ", plugin_tools: [{plugin: p, expose: []}]"]
)
def test_a_proxy_that_offers_nothing_is_an_error(tools: str) -> None:
    assert severities(load(f"{{enable: true, intercept_builtins: false{tools}}}")) == [(EMPTY, "error")]


def test_a_block_that_does_not_say_enable_is_a_warning() -> None:
    loaded = load("{intercept_builtins: true}")
    assert severities(loaded) == [(EMPTY, "warning")]
    assert proxy(loaded) is None


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ("[]", "TL103"),
        ("true", "TL103"),
        ("{enable: 'true'}", "TL103"),
        ("{enable: '${X}'}", "TL103"),
        ("{enable: true, plugin_tools: {}}", "TL103"),
        ("{enable: true, plugin_tools: [p]}", "TL103"),
        ("{enable: true, plugin_tools: [{plugin: p, expose: x}]}", "TL103"),
        ("{enable: true, intercept_builtins: false, plugin_tools: [{plugin: p, expose: x}]}", "TL103"),
        ("{enable: true, plugin_tools: [{plugin: p, expose: [5]}]}", "TL103"),
        ("{enable: true, plugin_tools: [{plugin: p}]}", "TL105"),
        ("{enable: true, plugin_tools: [{expose: [x]}]}", "TL105"),
        ("{enable: true, plugin_tools: [{plugin: '', expose: [x]}]}", "TL104"),
        ("{enable: yes}", "TL107"),
    ],
)
def test_values_are_checked(block: str, code: str) -> None:
    assert codes(load(block)) == [code]


@pytest.mark.parametrize(
    "tools",
    [
        "[{plugin: p, expose: [x, x]}]",
        "[{plugin: p, expose: [x]}, {plugin: p, expose: [z, x]}]",
        "[{plugin: a_b, expose: [c]}, {plugin: a, expose: [b_c]}]",
        "[{plugin: p, expose: [a.b, a_b]}]",
        "[{plugin: p.q, expose: [x]}, {plugin: p_q, expose: [x]}]",
        "[{plugin: p, expose: ['ä']}, {plugin: p, expose: ['ö']}]",
    ],
)
@pytest.mark.parametrize("intercept", ["true", "false"])
def test_two_tools_with_one_name_are_a_collision(tools: str, intercept: str) -> None:
    loaded = load(f"{{enable: true, intercept_builtins: {intercept}, plugin_tools: {tools}}}")
    assert codes(loaded) == [COLLISION]


@pytest.mark.parametrize(
    "tools",
    [
        "[{plugin: p, expose: [x]}, {plugin: p, expose: [z]}]",
        "[{plugin: p, expose: [x]}, {plugin: q, expose: [x]}]",
        "[{plugin: p, expose: [x, X]}]",
        "[{plugin: Re, expose: [ad]}]",
    ],
)
def test_tools_with_names_of_their_own_are_none(tools: str) -> None:
    assert codes(load(f"{{enable: true, plugin_tools: {tools}}}")) == []


def test_the_same_tools_in_two_steps_do_not_collide() -> None:
    block = "{enable: true, plugin_tools: [{plugin: p, expose: [x]}]}"
    loaded = load_states(f"""
        a: {{type: agent, provider: claude, prompt: x, mcp_proxy: {block}, on_success: b}}
        b: {{type: agent, provider: claude, prompt: x, mcp_proxy: {block}}}
    """)
    assert codes(loaded) == []


def test_a_block_is_looked_at_even_where_its_step_is_wrong() -> None:
    loaded = load_agent(
        "provider: nobody\ntimeout: 0\nmcp_proxy: {enable: true, x: 1, plugin_tools: [{plugin: p, expose: [z]}]}"
    )
    assert sorted(codes(loaded)) == ["TL104", "TL601", KEY]
    assert [block.plugin_tools[0].plugin.text for block in loaded.proxies] == ["p"]


def test_sources_of_the_configuration_are_named() -> None:
    loaded = load("{enable: true, intercept_builtins: false, sources: [github, files]}")
    assert codes(loaded) == []
    assert proxy(loaded) == Proxy(intercept_builtins=False, sources=("github", "files"))
    (block,) = loaded.proxies
    assert [source.text for source in block.sources] == ["github", "files"]


@pytest.mark.parametrize(
    ("sources", "code"),
    [
        ("[]", EMPTY),
        ("[a, a]", COLLISION),
        ("[a.b], plugin_tools: [{plugin: a_b, expose: [x]}]", ""),
        ("[p], plugin_tools: [{plugin: p, expose: [x]}]", COLLISION),
        ("[{name: a}]", "TL103"),
        ("a", "TL103"),
    ],
)
def test_a_source_is_named_once_and_some_are(sources: str, code: str) -> None:
    loaded = load(f"{{enable: true, intercept_builtins: false, sources: {sources}}}")
    assert codes(loaded) == [code] * bool(code)
