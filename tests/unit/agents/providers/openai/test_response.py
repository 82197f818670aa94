from __future__ import annotations

import json

import pytest
from tests.support.models.chat import DONE, chunks, event, stream, whole_answer
from tests.support.models.script import Use, calls, says

from trunkline.agents.providers.openai.reasoning import AnswerTooLarge
from trunkline.agents.providers.openai.response import ChatResponseParser, MalformedAnswer, ModelServerError, error_text

CALL = calls(Use("Read", {"path": "a.txt"}))


def read(*pieces: bytes, limit: int = 100_000) -> ChatResponseParser:
    reader = ChatResponseParser(limit)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    return reader


def names(reader: ChatResponseParser) -> list[str]:
    return [call.name for call in reader.turn(0).calls]


def test_a_stream_is_over_with_its_last_word() -> None:
    reader = ChatResponseParser(1000)
    whole = stream(CALL, 0)
    reader.feed(whole[:-3])
    assert not reader.done
    reader.feed(whole[-3:])
    assert reader.done
    reader.feed(b"data: what follows is nobody's\n\n")
    assert names(reader) == ["Read"]


@pytest.mark.parametrize(
    "as_sent",
    [
        lambda whole: whole.replace(b"\n", b"\r\n"),
        lambda whole: b": waiting\n\n" + whole.replace(b"data: ", b": OPENROUTER PROCESSING\n\ndata:"),
        lambda whole: whole.replace(b"\n\ndata", b"\ndata"),
        lambda whole: b"\xef\xbb\xbf\r\n" + whole,
        lambda whole: whole.replace(b"data: [DONE]\n\n", b""),
        lambda whole: whole.removesuffix(b"\n\n"),
        lambda whole: whole.replace(b"data: ", b"event: message\nid: 1\ndata: "),
    ],
    ids=["CRLF", "comments", "no blank lines", "byte order mark", "no last word", "no end of line", "fields"],
)
def test_streams_are_read_however_they_are_written(as_sent: object) -> None:
    reader = read(as_sent(stream(CALL, 0)))  # type: ignore[operator]
    assert reader.is_complete
    assert names(reader) == ["Read"]
    assert reader.tokens[1] == 5


def test_a_whole_answer_is_taken_where_a_stream_was_asked_for() -> None:
    body = json.dumps(whole_answer(CALL, 0), indent=2).encode()
    reader = read(b"\n ", body[:20], body[20:])
    assert reader.is_complete
    assert names(reader) == ["Read"]


def test_a_whole_answer_needs_no_word_on_how_it_ends() -> None:
    assert read(b'{"choices": [{"message": {"content": "Hi"}}]}').is_complete


def test_the_last_event_counts_though_its_line_does_not_end() -> None:
    *said, end, _ = chunks(CALL, 0)
    reader = read(*map(event, said), event(end).rstrip())
    assert reader.is_complete


def test_a_stream_without_an_end_is_not_complete() -> None:
    begun = b"".join(event(chunk) for chunk in chunks(CALL, 0)[:-2])
    assert not read(begun).is_complete
    assert read(begun, event(DONE)).is_complete


@pytest.mark.parametrize("nothing", [b"", b"<html>Please log in</html>", b": comment\n\n", event(DONE), b"{}"])
def test_what_holds_no_answer_has_not_begun(nothing: bytes) -> None:
    reader = read(nothing)
    assert not reader.begun
    assert not reader.is_complete


@pytest.mark.parametrize(
    "broken", [b"data: {]\n\n", b"data: 3\n\n", b'{"choices": [', b"data: " + b"[" * 100_000 + b"\n\n"]
)
def test_what_is_not_json_cannot_be_read(broken: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        read(broken, limit=1_000_000)


def test_an_event_over_the_limit_is_refused() -> None:
    with pytest.raises(AnswerTooLarge):
        read(b"data: " + b"x" * 2000, limit=1000)


@pytest.mark.parametrize(
    ("error", "message", "status"),
    [
        ({"error": {"message": "overloaded", "code": 503}}, "overloaded", 503),
        ({"error": {"message": "bad key", "code": "401"}}, "bad key", 401),
        ({"error": {"message": "bad", "code": "invalid_value"}}, "bad", 0),
        ({"error": {"message": "bad", "code": "1234"}}, "bad", 0),
        ({"error": "out of memory"}, "out of memory", 0),
        ({"object": "error", "message": "too long", "code": 400}, "too long", 400),
        ({"choices": [{"delta": {}, "finish_reason": "error"}]}, "", 0),
    ],
)
def test_an_error_inside_the_stream_is_the_servers(error: dict[str, object], message: str, status: int) -> None:
    with pytest.raises(ModelServerError) as caught:
        read(event(chunks(says("Hi"), 0)[0]), event(error))
    assert message in str(caught.value)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("data", "message"), [(b'{"message": "overloaded"}', "overloaded"), (b"out of memory", "out of memory")]
)
def test_an_event_that_is_called_an_error_is_one(data: bytes, message: str) -> None:
    with pytest.raises(ModelServerError, match=message):
        read(b"event: error\ndata: " + data + b"\n\n")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "one"}}, "one"),
        ({"error": "two"}, "two"),
        ([{"error": {"message": "three"}}], "three"),
        ({"message": "four"}, "four"),
        ({"detail": "five"}, "five"),
        ({"detail": [{"loc": 1}]}, '{"detail": [{"loc": 1}]}'),
        ([], ""),
    ],
)
def test_what_a_server_says_is_found(body: object, said: str) -> None:
    assert error_text(body) == said
