"""Repairs of tool arguments as models write them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.chunks import steady

from trunkline.agents.providers.openai.tool_arguments import json_object

texts = st.text('ab"\\\n\t\r{}:, \u2603', max_size=12)
objects = st.dictionaries(texts, texts | st.integers() | st.lists(texts, max_size=2), max_size=3)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"a": 1}', '{"a": 1}'),
        (' {"a": 1.50e2} ', '{"a": 1.50e2}'),
        ('{"a": "x\ny\tz"}', '{"a": "x\\u000ay\\u0009z"}'),
        ('{\n"a": "x\ny"\n}', '{\n"a": "x\\u000ay"\n}'),
        ('{"a": "\\"\n"}', '{"a": "\\"\\u000a"}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ('"{\\"a\\": \\"x\ny\\"}"', '{"a": "x\\u000ay"}'),
        ('"{\\"a\\": \\"{}\\"}"', '{"a": "{}"}'),
    ],
)
def test_what_can_mean_one_object_is_that_object(written: str, read: str) -> None:
    assert json_object(written) == read


@pytest.mark.parametrize(
    "written",
    [
        *("", " ", "[]", "null", "1", '"text"', '"[1]"', '"{'),
        *('{"a": ', '{"a": "x\n', '{"a": "x\\\ny"}', '{"a": NaN}', '{"a": 1}{}', "{'a': 1}", '{"a": 1,}'),
        json.dumps(json.dumps('{"a": 1}')),
        '{"a": "' + '\\"' * 200_000 + "\n",
    ],
)
def test_anything_else_is_for_the_model_to_correct(written: str) -> None:
    assert json_object(written) is None


@given(objects)
@steady
def test_an_object_is_never_changed(value: dict[str, Any]) -> None:
    for written in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert json_object(written) == written


@given(objects)
@steady
def test_an_object_that_is_encoded_twice_is_the_same_object(value: dict[str, Any]) -> None:
    assert json_object(json.dumps(json.dumps(value))) == json.dumps(value)
