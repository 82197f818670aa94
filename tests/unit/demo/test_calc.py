from __future__ import annotations

import pytest

from trunkline.demo.calc import CALC, UNITS
from trunkline.demo.toolbox import Answer, Refusal


def convert(value: float, source: str, target: str) -> Answer:
    return CALC.tools["convert"].call({"value": value, "from": source, "to": target})


def test_a_result_comes_as_text_and_as_data() -> None:
    answer = CALC.tools["calculate"].call({"expression": " 0.1 + 0.2"})
    assert answer == Answer("0.3", {"expression": "0.1 + 0.2", "value": 0.3})


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (72, "F", "C", 22.2222222222),
        (-40, "C", "F", -40),
        (0, "C", "K", 273.15),
        (26.2, "mile", "km", 42.1648128),
        (1, "GiB", "MB", 1073.741824),
        (90, "min", "h", 1.5),
        (100, "kmh", "mps", 27.7777777778),
        (5, "lb", "kg", 2.26796185),
    ],
)
def test_units_are_converted(value: float, source: str, target: str, expected: float) -> None:
    assert convert(value, source, target).data == {"value": expected, "unit": target}


def test_what_cannot_be_converted_says_why() -> None:
    with pytest.raises(Refusal, match=r"length.*mass"):
        convert(1, "m", "kg")
    with pytest.raises(Refusal, match="`to` must be one of"):
        convert(1, "m", "parsec")
    with pytest.raises(Refusal, match="`value`"):
        convert(1e200, "m", "km")


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_itself(unit: str) -> None:
    assert (convert(12.5, unit, unit).data or {})["value"] == 12.5
