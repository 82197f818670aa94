"""What the demo servers have beside tools, asked as a client would."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.demo.clock import CLOCK_LIBRARY
from trunkline.demo.library import Library
from trunkline.demo.rpc_errors import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, RpcError
from trunkline.demo.text import TEXT_LIBRARY

ZONES = {"type": "ref/resource", "uri": "clock://now/{+timezone}"}
STYLES = {"type": "ref/prompt", "name": "proofread"}


def completed(library: Library, ref: dict[str, Any], name: str, value: str) -> list[str]:
    params = {"ref": ref, "argument": {"name": name, "value": value}}
    return library.answer("completion/complete", params)["completion"]["values"]


def test_what_there_is_is_declared() -> None:
    assert CLOCK_LIBRARY.capabilities == {"resources": {}, "completions": {}}
    assert TEXT_LIBRARY.capabilities == {"prompts": {}, "completions": {}}
    assert Library().capabilities == {}


@pytest.mark.parametrize(("zone", "offset"), [("UTC", "+00:00"), ("Asia/Tokyo", "+09:00")])
def test_a_resource_and_those_of_a_template_are_read(zone: str, offset: str) -> None:
    uri = f"clock://now/{zone}"
    (content,) = CLOCK_LIBRARY.answer("resources/read", {"uri": uri})["contents"]
    assert content["uri"] == uri and content["text"].endswith(offset)


@pytest.mark.parametrize("uri", ["clock://now/Nowhere", "clock://then", None])
def test_a_resource_that_there_is_not_is_named_in_the_error(uri: str | None) -> None:
    with pytest.raises(RpcError) as refused:
        CLOCK_LIBRARY.answer("resources/read", {"uri": uri})
    assert (refused.value.code, refused.value.data) == (RESOURCE_NOT_FOUND, {"uri": uri})


def test_a_prompt_is_filled_in() -> None:
    got = TEXT_LIBRARY.answer("prompts/get", {"name": "proofread", "arguments": {"text": "helo"}})
    assert "plain style" in got["messages"][0]["content"]["text"] and "helo" in got["messages"][0]["content"]["text"]


def test_words_are_proposed_for_prompts_and_templates() -> None:
    assert completed(TEXT_LIBRARY, STYLES, "style", "F") == ["formal", "friendly"]
    assert completed(TEXT_LIBRARY, STYLES, "text", "") == []
    assert "Europe/Berlin" in completed(CLOCK_LIBRARY, ZONES, "timezone", "europe/b")
    assert len(completed(CLOCK_LIBRARY, ZONES, "timezone", "")) == 100


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("prompts/get", {"name": "proofread"}, INVALID_PARAMS),
        ("prompts/get", {"name": "proofread", "arguments": []}, INVALID_PARAMS),
        ("prompts/get", {"name": "other"}, INVALID_PARAMS),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "other"}, "argument": {}}, INVALID_PARAMS),
        ("completion/complete", {"ref": 1}, INVALID_PARAMS),
        ("resources/list", {}, METHOD_NOT_FOUND),
        ("resources/subscribe", {"uri": "x"}, METHOD_NOT_FOUND),
    ],
)
def test_what_cannot_be_answered_is_refused(method: str, params: dict[str, Any], code: int) -> None:
    with pytest.raises(RpcError) as refused:
        TEXT_LIBRARY.answer(method, params)
    assert refused.value.code == code
