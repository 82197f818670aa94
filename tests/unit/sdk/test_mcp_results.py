"""Which values a handler may return, and the results they become."""

from __future__ import annotations

import base64

import pytest

from trunkline.mcpserver import audio, image, text
from trunkline.sdk.results import failed, result_of


def words(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in texts]


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, {"content": []}),
        ("hello", {"content": words("hello")}),
        (3, {"content": words("3")}),
        (True, {"content": words("true")}),
        ({"a": "ä"}, {"content": words('{"a":"ä"}'), "structuredContent": {"a": "ä"}}),
        ({}, {"content": words("{}"), "structuredContent": {}}),
        ([1, 2], {"content": words("[1,2]")}),
        ([], {"content": words("[]")}),
        (["a", "b"], {"content": words('["a","b"]')}),
        ((text("a"), "b"), {"content": words("a", "b")}),
        (text("a"), {"content": words("a")}),
        ({"content": words("x"), "isError": True}, {"content": words("x"), "isError": True}),
        ({"content": []}, {"content": []}),
    ],
)
def test_a_value_becomes_a_result(value, result) -> None:
    assert result_of(value) == result


def test_data_that_only_looks_like_a_result_is_data() -> None:
    assert result_of({"content": "my text"})["structuredContent"] == {"content": "my text"}
    assert result_of({"content": [1]})["structuredContent"] == {"content": [1]}
    assert result_of([{"type": "invoice"}]) == {"content": words('[{"type":"invoice"}]')}


def test_any_structure_is_for_those_who_can_read_it() -> None:
    assert result_of([1], any_structure=True) == {"content": words("[1]"), "structuredContent": [1]}


def test_pictures_and_sound_are_base64_with_their_type() -> None:
    assert image(b"\0x") == {"type": "image", "data": base64.b64encode(b"\0x").decode(), "mimeType": "image/png"}
    assert audio(b"x", "audio/mpeg")["mimeType"] == "audio/mpeg"
    assert result_of(image(b"x"))["content"][0]["type"] == "image"


@pytest.mark.parametrize("value", [b"raw", {1, 2}, object(), float("nan"), {"a": float("inf")}])
def test_what_no_json_can_be_made_of_is_refused(value) -> None:
    with pytest.raises((TypeError, ValueError)):
        result_of(value)


def test_a_failure_says_so() -> None:
    assert failed("no") == {"content": words("no"), "isError": True}
