from __future__ import annotations

import sys

import pytest

from trunkline.protocol.jsonrpc import BadMessage
from trunkline.protocol.mcp.capabilities import TASKS, askable, declared, declared_by_legacy


def test_equal_capabilities_are_equal_bytes() -> None:
    spaced = b'{ "sampling": {}, "elicitation": { "form": {} }, "vendor": {} }'
    assert declared(spaced) == declared(b'{"elicitation":{"form":{}},"sampling":{}}')
    assert askable(declared(b'{"sampling":{},"extensions":{"a/b":{}}}')) == b'{"sampling":{}}'


def test_a_client_from_before_cannot_know_the_tasks_of_2026_07_28() -> None:
    both = b'{"extensions":{"a/b":{},"%b":{}},"roots":{}}' % TASKS.encode()
    assert declared_by_legacy(both, "2025-11-25") == b'{"extensions":{"a/b":{}},"roots":{}}'
    assert declared_by_legacy(b'{"roots": {}}', "2025-11-25") == b'{"roots":{}}'
    assert TASKS.encode() in declared(both)


def test_servers_are_not_told_of_what_the_clients_version_has_not() -> None:
    said = b'{"elicitation":{},"roots":{}}'
    for version in ("2024-11-05", "2025-03-26"):
        assert declared_by_legacy(said, version) == b'{"roots":{}}'
    for version in ("2025-06-18", "2025-11-25"):
        assert declared_by_legacy(said, version) == said


@pytest.mark.parametrize("capabilities", [b"[]", b"1", b'{"roots":{},"roots":{}}'])
def test_what_is_no_object_is_refused(capabilities: bytes) -> None:
    with pytest.raises(BadMessage):
        declared(capabilities)


def test_capabilities_too_large_to_be_true_are_neither_declared_nor_kept() -> None:
    text = b'{"roots":{"x":"%b"}}' % (b"x" * 100_000)
    before = sys.getrefcount(text)
    assert declared(text) == b"{}"
    assert sys.getrefcount(text) == before
