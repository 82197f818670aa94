"""For any bytes of a peer, what we accept is what other parsers see, and a refusal costs one message."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples, steady

from trunkline.core.call import Request
from trunkline.core.errors import INVALID_REQUEST, PARSE_ERROR
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Message,
    check_text,
    decode,
    encode,
    encode_members,
    encode_notification,
    encode_request,
    error_message,
    members_of,
    parse_message,
    replace_lone_surrogates,
    single_line,
)
from trunkline.protocol.mcp.modern import completed_result, encode_request_meta

often = settings(steady, max_examples=examples(300))

# JSON in every spelling ----------------------------------------------------------------------------------------------

SCALARS = ("null", "true", "false", '""', "0", "-0", "-0.0", "1.10", "1e400", "-1E-7", "123456789012345678901234567890")
NAMES = ('"a"', '"\\u0061"', '"\\u0061b"', '"ab"', '"é"', '"\\u00e9"', '"id"', '"_meta"', '"resultType"')
ESCAPES = ('\\"', "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t", "\\u0000", "\\uFFFF", "\\ud83d\\ude00", "\\u2028")
PLAIN = "aZ 09{}[]:,'é\u2028\U0001f600\x7f"


class Writer:
    """Writes random JSON: any blanks, escapes, numbers, order, and the same name twice.

    Drawn from one seed, because drawing every token from Hypothesis takes a hundred times as long.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._blank_share = self._random.choice((0.0, 0.0, 0.3))

    def blank(self) -> str:
        return self._random.choice((" ", "\t", "\r", "\n", "\r\n")) if self._random.random() < self._blank_share else ""

    def string(self) -> str:
        parts = [self._random.choice(self._random.choice((PLAIN, ESCAPES))) for _ in range(self._random.randrange(5))]
        return f'"{"".join(parts)}"'

    def number(self) -> str:
        digits = str(self._random.randrange(10 ** self._random.randrange(1, 40)))
        fraction = self._random.choice(("", "", f".{self._random.randrange(10**9)}"))
        exponent = self._random.choice(("", "", f"e{self._random.randrange(-999, 999)}", "E+07"))
        return self._random.choice(("", "-")) + digits + fraction + exponent

    def scalar(self) -> str:
        return self._random.choice((self._random.choice(SCALARS), self.string(), self.number()))

    def name(self) -> str:
        return self._random.choice((self._random.choice(NAMES), self.string()))

    def value(self, depth: int = 3) -> str:
        kind = self._random.randrange(4) if depth else 3
        text = self.object(depth - 1) if kind == 0 else self.array(depth - 1) if kind == 1 else self.scalar()
        return self.blank() + text + self.blank()

    def object(self, depth: int = 3) -> str:
        members = [self._member(depth) for _ in range(self._random.randrange(5))]
        return f"{{{','.join(members) or self.blank()}}}"

    def _member(self, depth: int) -> str:
        return f"{self.blank()}{self.name()}{self.blank()}:{self.value(depth)}"

    def array(self, depth: int = 3) -> str:
        return f"[{','.join(self.value(depth) for _ in range(self._random.randrange(4)))}]"

    def message(self) -> str:
        """Something like a JSON-RPC message."""
        choose = self._random.choice
        values = {
            '"jsonrpc"': choose(('"2.0"', '"2.0"', '"2.0"', '"2.0"', '"1.0"', "2.0")),
            '"id"': choose(("1", "-7", '"1"', "null", "1.0", "[]", "true", "-0", self.scalar())),
            '"method"': choose(('"tools/call"', '"ping"', self.string(), self.value())),
            '"params"': self.value(),
            '"result"': self.value(),
            '"error"': self.value(),
            self.name(): self.value(),
        }
        kept = [(name, value) for name, value in values.items() if self._random.random() < 0.7]
        if self._random.random() < 0.1:
            kept += kept[:1]
        self._random.shuffle(kept)
        return f"{{{','.join(f'{name}{self.blank()}:{value}' for name, value in kept)}}}"


