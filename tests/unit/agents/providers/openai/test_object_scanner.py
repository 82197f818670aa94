from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.agents.providers.openai.tool_arguments import ObjectScanner

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('{}[]"\\ \nü', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{"\\x', max_size=3), inner, max_size=3),
    max_leaves=8,
)


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@given(VALUES, st.lists(st.integers(0, 200), max_size=8), st.sampled_from(["", " ", "}", "\n{}", "x"]))
def test_after_every_piece_it_says_what_parsing_all_of_it_would(value: object, cuts: list[int], behind: str) -> None:
    text = json.dumps(value) + behind
    places = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    end = ObjectScanner()
    for count in range(1, len(pieces) + 1):
        assert end.reached(pieces[:count]) == is_object("".join(pieces[:count]))


@pytest.mark.parametrize("pieces", [["{}", "{}"], ["{x}", "{}"], ["}", "{}"], ["[{}]", "{}"], ['"{}', "}"]])
def test_what_is_no_single_object_never_becomes_one(pieces: list[str]) -> None:
    assert not ObjectScanner().reached(pieces)
