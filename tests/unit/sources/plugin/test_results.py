"""A plugin's responses as MCP results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.sdk.plugin_v1 import OperationResult
from trunkline.sources.plugin.operations import MalformedResult, result_from


def made(done: OperationResult) -> dict[str, Any]:
    return json.loads(result_from(done))


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_output_is_the_text_and_data_the_structure() -> None:
    done = OperationResult(True, "two lines\nhere", {"n": b"1.50", "list": b'[1, "a"]'})
    assert made(done) == {"content": [text("two lines\nhere")], "structuredContent": {"n": 1.5, "list": [1, "a"]}}
    assert b'"n":1.50' in result_from(done), "numbers keep their digits"


def test_data_alone_is_shown_as_text_too() -> None:
    assert made(OperationResult(True, "", {"n": b"1"})) == {"content": [text('{"n":1}')], "structuredContent": {"n": 1}}


def test_nothing_at_all_is_an_empty_text() -> None:
    assert made(OperationResult(True)) == {"content": [text("")]}


def test_a_failure_has_its_words_its_output_and_its_data() -> None:
    assert made(OperationResult(False, error="no")) == {"content": [text("no")], "isError": True}
    both = OperationResult(False, "printed", {"code": b"3"}, "failed")
    assert made(both) == {
        "content": [text("failed"), text("printed")],
        "structuredContent": {"code": 3},
        "isError": True,
    }
    assert made(OperationResult(False, "only this")) == {"content": [text("only this")], "isError": True}
    assert "does not say why" in made(OperationResult(False))["content"][0]["text"]


def test_a_result_is_one_line() -> None:
    assert b"\n" not in result_from(OperationResult(True, "a\r\nb", {"k": b'{\n  "x":\r\n 1\n}'}))


@pytest.mark.parametrize("raw", [b"", b"{", b"1 2", b'1,"x":2', b"NaN", b'"\xff"', b"[" * 200_000 + b"]" * 200_000])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedResult, match="`key`"):
        result_from(OperationResult(True, "", {"key": raw}))


def test_names_may_be_anything() -> None:
    names = {'"': b"1", "a\nb": b"2", "é": b"3", "": b"4"}
    assert made(OperationResult(True, "x", names))["structuredContent"] == {'"': 1, "a\nb": 2, "é": 3, "": 4}
