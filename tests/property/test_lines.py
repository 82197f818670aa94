"""The line framer against arbitrary bytes: chunking changes nothing, and memory stays within the cap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.chunks import cut_up, steady

from trunkline.protocol.framing import LineFramer, LineTooLong

LIMIT = 12
STREAMS = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"bc", b'{"id":1}', b"x" * LIMIT, b"\0\xff"]) | st.binary(max_size=4),
    max_size=30,
).map(b"".join)


def read(chunks: list[bytes]) -> list[bytes | str]:
    """Lines in order, and a mark with the beginning of each that was refused."""
    framer = LineFramer(LIMIT)
    out: list[bytes | str] = []
    for chunk in chunks:
        more = chunk
        while True:
            try:
                out += framer.feed(more)
                break
            except LineTooLong as error:
                out += [*error.lines, f"too long: {error.head[: LIMIT + 1]!r}"]
                more = b""
        assert framer.buffered_bytes <= LIMIT
    return out


def expected(data: bytes) -> list[bytes | str]:
    lines: list[bytes | str] = []
    *ended, unended = data.split(b"\n")
    for line in ended:
        text = line.removesuffix(b"\r")
        if len(line) > LIMIT:
            lines.append(f"too long: {line[: LIMIT + 1]!r}")
        elif text:
            lines.append(text)
    if len(unended) > LIMIT:
        lines.append(f"too long: {unended[: LIMIT + 1]!r}")
    return lines


@steady
@given(cut_up(STREAMS))
def test_any_chunking_gives_the_same_lines(stream: tuple[bytes, list[bytes]]) -> None:
    data, chunks = stream
    assert read(chunks) == read([data]) == expected(data)


@steady
@given(st.lists(st.binary(max_size=40)))
def test_arbitrary_bytes_are_framed_or_refused(chunks: list[bytes]) -> None:
    assert read(chunks) == expected(b"".join(chunks))
