"""Arguments in the spellings that models use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.config.call_arguments import InvalidArguments, read_arguments
from trunkline.search.own_tool_definitions import ExecuteArguments, FindArguments, ListToolsArguments, known_server


def params(**arguments: Any) -> bytes:
    return json.dumps({"name": "x", "arguments": arguments}).encode()


def test_text_for_a_number_and_null_for_nothing_will_do() -> None:
    assert read_arguments(params(limit="10", server=None), ListToolsArguments) == ListToolsArguments(limit=10)
    assert read_arguments(b'{"name":"x","arguments":null}', FindArguments) == FindArguments()
    assert read_arguments(b'{"name":"x"}', FindArguments) == FindArguments()


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({}, "`tool_id` is missing: it takes `tool_id`, `arguments`, `session`"),
        ({"tool": "a_b"}, "Unknown argument `tool`: did you mean `tool_id`?"),
        ({"tool_id": 5}, "`tool_id` must be text, not 5"),
        ({"tool_id": "a_b", "session": []}, "`session` must be text, not []"),
    ],
)
def test_what_is_wrong_with_arguments_is_told_in_plain_words(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        read_arguments(params(**arguments), ExecuteArguments)
    assert str(refused.value).startswith(words)


def test_what_cannot_be_meant_is_told_in_few_words_however_long_it_is() -> None:
    for arguments, words in (
        ({"k" * 1_000_000: 1}, "it takes `query`, `limit`"),
        ({"limit": "9" * 1_000_000}, "`limit` cannot be"),
    ):
        with pytest.raises(InvalidArguments) as refused:
            read_arguments(params(**arguments), FindArguments)
        assert len(str(refused.value)) < 300
        assert words in str(refused.value)
    with pytest.raises(InvalidArguments) as unknown:
        known_server("x" * 1_000_000, [f"server_{number}" for number in range(200)])
    assert len(str(unknown.value)) < 300
