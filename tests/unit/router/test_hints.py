from __future__ import annotations

import pytest

from trunkline.core.tool import Tool
from trunkline.router.hints import LARGEST_BYTES, lasting_hints, use_of, with_ttl
from trunkline.router.options import CacheRules

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("definition", "rules", "use"),
    [
        (b'{"annotations":{"readOnlyHint":true}}', CacheRules(tools=("t",)), "keep"),
        (b'{"annotations":{"readOnlyHint":true}}', CacheRules(tools=("x",)), "read"),
        (b'{"annotations":{"r\\u0065adOnlyHint": true, "title": "T"}}', CacheRules(tools=("*",)), "keep"),
        (b'{"annotations":{"readonlyhint":true}}', CacheRules(tools=("*",)), "write"),
        (b'{"readOnlyHint":true}', CacheRules(tools=("*",)), "write"),
        (b'{"annotations":null}', CacheRules(tools=("*",)), "write"),
        (b'{"annotations":{"x":%b}}' % DEEP, CacheRules(tools=("*",)), "write"),
        (b"{}", CacheRules(tools=("x",), vouched=("t",)), "keep"),
    ],
    ids=range(8),
)
def test_a_tool_only_reads_if_it_says_so_or_somebody_vouches(definition: bytes, rules: CacheRules, use: str) -> None:
    assert use_of(Tool("s", "t", definition), rules) == use


@pytest.mark.parametrize(
    ("raw", "ttl_ms", "public"),
    [
        (b"{}", None, False),
        (b'{"ttlMs":5,"cacheScope":"public"}', 5, True),
        (b'{"ttlMs":1e300}', 2.0**53, False),
        (b'{"structuredContent":{"isError":true,"ttlMs":0}}', None, False),
    ],
)
def test_a_lasting_result_says_how_long_and_for_whom(raw: bytes, ttl_ms: float | None, public: bool) -> None:
    hints = lasting_hints(memoryview(raw))
    assert hints is not None
    assert (hints.own_ttl_ms, hints.is_public) == (ttl_ms, public)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"is\\u0045rror":true}',
        b'{"resultType":"input_required"}',
        b'{"ttlMs":0}',
        b'{"ttlMs":5,"x":1,"x":2}',
        b'{"content":%b}' % DEEP,
        b'{"content":"%b"}' % (b"x" * LARGEST_BYTES),
        b"[]",
    ],
    ids=range(7),
)
def test_what_fails_asks_passes_or_cannot_be_read_does_not_last(raw: bytes) -> None:
    assert lasting_hints(raw) is None


def test_another_ttl_leaves_everything_else_as_it_was_written() -> None:
    raw = b'{"a":1.0, "ttlMs":9, "b":{"x" : 12345678901234567890}}'
    assert with_ttl(raw, 3) == b'{"a":1.0,"ttlMs":3,"b":{"x" : 12345678901234567890}}'
