from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.discovery.rig import parameters, tool

from trunkline.core.tool import Tool
from trunkline.discovery.word_index import WordIndex
from trunkline.router.catalog import Entry


def index_of(*tools: Tool) -> WordIndex:
    index = WordIndex()
    for one in tools:
        index.add(Entry(one, f"{one.source}_{one.name}", b""))
    return index


WORLD = index_of(
    tool("github", "create_issue", "Open a new issue in a repository", inputSchema=parameters("repo", "title")),
    tool("github", "listPullRequests", "All pull requests of a repository"),
    tool("github", "get-file-contents", "Contents of a file or a directory at a branch"),
    tool("slack", "post_message", "Send a message to a channel", inputSchema=parameters("channel_id", "threadTs")),
    tool("slack", "list_channels", "The channels of a workspace", title="Rooms"),
    tool("fs", "read_file", "Read a text file from disk"),
    tool("fs", "search", "Search files by a pattern"),
    tool("fs", "search_and_replace_in_file", "Search a file and replace what was found"),
    tool("db", "query", "Run SQL against the database", annotations={"title": "SQL console"}),
)


def found(query: str) -> list[str]:
    return [entry.tool.name for entry in WORLD.search(query)]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create issue", "create_issue"),
        ("CREATE ISSUES", "create_issue"),
        ("how do I create an issue for a repository?", "create_issue"),
        ("pull request", "listPullRequests"),
        ("list pull_requests", "listPullRequests"),
        ("createIssue", "create_issue"),
        ("file contents", "get-file-contents"),
        ("message channel", "post_message"),
        ("thread", "post_message"),
        ("threadTs", "post_message"),
        ("rooms", "list_channels"),
        ("slack channels", "list_channels"),
        ("database", "query"),
        ("console", "query"),
        ("search", "search"),
        ("reading files", "read_file"),
    ],
)
def test_the_tool_that_is_meant_comes_first(query: str, best: str) -> None:
    assert found(query)[0] == best


def test_a_word_finds_longer_ones_that_begin_with_it_and_the_other_way_round() -> None:
    assert found("repositor")[0] in ("create_issue", "listPullRequests")
    assert "post_message" in found("messaging") or found("messages")[0] == "post_message"
    assert found("searching")[0] == "search"


def test_a_name_weighs_more_than_a_description() -> None:
    index = index_of(tool("s", "other", "about weather"), tool("s", "weather", ""))
    assert [entry.tool.name for entry in index.search("weather")] == ["weather", "other"]


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    common = [tool("s", f"get_{number}") for number in range(20)]
    index = index_of(*common, tool("s", "zebra"))
    assert index.search("get zebra")[0].tool.name == "zebra"


def test_equally_good_tools_stay_in_the_order_of_the_list() -> None:
    names = [f"x{number}y_same" for number in range(50)]
    index = index_of(*(tool("s", name) for name in names))
    assert [entry.tool.name for entry in index.search("same")] == names
    assert [entry.tool.name for entry in index.search("same")] == names, "and do so every time"


@pytest.mark.parametrize("query", ["", "???", "xyzzy", "_", "日本"])
def test_what_fits_nothing_finds_nothing(query: str) -> None:
    assert found(query) == []


def test_words_around_what_is_looked_for_find_nothing_by_themselves() -> None:
    assert found("a message") == found("message")
    assert found("to the"), "unless there is nothing else"


def test_other_scripts_are_words_too() -> None:
    index = index_of(tool("s", "t", "Größe der Straße"), tool("s", "u", "天気 予報"))
    assert [entry.tool.name for entry in index.search("STRASSE")] == ["t"]
    assert [entry.tool.name for entry in index.search("天気")] == ["u"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(
    query=st.text(max_size=200),
    definitions=st.lists(
        st.fixed_dictionaries({}, optional=dict.fromkeys(["title", "description", "inputSchema", "annotations"], JSON)),
        max_size=5,
    ),
    name=st.text(min_size=1, max_size=40),
)
def test_no_definition_and_no_query_is_too_odd(query: str, definitions: list[dict[str, object]], name: str) -> None:
    tools = [
        Tool("s", f"{name}{number}", json.dumps({"name": name, **definition}).encode())
        for number, definition in enumerate(definitions)
    ]
    index = index_of(*tools)
    results = index.search(query)
    assert len(results) <= len(tools)
    assert index.search(query) == results
    assert {entry.tool.name for entry in results} <= {one.name for one in tools}


def test_a_query_of_megabytes_is_answered_like_any_other() -> None:
    assert found("issue " * 1_000_000)[0] == "create_issue"
