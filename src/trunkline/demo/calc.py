"""The demo server `calc`: arithmetic and units, with results as data."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from trunkline.demo.tools import text_and_data, tool
from trunkline.mcpserver import Server, ToolError
from trunkline.version import __version__

server = Server(
    "trunkline-demo-calc",
    __version__,
    "Exact arithmetic and unit conversion. Use it for every sum that matters.",
    title="Calculator",
)

# -- arithmetic -------------------------------------------------------------------------------------------------------

Number = int | float
_MOST_BITS: Final = 1000  # as large as a floating-point number can be, so that every result has one
_FOREIGN: Final = re.compile(r"[^\w\s.+*/%^(),-]|_|0[box]", re.ASCII | re.IGNORECASE)
_LEADING_ZEROS: Final = re.compile(r"(?<![\w.])0+(?=\d)")


def _round(value: Number, digits: Number = 0) -> Number:
    if not -300 <= digits <= 300:
        raise ValueError("the number of digits is out of range")
    return round(value, int(digits))


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _MOST_BITS:
        raise OverflowError
    return base**exponent


_CONSTANTS: Final = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: getattr(math, name) for name in ("acos", "asin", "atan", "cos", "hypot", "sin", "tan")},
    **{name: getattr(math, name) for name in ("ceil", "exp", "floor", "log", "log10", "log2", "sqrt")},
    "abs": abs,
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "round": _round,
}
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: lambda left, right: left % right,
    ast.Pow: _power,
}


def evaluate(expression: str) -> Number:
    """The value of an expression such as `2 * (3 + 4) ^ 2`. Python parses it, but runs none of it."""
    if foreign := _FOREIGN.search(expression):
        raise ToolError(f"`{foreign[0]}` is not expected here")
    source = _LEADING_ZEROS.sub("", " ".join(expression.split()).replace("^", "**"))
    try:
        return _value(ast.parse(source, mode="eval").body)
    except SyntaxError as error:
        raise ToolError(_misplaced(source, error)) from None
    except (MemoryError, RecursionError):
        raise ToolError("The expression is nested too deeply") from None
    except ZeroDivisionError:
        raise ToolError("Division by zero") from None
    except OverflowError:
        raise ToolError("The result is too large") from None
    except ValueError as error:
        raise ToolError(f"This cannot be calculated: {error}") from None


def _misplaced(source: str, error: SyntaxError) -> str:
    if "never closed" in error.msg:
        return "A closing parenthesis is missing"
    if "nested" in error.msg:
        return "The expression is nested too deeply"
    rest = source[error.offset - 1 :] if error.offset else ""
    found = re.match(r"\s*(\w+|\S)", rest)
    return f"`{found[1]}` is not expected here" if found else "The expression ends too early"


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _finite(number)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _finite(_OPERATORS[type(sign)](_value(left), _value(right)))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Name(id=name) if name in _FUNCTIONS:
            raise ToolError(f"`{name}` needs its arguments in parentheses")
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            values = [_value(argument) for argument in arguments]
            try:
                return _finite(_FUNCTIONS[name](*values))
            except TypeError:
                raise ToolError(f"`{name}` does not take {len(values)} arguments") from None
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            known = ", ".join(f"`{known}`" for known in (*_CONSTANTS, *sorted(_FUNCTIONS)))
            raise ToolError(f"`{name}` is unknown; known names are {known}")
        case _:
            raise ToolError(f"`{ast.unparse(node)}` is not arithmetic")


def _finite(value: Any) -> Number:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise OverflowError
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("the result is not a real number")
    return value


def _rounded(value: Number) -> Number:
    """Remove the rounding error of binary fractions: 0.1 + 0.2 is 0.3."""
    if isinstance(value, int) or not math.isfinite(value):
        return value
    rounded = float(f"{value:.12g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


@tool(
    server,
    "Calculate",
    {"expression": {"type": "string", "maxLength": 300, "description": "Such as (3 + 4) * 2 ^ 10"}},
    result={"expression": {"type": "string"}, "value": {"type": "number"}},
)
def calculate(arguments: dict[str, str]) -> Any:
    """The value of an arithmetic expression: + - * / // % ^, parentheses, pi, e, tau and the functions abs, acos, \
asin, atan, ceil, cos, exp, floor, hypot, log, log10, log2, max, min, round, sin, sqrt, tan. Angles are in radians."""
    value = _rounded(evaluate(arguments["expression"]))
    return text_and_data(str(value), {"expression": arguments["expression"].strip(), "value": value})


# -- units ------------------------------------------------------------------------------------------------------------


class Unit(NamedTuple):
    """A unit: its size in the base unit of its quantity, and where its scale begins."""

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


@tool(
    server,
    "Convert units",
    {
        "value": {"type": "number", "minimum": -1e100, "maximum": 1e100, "description": "How many"},
        "from": {"type": "string", "enum": list(UNITS), "description": "The unit it is in"},
        "to": {"type": "string", "enum": list(UNITS), "description": "The unit to convert it to"},
    },
    result={"value": {"type": "number"}, "unit": {"type": "string"}},
)
def convert(arguments: dict[str, Any]) -> Any:
    """A value in another unit of length, mass, time, volume, speed, data or temperature."""
    amount, unit, wanted = arguments["value"], arguments["from"], arguments["to"]
    source, target = UNITS[unit], UNITS[wanted]
    if source.quantity != target.quantity:
        raise ToolError(f"`{unit}` is a unit of {source.quantity} and `{wanted}` one of {target.quantity}")
    value = _rounded((amount * source.size + source.zero - target.zero) / target.size)
    return text_and_data(f"{amount:g} {unit} = {value} {wanted}", {"value": value, "unit": wanted})
