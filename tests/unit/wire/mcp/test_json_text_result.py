"""Which results are given a structure so that their text is not taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.wire.mcp.json_text_result import with_structure


def result(text: str, **keys: Any) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}], **keys}).encode()


@pytest.mark.parametrize("text", ["42", " -1.5e3\n", '"word"', "[1, 2]", "true", "null", '[{"a": 1}]'])
def test_a_text_that_is_json_but_no_object_gets_one_beside_it(text: str) -> None:
    changed = with_structure(result(text, isError=False))
    assert changed is not None
    assert json.loads(changed) == {**json.loads(result(text, isError=False)), "structuredContent": {}}


@pytest.mark.parametrize("text", ["", "hello", "42 lines", '{"a": 1}', "[unfinished", "true story", "[" * 10_000])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert with_structure(result(text)) is None


@pytest.mark.parametrize(
    "whole",
    [
        b'{"content":[]}',
        b'{"content":[{"type":"image","data":"","mimeType":"image/png"},{"type":"text","text":"42"}]}',
        b'{"content":[{"type":"text","text":"42"}],"structuredContent":{"a":1}}',
        b'{"resultType":"task"}',
    ],
)
def test_only_the_first_block_counts_and_a_structure_that_is_there_stays(whole: bytes) -> None:
    assert with_structure(whole) is None
