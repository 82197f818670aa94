"""Arithmetic from text to number: a small parser of its own, so that nothing but arithmetic can ever run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from trunkline.demo.toolbox import Refusal

Number = int | float

_MOST_BITS: Final = 1000  # as large as a floating-point number can be, so that every result has one
_DEEPEST: Final = 40
_TOKEN: Final = re.compile(
    r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z]\w*)|(\*\*|//|\S))", re.ASCII
)
_CONSTANTS: Final[Mapping[str, float]] = {"pi": math.pi, "e": math.e, "tau": math.tau}


def _magnitude(value: Number) -> Number:
    return abs(value)


def _round(value: Number, digits: Number = 0) -> Number:
    if not -300 <= digits <= 300:
        raise ValueError("that many digits cannot be rounded to")
    return round(value, int(digits))


_FUNCTIONS: Final[Mapping[str, Callable[..., Number]]] = {
    "abs": _magnitude,
    "acos": math.acos,
    "asin": math.asin,
    "atan": math.atan,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "hypot": math.hypot,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "round": _round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
FUNCTIONS: Final = tuple(_FUNCTIONS)


def evaluate(text: str) -> Number:
    """The value of an expression such as `2 * (3 + 4) ^ 2`; raises Refusal for anything else."""
    parser = _Parser(text)
    try:
        return _sound(parser.whole())
    except ZeroDivisionError:
        raise Refusal("Division by zero") from None
    except OverflowError:
        raise Refusal("The result is too large") from None
    except ValueError as error:
        raise Refusal(f"This cannot be calculated: {error}") from None


def _tokens(text: str) -> list[tuple[str, str]]:
    """Pairs of kind and text; the last one is the end."""
    kinds = ("number", "name", "sign")
    found = [(kinds[match.lastindex - 1], match[match.lastindex]) for match in _TOKEN.finditer(text) if match.lastindex]
    return [*found, ("end", "")]


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _MOST_BITS:
        raise OverflowError
    return _sound(base**exponent)


def _sound(value: object) -> Number:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise OverflowError
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("the result is not a real number")
    return value


_SUM: Final[Mapping[str, Callable[[Number, Number], Number]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
}
_PRODUCT: Final[Mapping[str, Callable[[Number, Number], Number]]] = {
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "//": lambda left, right: left // right,
    "%": lambda left, right: left % right,
}


class _Parser:
    """Recursive descent: sums of products of powers of numbers, names, functions and parentheses."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Number:
        value = self._sum()
        kind, text = self._tokens[self._at]
        if kind != "end":
            raise Refusal(f"`{text}` was not expected there")
        return value

    def _takes(self, *signs: str) -> str:
        """The next token, taken, if it is one of these signs."""
        kind, text = self._tokens[self._at]
        if kind != "sign" or text not in signs:
            return ""
        self._at += 1
        return text

    def _sum(self) -> Number:
        value = self._product()
        while sign := self._takes(*_SUM):
            value = _sound(_SUM[sign](value, self._product()))
        return value

    def _product(self) -> Number:
        value = self._signed()
        while sign := self._takes(*_PRODUCT):
            value = _sound(_PRODUCT[sign](value, self._signed()))
        return value

    def _signed(self) -> Number:
        """As in mathematics, `-2 ^ 2` is minus four."""
        negative = False
        while sign := self._takes("+", "-"):
            negative ^= sign == "-"
        value = self._raised()
        return -value if negative else value

    def _raised(self) -> Number:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Refusal("The expression is nested too deeply")
        base = self._atom()
        value = _power(base, self._signed()) if self._takes("**", "^") else base
        self._depth -= 1
        return value

    def _atom(self) -> Number:
        kind, text = self._tokens[self._at]
        self._at += kind != "end"
        if kind == "number":
            return _sound(int(text) if text.isdigit() else float(text))
        if kind == "name":
            return self._named(text)
        if text == "(":
            value = self._sum()
            self._close()
            return value
        raise Refusal(f"A number is missing before `{text}`" if text else "The expression ends too early")

    def _named(self, name: str) -> Number:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name not in _FUNCTIONS:
            known = ", ".join(f"`{known}`" for known in (*_CONSTANTS, *_FUNCTIONS))
            raise Refusal(f"`{name}` is not known here; there are {known}")
        if not self._takes("("):
            raise Refusal(f"`{name}` needs its arguments in parentheses")
        values = [self._sum()]
        while self._takes(","):
            values.append(self._sum())
        self._close()
        try:
            return _sound(_FUNCTIONS[name](*values))
        except TypeError:
            raise Refusal(f"`{name}` does not take {len(values)} arguments") from None

    def _close(self) -> None:
        if not self._takes(")"):
            raise Refusal("A closing parenthesis is missing")
