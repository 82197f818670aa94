"""The SSE codec against arbitrary bytes: neither chunking nor the kind of line end changes what is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.chunks import cut_up, cuts, steady

from trunkline.protocol.sse import COMMENT, SseEvent, SseParser, SseTooLarge, encode_event

LIMIT = 60
LINES = st.lists(
    st.sampled_from(
        [
            b"",
            b"",
            b"event: message",
            b"event: endpoint",
            b"event:",
            b"data: {}",
            b"data:two",
            b"data",
            b"data: " + b"x" * 25,
            b"id: 7",
            b"id: \0",
            b"id",
            b"retry: 100",
            b"retry: x",
            b": comment",
            b"other: field",
            b"\xef\xbb\xbfdata: bom",
        ]
    )
    | st.text(max_size=6).map(lambda text: text.replace("\r", "").replace("\n", "").encode()),
    max_size=20,
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
ONE_LINE = st.binary(max_size=80).map(lambda data: data.replace(b"\r", b"").replace(b"\n", b""))


def read(chunks: list[bytes], limit_bytes: int = LIMIT) -> tuple[list[SseEvent], bool]:
    """The events, and whether the stream was refused after them."""
    parser = SseParser(limit_bytes)
    events: list[SseEvent] = []
    for chunk in chunks:
        try:
            events += parser.feed(chunk)
        except SseTooLarge as error:
            return events + error.events, True
        assert parser.buffered_bytes <= limit_bytes
    return events, False


@steady
@given(st.data(), LINES)
def test_neither_chunking_nor_the_kind_of_line_end_matters(data: st.DataObject, lines: list[bytes]) -> None:
    # A lone CR followed by an empty line's LF would be one CRLF, so ends are mixed only where they stay what they are.
    end = data.draw(ENDS)
    stream = b"".join(line + end for line in lines)
    reference = read([b"".join(line + b"\n" for line in lines)])
    assert read(data.draw(cuts(stream))) == reference


@steady
@given(cut_up(st.lists(st.sampled_from([b"\r", b"\n", b"data: a", b"id: 1", b":", b"x" * 30])).map(b"".join)))
def test_any_chunking_of_mixed_line_ends_gives_the_same_events(stream: tuple[bytes, list[bytes]]) -> None:
    data, chunks = stream
    assert read(chunks) == read([data])


@steady
@given(st.lists(st.binary(max_size=40)))
def test_arbitrary_bytes_are_read_or_refused(chunks: list[bytes]) -> None:
    assert read(chunks) == read([b"".join(chunks)])


@steady
@given(st.data(), st.lists(ONE_LINE, max_size=5), st.sampled_from([b"message", b"endpoint", "événement".encode()]))
def test_what_is_encoded_is_read_back(data: st.DataObject, payloads: list[bytes], name: bytes) -> None:
    stream = b"".join(COMMENT + encode_event(payload, event=name, id=b"%d" % at) for at, payload in enumerate(payloads))
    events, refused = read(data.draw(cuts(stream)), limit_bytes=1000)
    assert not refused
    assert [(event.event.encode(), event.data, event.id) for event in events] == [
        (name, payload, str(at)) for at, payload in enumerate(payloads)
    ]


@steady
@given(st.binary(max_size=20), st.binary(max_size=5), st.binary(max_size=5))
def test_one_encoded_event_is_never_read_as_two(payload: bytes, name: bytes, event_id: bytes) -> None:
    try:
        frame = encode_event(payload, event=name, id=event_id)
    except ValueError:
        assert any(byte in payload + name + event_id for byte in b"\r\n\0")
        return
    events, _ = read([frame], limit_bytes=1000)
    assert [event.data for event in events] == [payload]
