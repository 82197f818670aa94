from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.discovery.words import singular, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("create_issue", ["create", "issue"]),
        ("get-file-contents", ["get", "file", "content"]),
        ("listPullRequests", ["listpullrequest", "list", "pull", "request"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("parseJSON", ["parsejson", "parse", "json"]),
        ("GitHub", ["github", "git", "hub"]),
        ("oauth2 v2", ["oauth2", "v2"]),
        ("READ ME", ["read", "me"]),
        ("Straße straße STRASSE", ["strasse", "strasse", "strasse"]),
        ("!? _ -", []),
    ],
)
def test_identifiers_and_prose_become_words(text: str, expected: list[str]) -> None:
    assert list(words(text)) == expected


@pytest.mark.parametrize(
    ("plural", "expected"),
    [
        ("issues", "issue"),
        ("queries", "query"),
        ("branches", "branch"),
        ("addresses", "address"),
        ("boxes", "box"),
        ("status", "status"),
        ("analysis", "analysis"),
        ("class", "class"),
        ("as", "as"),
        ("aws", "aws"),
    ],
)
def test_plurals_become_singular(plural: str, expected: str) -> None:
    assert singular(plural) == expected


@given(st.text())
def test_any_text_gives_words_and_none_is_empty(text: str) -> None:
    assert all(words(text))