seeds = st.integers(0, 2**64)
documents = seeds.map(lambda seed: Writer(seed).value())
objects = seeds.map(lambda seed: Writer(seed).object())
no_objects = seeds.map(Writer).map(lambda writer: writer.array() if writer.blank() else writer.scalar())
messages = seeds.map(lambda seed: Writer(seed).message().encode())


def read(text: bytes) -> Any:
    """The value as the standard library sees it; numbers stay as written, and objects are lists of pairs."""
    return json.loads(text, object_pairs_hook=Pairs, parse_int=str, parse_float=str)


class Pairs(list[tuple[str, Any]]):
    @property
    def names(self) -> list[str]:
        return [name for name, _ in self]

    @property
    def repeats(self) -> bool:
        return len(set(self.names)) != len(self)


# members_of ----------------------------------------------------------------------------------------------------------


@often
@given(objects.map(lambda text: f" {text}\n") | objects)
@example('{"a":1,"a":1}')
@example('{"a":1,"\\u0061":1}')
@example('{"\\u0061":%s}' % ("1" * 5000))
@example('{"é":[{"a":1,"a":2}]}')
def test_an_object_is_taken_exactly_when_no_name_comes_twice(text: str) -> None:
    data = text.encode()
    pairs = read(data)
    try:
        members = members_of(data, "object")
    except BadMessage as error:
        assert error.code is INVALID_REQUEST
        assert pairs.repeats
    else:
        assert not pairs.repeats
        assert list(members) == pairs.names
        assert [read(bytes(value)) for value in members.values()] == [value for _, value in pairs]


@often
@given(no_objects)
def test_what_is_no_object_is_refused_as_such(text: str) -> None:
    with pytest.raises(BadMessage) as refused:
        members_of(text.encode(), "it")
    assert refused.value.code is INVALID_REQUEST


@often
@given(st.binary(max_size=60))
def test_any_bytes_are_members_or_a_bad_message(data: bytes) -> None:
    try:
        members = members_of(data, "it")
    except BadMessage as error:
        assert error.code in (INVALID_REQUEST, PARSE_ERROR)
    else:
        assert read(data).names == list(members)


