"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from trunkline.agents.workflow.value_types import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1h", 3600),
        ("1.5s", 1.5),
        (".5m", 30),
        ("1.h", 3600),
        ("1h1h", 7200),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("10μs", 1e-5),
        ("7ns", 7e-9),
        ("0s", 0),
        ("30s1m", 90),
        ("+1s", 1),
        ("-1m30s", -90),
    ],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "s",
        "1 s",
        "1d",
        "1S",
        "-",
        "+-1s",
        "1m+30s",
        "1s ",
        " 1s",
        "1..5s",
        ".s",
        "1e3s",
        "\u0661s",
        "1m30",
        "1" * 65 + "s",
    ],
)
def test_anything_else_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_duration(text)
