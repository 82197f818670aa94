from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import pathlib
from typing import Any

import pytest

from trunkline.client import image
from trunkline.sdk.results import NotJson, plain


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2


@dataclasses.dataclass
class Point:
    x: int
    colour: Colour


class Name(str): ...


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, None),
        (True, True),
        ("a", "a"),
        (1.5, 1.5),
        (Level.HIGH, 2),
        (Name("n"), "n"),
        (Point(1, Colour.RED), {"x": 1, "colour": "red"}),
        ({"a": (1, {2})}, {"a": [1, [2]]}),
        (pathlib.Path("a/b"), "a/b"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2, 3, 4), "2026-01-02T03:04:00"),
    ],
)
def test_values_of_a_program_have_a_form_in_json(value: Any, result: Any) -> None:
    got = plain(value)
    assert got == result
    assert type(got) is type(result)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"x", "bytes cannot be written as JSON"),
        (object(), "`object` cannot be written as JSON"),
        ({1: 2}, "the key `1` is not text"),
        ([float("nan")], "`nan` cannot be written as JSON"),
        (Point, "`type` cannot be written as JSON"),
    ],
)
def test_what_has_none_says_so(value: Any, reason: str) -> None:
    with pytest.raises(NotJson) as raised:
        plain(value)
    assert reason in str(raised.value)


def test_a_picture_is_mcp_content() -> None:
    data = base64.b64encode(b"\x89PNG").decode()
    picture = {"type": "image", "data": data, "mimeType": "image/png"}
    assert image(b"\x89PNG") == {"content": [picture]}
    assert image(b"\x89PNG", text="a cat") == {"content": [{"type": "text", "text": "a cat"}, picture]}
    assert image(b"", "image/gif")["content"][0]["mimeType"] == "image/gif"
