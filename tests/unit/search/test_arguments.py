"""Arguments as models write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.search.arguments import BadArgument, Execute, Page, Query, known_server, read_arguments


def params(**arguments: Any) -> bytes:
    return json.dumps({"name": "x", "arguments": arguments}).encode()


def test_text_for_a_number_and_null_for_nothing_will_do() -> None:
    assert read_arguments(params(limit="10", server=None), Page) == Page(limit=10)
    assert read_arguments(b'{"name":"x","arguments":null}', Query) == Query()
    assert read_arguments(b'{"name":"x"}', Query) == Query()


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({}, "`tool_id` is missing; it takes `tool_id`, `arguments`, `session`"),
        ({"tool": "a_b"}, "Unknown argument `tool`; it takes `tool_id`, `arguments`, `session`"),
        ({"tool_id": 5}, "Expected `str`, got `int` for `tool_id`; it takes `tool_id`, `arguments`, `session`"),
        ({"tool_id": "a_b", "session": []}, "Expected `str`, got `array` for `session`; it takes"),
    ],
)
def test_what_is_wrong_with_arguments_is_told_in_plain_words(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BadArgument) as refused:
        read_arguments(params(**arguments), Execute)
    assert str(refused.value).startswith(words)


def test_what_cannot_be_meant_is_told_in_few_words_however_long_it_is() -> None:
    for arguments in ({"k" * 1_000_000: 1}, {"limit": "9" * 1_000_000}):
        with pytest.raises(BadArgument) as refused:
            read_arguments(params(**arguments), Query)
        assert len(str(refused.value)) < 300
        assert "it takes `query`, `limit`" in str(refused.value)
    with pytest.raises(BadArgument) as unknown:
        known_server("x" * 1_000_000, [f"server_{number}" for number in range(200)])
    assert len(str(unknown.value)) < 300
