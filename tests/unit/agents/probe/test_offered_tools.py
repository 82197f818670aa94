from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.agents.probe.probe import tools_offered

MESSAGES = {"tools": [{"name": "Read", "input_schema": {}}, {"type": "web_search_20260101", "name": "web_search"}]}
CHAT = {"tools": [{"type": "function", "function": {"name": "t_Read", "parameters": {}}}]}
RESPONSES = {
    "tools": [
        {"type": "function", "name": "exec"},
        {"type": "namespace", "name": "mcp__t", "tools": [{"type": "function", "name": "Read"}]},
        {"type": "web_search"},
    ],
    "input": [{"type": "message"}, {"type": "additional_tools", "tools": [{"type": "custom", "name": "apply_patch"}]}],
}
UNREAD = {
    "tools": [{"type": "namespace", "name": "shell", "members": ["exec"]}],
    "input": [{"type": "tools_of_tomorrow", "tools": [{"type": "custom", "name": "apply_patch"}]}],
}
GEMINI = {"tools": [{"functionDeclarations": [{"name": "mcp_t_Read"}, {"name": "glob"}]}, {"googleSearch": {}}]}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (MESSAGES, ("Read", "web_search")),
        (CHAT, ("t_Read",)),
        (RESPONSES, ("exec", "mcp__t/Read", "web_search", "apply_patch")),
        (UNREAD, ("shell/", "apply_patch")),
        (GEMINI, ("mcp_t_Read", "glob", "googleSearch")),
        ({"messages": []}, ()),
        ([1], ()),
    ],
)
def test_the_tools_of_a_request_are_found_whichever_api_it_is_for(body: object, names: tuple[str, ...]) -> None:
    assert tools_offered(json.dumps(body).encode()) == names


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["tools", "input", "type", "name", "function", "functionDeclarations", "namespace"]),
                inner,
            )
        ),
    )
)
def test_whatever_an_agent_sends_is_read_without_a_fault(body: object) -> None:
    tools_offered(json.dumps({"tools": body, "input": body}).encode())


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\x00", b"null"])
def test_what_is_no_json_offers_nothing(body: bytes) -> None:
    assert tools_offered(body) == ()
