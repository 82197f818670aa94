"""The keys all sources have."""

from __future__ import annotations

from tests.support.config_files import codes, found, load_text, settings_of

from trunkline.config.sources import Cache, Guard, ToolSelection


def source(text: str) -> str:
    return f"sources: {{a: {{kind: mcp_stdio, command: x, {text}}}}}"


def test_every_common_key_can_be_set() -> None:
    loaded = load_text(
        """
sources:
  a:
    kind: mcp_stdio
    command: x
    enabled: false
    prefix: files
    timeout: 5
    connect_timeout: 1
    start_timeout: 2
    grace: 0
    tools:
      allow: ["read_*"]
      deny: [read_secret]
      rename: {read_file: read}
      timeouts: {read_file: 0.5}
    sessions: shared
    guard: {path_traversal: true}
    cache: {tools: [read_file], ttl: 5, assume_read_only: ["list_*"]}
"""
    )
    assert codes(loaded) == []
    read = settings_of(loaded).sources["a"]
    assert (read.enabled, read.prefix, read.timeout, read.grace, read.sessions) == (False, "files", 5, 0, "shared")
    assert (read.connect_timeout, read.start_timeout) == (1, 2)
    assert read.tools == ToolSelection(
        allow=("read_*",), deny=("read_secret",), rename={"read_file": "read"}, timeouts={"read_file": 0.5}
    )
    assert read.guard == Guard(path_traversal=True)
    assert read.cache == Cache(tools=("read_file",), ttl=5.0, assume_read_only=("list_*",))


def test_the_prefix_is_the_name_unless_another_or_none_is_given() -> None:
    for text, prefix in (("timeout: 1", "a"), ("prefix: b", "b"), ("prefix: ''", "")):
        assert settings_of(load_text(source(text))).sources["a"].prefix == prefix


def test_wrong_values_are_refused() -> None:
    for text in (
        "prefix: a.b",
        "timeout: 0",
        "timeout: 1e9",
        "sessions: mine",
        "tools: {rename: {a: ''}}",
        "tools: {rename: {a: 'b c'}}",
        "tools: {timeouts: {a: 0}}",
        "tools: {allow: ['']}",
        "cache: {ttl: 0}",
        "cache: {assume_read_only: ['']}",
    ):
        assert codes(load_text(source(text))) == ["TL104"], text


def test_two_tools_cannot_be_renamed_to_one_name() -> None:
    text = (
        "sources:\n  a:\n    kind: mcp_stdio\n    command: x\n    tools:\n      rename:\n        a: c\n        b: c\n"
    )
    assert found(load_text(text)) == [("TL104", 8, 12)]