# parse_message -------------------------------------------------------------------------------------------------------


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A message with a few bytes changed, doubled or missing."""
    data = bytearray(draw(messages))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
    return bytes(data)


def parsed(data: bytes) -> Message | None:
    """The message, or None for one that was refused in order."""
    try:
        return parse_message(data)
    except BadMessage as error:
        assert error.code in (INVALID_REQUEST, PARSE_ERROR)
        id_value = json.loads(error.id_json)
        assert id_value is None or isinstance(id_value, str | int)
        answer = error_message(error.id_json, b"{}")
        assert read(answer).names == ["jsonrpc", "id", "error"]
        assert b"\n" not in answer
        return None


@often
@given(st.one_of(st.binary(max_size=80), messages, damaged()))
@example(b"")
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"x"}')
@example(b'{"jsonrpc":"2.0","id":1e400,"method":"x"}')
@example(b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}')
@example(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"x"}')
@example('{"jsonrpc":"2.0","id":1,"method":"x"}'.encode("utf-16"))
def test_any_bytes_are_one_message_or_one_refusal(data: bytes) -> None:
    message = parsed(data)
    if message is None:
        return
    check_text(data)
    pairs = read(data)
    assert not pairs.repeats
    seen = dict(pairs)
    assert seen["jsonrpc"] == "2.0"
    assert message.method == seen.get("method")
    assert read(message.id_json) == seen.get("id")
    assert type(message.id) is type(json.loads(message.id_json))
    for name, value in (("params", message.params), ("result", message.result), ("error", message.error)):
        assert (None if value is None else read(bytes(value))) == seen.get(name)


@steady
@given(st.integers(-(10**30), 10**30) | st.text(max_size=20).filter(lambda text: text.isprintable()))
def test_an_id_comes_back_as_it_was_with_its_type(given_id: int | str) -> None:
    message = parse_message(json.dumps({"jsonrpc": "2.0", "method": "x", "id": given_id}).encode())
    assert (type(message.id), message.id) == (type(given_id), given_id)
    assert json.loads(message.id_json) == given_id


# single_line ---------------------------------------------------------------------------------------------------------


@often
@given(documents)
def test_one_line_keeps_every_value_as_it_was_written(text: str) -> None:
    line = single_line(text.encode())
    assert b"\n" not in line
    assert b"\r" not in line
    assert read(line) == read(text.encode())


@often
@given(documents)
def test_text_without_line_breaks_stays_byte_for_byte(text: str) -> None:
    text = text.replace("\n", "").replace("\r", "")
    assert single_line(text.encode()) == text.encode()


@often
@given(seeds, st.integers(0, 40), st.sampled_from(["\\ud83d", "\\uDC00", "\\uD800\\u0041", "\\ud83d\\ud83d"]))
def test_half_a_surrogate_anywhere_in_a_text_is_mended_and_nothing_else(seed: int, at: int, half: str) -> None:
    text = Writer(seed).string()
    whole = [match.end() for match in re.finditer(r"\\u[dD]8..\\u[dD][eE]..|\\u....|\\.|[^\\]", text)]
    place = whole[at % (len(whole) - 1)] if len(whole) > 1 else 1
    damaged = text[:place] + half + text[place:]
    mended = replace_lone_surrogates(damaged.encode())
    assert replace_lone_surrogates(text.encode()) == text.encode()
    expected = json.loads(damaged).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert json.loads(mended) == expected
    assert decode(mended) == expected


# encoding ------------------------------------------------------------------------------------------------------------

raw_members = st.dictionaries(
    st.text(max_size=8), documents.map(lambda text: single_line(text.strip().encode())), max_size=4
)


@steady
@given(raw_members)
def test_members_that_were_put_together_come_apart_the_same(members: dict[str, bytes]) -> None:
    assert {name: bytes(value) for name, value in members_of(encode_members(members), "it").items()} == members


@steady
@given(
    params=raw_members.map(lambda members: {name: value for name, value in members.items() if name != "_meta"}),
    meta=st.none() | raw_members.map(lambda members: {f"x/{name}": value for name, value in members.items()}),
    modern=st.booleans(),
    progress=st.booleans(),
    upstream_id=st.integers(1, 10**15),
)
def test_a_request_reaches_its_server_with_the_same_params_and_meta(
    params: dict[str, bytes], meta: dict[str, bytes] | None, modern: bool, progress: bool, upstream_id: int
) -> None:
    request = Request("tools/call", encode_members(params), lambda _: None, meta=meta)
    request.wants_progress = progress
    mark = encode_request_meta("us", "1", b"{}") if modern else b""
    sent = parse_message(encode_request(request, upstream_id, mark))
    assert (sent.id, sent.method) == (upstream_id, "tools/call")
    assert sent.params is not None
    arrived = members_of(sent.params, "params")
    arrived_meta = members_of(arrived.pop("_meta", b"{}"), "_meta")
    assert {name: bytes(value) for name, value in arrived.items()} == params
    for name, value in (meta or {}).items():
        assert bytes(arrived_meta.pop(name)) == value
    assert ("progressToken" in arrived_meta) == progress
    assert bytes(arrived_meta.pop("progressToken", b"")) == (encode(upstream_id) if progress else b"")
    assert len(arrived_meta) == (3 if modern else 0)


@steady
@given(st.none() | raw_members)
def test_a_notification_reads_back(params: dict[str, bytes] | None) -> None:
    sent = parse_message(encode_notification("notifications/x", None if params is None else encode_members(params)))
    assert sent.id is None
    assert sent.method == "notifications/x"
    assert (None if sent.params is None else bytes(sent.params)) == (None if params is None else encode_members(params))


# complete ------------------------------------------------------------------------------------------------------------


@often
@given(objects | objects.map(lambda text: f"\r\n{text}"))
@example('{"content":[],"x":{"resultType":1}}')
@example('{"content":[],"a":1,"a":2,"x":{"resultType":1}}')
@example('{"result\\u0054ype":"task"}')
@example("{ }")
def test_a_result_says_once_that_it_is_complete(text: str) -> None:
    before = read(text.encode())
    assume(before.names.count("resultType") <= 1)
    after = read(completed_result(text.encode()))
    assert after.names.count("resultType") == 1
    if "resultType" in before.names:
        assert after == before
    else:
        assert after == [("resultType", "complete"), *before]
