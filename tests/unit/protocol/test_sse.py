from __future__ import annotations

import pytest

from trunkline.protocol.sse import COMMENT, SseEvent, SseParser, SseTooLarge, encode_event


def parse(data: bytes, limit_bytes: int = 1000) -> list[SseEvent]:
    return SseParser(limit_bytes).feed(data)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_each_kind_of_line_end_is_understood(end: bytes) -> None:
    parser = SseParser(1000)
    events = parser.feed(end.join([b"event: message", b"data: {}", b"", b"data: 2", b"", b""]))
    assert events == [SseEvent("message", b"{}"), SseEvent("message", b"2")]


def test_a_line_end_may_be_split_between_chunks() -> None:
    parser = SseParser(1000)
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\ndata: b\r\n\r") == [SseEvent("message", b"a\nb")]
    assert parser.feed(b"\ndata: c\n\n") == [SseEvent("message", b"c")]


def test_data_lines_are_joined_by_newlines() -> None:
    assert parse(b"data: a\ndata:\ndata\ndata:b\n\n") == [SseEvent("message", b"a\n\n\nb")]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert parse(b"data:  a \n\n") == [SseEvent("message", b" a ")]


def test_empty_data_is_an_event_and_no_data_is_none() -> None:
    assert parse(b"data:\n\nevent: x\n\n: comment\n\ndata: y\n\n") == [
        SseEvent("message", b""),
        SseEvent("message", b"y"),
    ]


def test_the_name_of_an_event_does_not_outlive_it() -> None:
    assert parse(b"event: endpoint\ndata: /x\n\ndata: y\n\n") == [
        SseEvent("endpoint", b"/x"),
        SseEvent("message", b"y"),
    ]


def test_the_last_event_id_stays_in_force() -> None:
    parser = SseParser(1000)
    events = parser.feed(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\n\ndata: c\n\nid\ndata: d\n\n")
    assert [event.id for event in events] == ["1", "1", "2", ""]


def test_an_id_with_nul_is_ignored() -> None:
    parser = SseParser(1000)
    parser.feed(b"id: good\n\nid: b\0d\ndata: x\n\n")
    assert parser.last_event_id == "good"


@pytest.mark.parametrize(("value", "expected"), [(b"1500", 1500), (b"-1", None), (b"1.5", None), (b"", None)])
def test_retry_takes_digits_only(value: bytes, expected: int | None) -> None:
    parser = SseParser(1000)
    [event] = parser.feed(b"retry: " + value + b"\ndata: x\n\n")
    assert event.retry == parser.retry_ms == expected


def test_an_absurd_retry_is_ignored() -> None:
    assert parse(b"retry: " + b"9" * 500 + b"\ndata: x\n\n")[0].retry is None


def test_a_byte_order_mark_is_dropped_at_the_start_only() -> None:
    parser = SseParser(1000)
    assert parser.feed(b"\xef") == []
    assert parser.feed(b"\xbb\xbfdata: x\n\n") == [SseEvent("message", b"x")]
    assert parser.feed(b"\xef\xbb\xbfdata: x\n\n") == []


def test_comments_and_unknown_fields_are_dropped() -> None:
    assert parse(COMMENT + b": ping\nfoo: bar\nDATA: no\ndata: x\n\n") == [SseEvent("message", b"x")]


def test_an_event_without_its_blank_line_never_comes_out() -> None:
    assert parse(b"data: a\n\ndata: b\n") == [SseEvent("message", b"a")]


def test_a_name_that_is_not_utf8_does_not_break_the_parser() -> None:
    [event] = parse(b"event: \xff\nid: \xfe\ndata: \xfd\n\n")
    assert (event.event, event.id, event.data) == ("\ufffd", "\ufffd", b"\xfd")


@pytest.mark.parametrize("size", [1, 3, 8, 1000])
def test_the_cap_on_an_event_does_not_depend_on_chunking(size: int) -> None:
    parser = SseParser(20)
    data = b"data: fits\n\ndata: 12345678\ndata: 123\n\n"
    events: list[SseEvent] = []
    with pytest.raises(SseTooLarge) as caught:
        for at in range(0, len(data), size):
            events += parser.feed(data[at : at + size])
    assert events + caught.value.events == [SseEvent("message", b"fits")]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_an_event_of_exactly_the_cap_passes(size: int) -> None:
    parser = SseParser(20)
    data = b"\xef\xbb\xbfdata: 12345678901\n\n"
    events = [event for at in range(0, len(data), size) for event in parser.feed(data[at : at + size])]
    assert [event.data for event in events] == [b"12345678901"]


def test_a_line_without_end_is_refused_at_the_cap() -> None:
    parser = SseParser(20)
    parser.feed(b":" * 20)
    assert parser.buffered_bytes == 20
    with pytest.raises(SseTooLarge):
        parser.feed(b":")


def test_a_large_event_in_many_chunks_comes_out_whole() -> None:
    payload = bytes(range(32, 127)) * 1000
    frame = encode_event(payload)
    parser = SseParser(200_000)
    events = [event for at in range(0, len(frame), 4096) for event in parser.feed(frame[at : at + 4096])]
    assert events == [SseEvent("message", payload)]
    assert parser.buffered_bytes == 0


def test_an_encoded_event_is_one_event() -> None:
    assert encode_event(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'
    assert encode_event(memoryview(b"{}"), id=b"7") == b"event: message\nid: 7\ndata: {}\n\n"
    assert encode_event(b"/x", event=b"endpoint") == b"event: endpoint\ndata: /x\n\n"


@pytest.mark.parametrize("data", [b"{\n}", b"{\r}", b"\n", b"{}\r\n"])
def test_data_with_line_breaks_is_refused(data: bytes) -> None:
    for form in (data, memoryview(data)):
        with pytest.raises(ValueError):
            encode_event(form)


@pytest.mark.parametrize("text", [b"a\nb", b"a\rb", b"a\0b"])
def test_names_and_ids_with_line_breaks_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        encode_event(b"{}", event=text)
    with pytest.raises(ValueError):
        encode_event(b"{}", id=text)
