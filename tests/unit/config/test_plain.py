"""Unquoted YAML values: read in one way, or refused."""

from __future__ import annotations

from trunkline.config.tree import ambiguity, plain_scalar_kind

SPELLINGS = {
    "null": ["", "~", "null", "Null", "NULL"],
    "boolean": ["true", "False", "TRUE"],
    "number": ["0", "-1", "+7", "60", "1.5", ".5", "1.", "1e3", "-1.5E-3", "0.5", "123456789012345"],
    "switch": ["yes", "No", "ON", "off", "y", "N", "YES", "oFF"],
    "refused": [
        "22:22",
        "1:30:00",
        "-1:59",
        "8080:22",
        "1:30.5",
        "010",
        "00",
        "-07",
        "08",
        "0x1f",
        "0o17",
        "0b11",
        "1_000",
        "1_000.5",
        ".inf",
        "-.INF",
        ".NaN",
        "0_1",
    ],
    "text": [
        "npx",
        "127.0.0.1:4747",
        "2026-01-31",
        "2026-01-31T12:00:00Z",
        "8080:80",
        "1.2.3",
        "v1",
        "-y",
        "--root",
        "nope",
        "yess",
        "0xzz",
        "localhost:80",
        "=",
        "a:b",
        "1e",
        "1-2",
        "http://x",
        "192.168.0.1",
        "tru",
        "12:60",
        "@x/y",
    ],
}


def test_every_spelling_is_read_in_one_way_or_refused() -> None:
    for kind, spellings in SPELLINGS.items():
        assert {text: plain_scalar_kind(text) for text in spellings} == dict.fromkeys(spellings, kind)


def test_the_hint_shows_both_ways_to_write_it() -> None:
    assert ambiguity("off")[1] == 'write `"off"` for the text, or `false`'
    assert '"22:22"' in ambiguity("22:22")[1]
