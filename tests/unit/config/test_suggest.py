"""Suggestions for words that are not allowed."""

from __future__ import annotations

from trunkline.config.problems import hint_for, nearest

KEYS = ("command", "args", "env", "url", "max_name", "mcpServers")


SLIPS = [
    ("comand", "command"),
    ("Command", "command"),
    ("ulr", "url"),
    ("evn", "env"),
    ("arg", "args"),
    ("maxName", "max_name"),
    ("max-name", "max_name"),
    ("mcp_servers", "mcpServers"),
    ("something", None),
    ("", None),
    ("command" * 1000, None),
]


def test_the_likely_word_is_found() -> None:
    for word, meant in SLIPS:
        assert nearest(word, KEYS) == meant


def test_without_a_likely_word_a_short_list_is_given_whole() -> None:
    assert hint_for("something", ("a", "b"), "keys here") == "keys here: `a`, `b`"
    assert hint_for("something", [str(number) for number in range(100)], "keys here") == ""
