from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trunkline.sources.builtin.file_formats import TextFormat


@given(st.binary(max_size=200))
def test_any_bytes_survive_the_way_there_and_back(data: bytes) -> None:
    style = TextFormat.of(data)
    try:
        text = style.decode(data)
    except UnicodeDecodeError:
        assert style.encoding.startswith(("utf-16", "utf-32"))
    else:
        again = style.encode(text)
        # a second mark is dropped: no program writes two
        assert again == data or data.startswith(style.mark * 2)
