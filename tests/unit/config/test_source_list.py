"""The `sources` of a file: names and kinds."""

from __future__ import annotations

from tests.support.config_files import codes, found, load_text, settings_of

from trunkline.config.sources import UnreadySource


def test_sources_keep_the_order_of_the_file() -> None:
    text = """
sources:
  z: {kind: mcp_stdio, command: x}
  a: {kind: mcp_http, url: "http://x"}
mcpServers:
  m: {command: x}
"""
    assert list(settings_of(load_text(text)).sources) == ["z", "a", "m"]


def test_names_must_be_names() -> None:
    assert found(load_text("sources:\n  a.b: {kind: mcp_stdio, command: x}\n")) == [("TL111", 2, 3)]
    assert codes(load_text("sources: {trunkline: {kind: mcp_stdio, command: x}}")) == ["TL111"]


def test_one_name_in_both_places_is_given_twice() -> None:
    text = "mcpServers:\n  a: {command: x}\nsources:\n  a: {kind: mcp_stdio, command: x}\n"
    assert found(load_text(text)) == [("TL106", 4, 3)]


def test_an_unknown_kind_gets_a_suggestion() -> None:
    loaded = load_text("sources:\n  a:\n    kind: mcp_htp\n    url: http://x\n")
    assert found(loaded) == [("TL104", 3, 11)]
    assert loaded.problems[0].hint == "did you mean `mcp_http`?"


def test_a_missing_kind_is_guessed() -> None:
    telling = {"command": "mcp_stdio", "url": "mcp_http", "listen": "app", "endpoint": "service", "root": "builtin"}
    for key, kind in telling.items():
        (problem,) = load_text(f"sources: {{a: {{{key}: x}}}}").problems
        assert problem.code.id == "TL105"
        assert problem.hint == f"add `kind: {kind}`"


def test_a_kind_that_is_no_text_is_refused() -> None:
    for kind in ("5", "[]", "~", "'${HOME}'"):
        assert len(load_text(f"sources: {{a: {{kind: {kind}}}}}").problems) == 1


def test_a_missing_key_is_reported_at_the_sources_name() -> None:
    assert found(load_text("sources:\n  a:\n    kind: mcp_stdio\n")) == [("TL105", 2, 3)]


def test_the_keys_of_another_kind_are_unknown() -> None:
    assert codes(load_text("sources: {a: {kind: mcp_http, url: 'http://x', args: []}}")) == ["TL102"]


def test_a_source_that_is_switched_off_does_not_need_its_variables() -> None:
    text = "sources:\n  a: {kind: mcp_http, enabled: false, url: '${NOWHERE}'}\n  b: {kind: mcp_stdio, command: x}\n"
    loaded = load_text(text)
    assert [(problem.code.id, problem.severity) for problem in loaded.problems] == [("TL110", "warning")]
    assert {name: section.enabled for name, section in settings_of(loaded).sources.items()} == {"a": False, "b": True}


def test_a_source_that_lacks_a_variable_is_there_and_not_ready() -> None:
    text = "sources:\n  a: {kind: mcp_http, url: '${NOWHERE}/${NOWHERE}', prefix: p, headers: {X: '${GONE}'}}\n"
    section = settings_of(load_text(text)).sources["a"]
    obstacles = ("Environment variable `NOWHERE` is not set", "Environment variable `GONE` is not set")
    assert section == UnreadySource(prefix="p", of_kind="mcp_http", obstacles=obstacles)


def test_a_source_that_lacks_a_variable_is_another_once_it_is_there() -> None:
    text = "sources: {a: {kind: mcp_stdio, command: x, args: ['${WORD}']}}"
    lacking, ready, other = (settings_of(load_text(text, environ=environ)) for environ in ({}, {"WORD": "w"}, {}))
    assert not ready.sources["a"].same_connection(lacking.sources["a"])
    assert not lacking.sources["a"].same_connection(ready.sources["a"])
    assert lacking.sources["a"].same_connection(other.sources["a"])


def test_a_source_that_is_wrong_besides_is_refused() -> None:
    for wrong in ("timeout: -1", "nonsense: 1", "enabled: 5", "args: {}", "env: {A: '${b c}'}"):
        loaded = load_text(f"sources: {{a: {{kind: mcp_stdio, command: '${{NOWHERE}}', {wrong}}}}}")
        assert loaded.settings is None, wrong
    assert load_text("sources: {a: {kind: mcp_stdio, args: ['${NOWHERE}']}}").settings is None


def test_no_variable_means_no_gateway_where_the_gateway_itself_needs_it() -> None:
    loaded = load_text("gateway: {token: '${NOWHERE}'}\nsources: {a: {kind: mcp_stdio, command: '${NOWHERE}'}}")
    assert [problem.severity for problem in loaded.problems] == ["error", "warning"]
    assert loaded.settings is None


def test_entries_of_the_wrong_shape_are_refused() -> None:
    assert codes(load_text("sources: []")) == ["TL103"]
    assert codes(load_text("sources: {a: 5}")) == ["TL103"]
    assert codes(load_text("sources:")) == []
