"""The demo server `calc`: arithmetic and units, with results as data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from trunkline.demo.expression import FUNCTIONS, Number, evaluate
from trunkline.demo.toolbox import Answer, Arguments, Refusal, Tool, toolbox

_LONGEST: Final = 300


class Unit(NamedTuple):
    """A unit as so many of its quantity's base unit, counted from `zero`."""

    quantity: str
    size: float
    zero: float = 0.0


def _units(quantity: str, **sizes: float) -> dict[str, Unit]:
    return {name: Unit(quantity, size) for name, size in sizes.items()}


UNITS: Final[Mapping[str, Unit]] = {
    **_units("length", mm=0.001, cm=0.01, m=1.0, km=1000.0, inch=0.0254, ft=0.3048, yd=0.9144, mile=1609.344),
    **_units("mass", g=0.001, kg=1.0, t=1000.0, oz=0.028349523125, lb=0.45359237),
    **_units("time", s=1.0, min=60.0, h=3600.0, day=86400.0, week=604800.0),
    **_units("volume", ml=0.001, l=1.0, m3=1000.0, cup=0.2365882365, pint=0.473176473, gallon=3.785411784),
    **_units("speed", mps=1.0, kmh=1 / 3.6, mph=0.44704, knot=1852 / 3600),
    **_units("data", B=1.0, kB=1e3, MB=1e6, GB=1e9, TB=1e12, KiB=2.0**10, MiB=2.0**20, GiB=2.0**30, TiB=2.0**40),
    "K": Unit("temperature", 1.0),
    "C": Unit("temperature", 1.0, 273.15),
    "F": Unit("temperature", 5 / 9, 273.15 - 32 * 5 / 9),
}


def _calculate(arguments: Arguments) -> Answer:
    value = _tidy(evaluate(arguments["expression"]))
    return Answer(str(value), {"expression": arguments["expression"].strip(), "value": value})


def _convert(arguments: Arguments) -> Answer:
    source, target = UNITS[arguments["from"]], UNITS[arguments["to"]]
    if source.quantity != target.quantity:
        message = f"`{arguments['from']}` is a unit of {source.quantity} and `{arguments['to']}` one of"
        raise Refusal(f"{message} {target.quantity}")
    value = _tidy((arguments["value"] * source.size + source.zero - target.zero) / target.size)
    text = f"{arguments['value']:g} {arguments['from']} = {value} {arguments['to']}"
    return Answer(text, {"value": value, "unit": arguments["to"]})


def _tidy(value: Number) -> Number:
    """Without the dust of binary fractions: 0.1 + 0.2 is 0.3 to everyone who asks."""
    if isinstance(value, int) or not math.isfinite(value):
        return value
    tidied = float(f"{value:.12g}")
    return int(tidied) if tidied.is_integer() and abs(tidied) < 1e15 else tidied


_UNIT = {"type": "string", "enum": list(UNITS)}

CALC = toolbox(
    "calc",
    "Calculator",
    "Exact arithmetic and unit conversion. Use it for every sum that matters.",
    Tool(
        "calculate",
        "Calculate",
        "The value of an arithmetic expression: + - * / // % ^, parentheses, pi, e, tau and the functions "
        f"{', '.join(FUNCTIONS)}. Angles are in radians.",
        _calculate,
        {"expression": {"type": "string", "maxLength": _LONGEST, "description": "Such as (3 + 4) * 2 ^ 10"}},
        result={"expression": {"type": "string"}, "value": {"type": "number"}},
    ),
    Tool(
        "convert",
        "Convert units",
        "A value in another unit of length, mass, time, volume, speed, data or temperature.",
        _convert,
        {
            "value": {"type": "number", "minimum": -1e100, "maximum": 1e100, "description": "How many"},
            "from": {**_UNIT, "description": "The unit it is in"},
            "to": {**_UNIT, "description": "The unit to convert it to"},
        },
        result={"value": {"type": "number"}, "unit": {"type": "string"}},
    ),
)
