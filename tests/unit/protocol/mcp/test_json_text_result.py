"""Which results are given a structure so that their text is not taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.protocol.mcp.tool_results import with_structure


def result(text: str, **keys: Any) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}], **keys}).encode()


@pytest.mark.parametrize(
    "text", ["42", " -1.5e3\n", '"word"', "[1, 2]", "true", "null", '[{"a": 1}]', "[1e400]", '"\\ud800"']
)
def test_a_text_that_is_json_but_no_object_gets_one_beside_it(text: str) -> None:
    changed = with_structure(result(text, isError=False))
    assert changed is not None
    assert json.loads(changed) == {**json.loads(result(text, isError=False)), "structuredContent": {}}


def test_a_text_of_digits_or_brackets_without_end_gets_one_too() -> None:
    for text in ("1" * 10_000, "[" * 100_000 + "]" * 100_000):
        assert with_structure(result(text)) is not None


def test_all_else_of_a_result_stays_byte_for_byte() -> None:
    rest = b'"content": [{"type":"text","text":"42"}], "_meta":{"a":1.10,"b":1e400,"c":"\\ud800"}}'
    assert with_structure(b" {" + rest) == b' {"structuredContent":{},' + rest
    assert with_structure(b'{"structuredContent":null,"content":[{"type":"text","text":"42"}]}') == (
        b'{"structuredContent": {}, "content": [{"type": "text", "text": "42"}]}'
    )


@pytest.mark.parametrize("text", ["", "hello", "42 lines", '{"a": 1}', "[unfinished", "true story", "\\ud800"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert with_structure(result(text)) is None


@pytest.mark.parametrize(
    "whole",
    [
        b'{"content":[]}',
        b'{"content":[{"type":"image","data":"","mimeType":"image/png"},{"type":"text","text":"42"}]}',
        b'{"content":[{"type":"text","text":"42"}],"structuredContent":{"a":1}}',
        b'{"resultType":"task"}',
        b'{"content":[{"type":"text","text":"\\ud800"}],"_meta":{"a":1e400}}',
    ],
)
def test_only_the_first_block_counts_and_a_structure_that_is_there_stays(whole: bytes) -> None:
    assert with_structure(whole) is None
