from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.protocol.mcp.tool_results import shortened

LIMIT = 1_000


def raw(**members: Any) -> bytes:
    return json.dumps(members).encode()


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": short_texts} for short_texts in texts]


def cut(limit: int = LIMIT, **members: Any) -> dict[str, Any]:
    short = shortened(raw(**members), limit)
    assert short is not None
    return json.loads(short)


def test_a_result_that_fits_stays_as_it_is() -> None:
    assert shortened(raw(content=text("a" * 1_000)), LIMIT) is None
    assert shortened(raw(content=text("ü" * 1_000)), LIMIT) is None
    assert shortened(raw(content=[{"type": "image", "data": "A" * 5_000, "mimeType": "image/png"}]), LIMIT) is None


def test_of_a_long_text_beginning_and_end_are_kept_and_what_is_missing_is_said() -> None:
    (block,) = cut(content=text("begin" + "x" * 5_000 + "end"))["content"]
    assert block["text"].startswith("begin") and block["text"].endswith("end")
    assert "characters were left out here" in block["text"]
    assert len(block["text"]) <= 1_000


def test_what_else_a_result_says_stays() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    short = cut(content=[image, *text("x" * 5_000)], isError=True, _meta={"a": 1})
    assert (short["content"][0], short["isError"], short["_meta"]) == (image, True, {"a": 1})


def test_data_that_repeats_a_long_text_goes() -> None:
    assert "structuredContent" not in cut(content=text("x" * 5_000), structuredContent={"all": "x" * 5_000})


def test_data_without_a_text_becomes_a_text_that_is_cut() -> None:
    short = cut(content=[], structuredContent={"rows": list(range(2_000))})
    assert "structuredContent" not in short
    assert short["content"][0]["text"].startswith('{"rows":[0,1,')


def test_long_data_beside_a_short_text_goes_since_agents_would_show_it_in_its_place() -> None:
    short = cut(content=text("2,000 rows"), structuredContent={"rows": list(range(2_000))})
    assert short == {"content": text("2,000 rows")}


def test_text_in_a_resource_counts_too() -> None:
    resource = {"uri": "file:///a", "text": "begin" + "x" * 5_000}
    (block,) = cut(content=[{"type": "resource", "resource": resource}])["content"]
    assert block["resource"]["uri"] == "file:///a"
    assert block["resource"]["text"].startswith("begin")
    assert len(block["resource"]["text"]) <= LIMIT


def test_of_many_texts_the_last_go_and_one_word_says_so() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    content = cut(content=[*text(*["x" * 100] * 50), image])["content"]
    assert content[0] == {"type": "text", "text": "x" * 100}
    assert image in content
    assert [block["text"] for block in content if "left out" in block.get("text", "")] == [content[-1]["text"]]


@given(
    st.lists(st.text(st.sampled_from("aü😀\n")) | st.integers(0, 3_000).map(lambda size: "x\n" * size), max_size=40),
    st.integers(400, 3_000),
)
def test_whatever_comes_out_is_within_the_limit(texts: list[str], characters: int) -> None:
    result = shortened(raw(content=text(*texts)), characters)
    short_texts = texts if result is None else [block["text"] for block in json.loads(result)["content"]]
    assert sum(map(len, short_texts)) <= characters
    assert (result is None) == (sum(map(len, texts)) <= characters)


@pytest.mark.parametrize("odd", [b'"\\ud800"', b"1e400", b"-1" + b"0" * 5000, b"12345678901234567890123"])
def test_a_result_may_hold_any_number_and_half_a_character(odd: bytes) -> None:
    long = b'{"content":[{"type":"text","text":"\\udfff' + b"x" * 6000 + b'"}],"_meta":{"odd":' + odd + b"}}"
    cut = shortened(long, 1000)
    assert cut is not None
    assert len(json.loads(cut)["content"][0]["text"]) <= 1000
