"""Conditions of transitions, such as `states.test.ExitCode == 0 and inputs.mode == 'full'`; parsed, never run as code.

They are the documented part of AWF's expressions: comparisons, `contains`, `startsWith`, `endsWith`, `in`, `and`, `or`,
`not` and parentheses, over inputs, exit codes and outputs. Anything else is refused by its name.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from trunkline.agents.workflow.template import Reference, RunValues, parse_template

_LONGEST: Final = 2000
_DEEPEST: Final = 30
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>-?[0-9]+(?:\.[0-9]+)?(?![\w.]))
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<sign>&&|\|\||==|!=|<=|>=|[<>!(),\[\]])
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_-]+)*)
      | (?P<other>\S)
    )""",
    re.VERBOSE,
)
_NUMBER: Final = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?\Z", re.ASCII)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_FIELDS: Final[Mapping[str, Literal["Output", "ExitCode"]]] = {
    "Output": "Output",
    "output": "Output",
    "ExitCode": "ExitCode",
    "exit_code": "ExitCode",
}
_FUNCTIONS: Final = {"contains": "contains", "has_prefix": "startsWith", "has_suffix": "endsWith"}
_AND: Final = ("and", "&&")
_OR: Final = ("or", "||")
_NOT: Final = ("not", "!")
_HINTS: Final = {"=": "equality is `==`", "{": "names have no braces, as in `inputs.NAME`"}

Value = str | float | bool
Compare = Callable[[Value, Value], bool]


class ConditionError(ValueError):
    """An error in a condition, or something that is not supported."""


class StateNotRun(Exception):
    """A condition refers to a state that has not run, so it is false, as in AWF."""


@dataclass(frozen=True, slots=True)
class ConditionReference(Reference):
    """A reference in a condition, shown as it is written there."""

    written: str

    def __str__(self) -> str:
        return self.written


# -- evaluation --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a condition. `plain`: a value, which can be compared; `decides`: it is true or false by itself."""

    value: Callable[[RunValues], Value]
    plain: bool = False
    decides: bool = True

    def holds(self, values: RunValues) -> bool:
        value = self.value(values)
        return value is True or (isinstance(value, str) and value.lower() == "true")


def _literal(value: Value) -> _Node:
    return _Node(lambda _: value, plain=True, decides=isinstance(value, bool))


def _of_state(state: str, field: Literal["Output", "ExitCode"]) -> _Node:
    def value(values: RunValues) -> Value:
        if state not in values.exit_codes:
            raise StateNotRun
        return values.outputs.get(state, "") if field == "Output" else values.exit_codes[state]

    return _Node(value, plain=True, decides=False)


def _not(part: _Node) -> _Node:
    return _Node(lambda values: not part.holds(values))


def _compared(left: _Node, sign: str, right: _Node) -> _Node:
    compare = _COMPARED[sign]
    return _Node(lambda values: compare(left.value(values), right.value(values)))


def _equal(left: Value, right: Value) -> bool:
    """Equality: text compared with a number or a boolean is read as one; two texts are compared as they are."""
    if isinstance(left, bool) or isinstance(right, bool):
        return _as_text(left).lower() == _as_text(right).lower()
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    numbers = _number(left), _number(right)
    return None not in numbers and numbers[0] == numbers[1]


def _ordered(order: Callable[[float, float], bool]) -> Compare:
    """A comparison by order, which only numbers have, and text that is one."""

    def compare(left: Value, right: Value) -> bool:
        first, second = _number(left), _number(right)
        return first is not None and second is not None and order(first, second)

    return compare


def _of_text(relation: Callable[[str, str], bool]) -> Compare:
    return lambda left, right: relation(_as_text(left), _as_text(right))


def _number(value: Value) -> float | None:
    if isinstance(value, str):
        return float(value) if _NUMBER.match(value.strip()) else None
    return float(value)


def _as_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:.15g}"


_COMPARED: Final[Mapping[str, Compare]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "contains": _of_text(operator.contains),
    "startsWith": _of_text(str.startswith),
    "endsWith": _of_text(str.endswith),
}


# -- parsing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition. `names` are the inputs and states that it refers to."""

    _node: _Node
    names: tuple[ConditionReference, ...]

    def holds(self, values: RunValues) -> bool:
        try:
            return self._node.holds(values)
        except StateNotRun:
            return False


def parse_condition(text: str) -> Condition:
    """Parse a condition. Raises ConditionError."""
    if len(text) > _LONGEST:
        raise ConditionError(f"The condition has more than {_LONGEST} characters")
    parser = _Parser(text)
    node = parser.whole()
    return Condition(node, tuple(dict.fromkeys(parser.names)))


class _Token(NamedTuple):
    kind: str
    text: str


class _Parser:
    """A recursive descent parser, with one method for each level of precedence."""

    def __init__(self, text: str) -> None:
        matches = _TOKEN.finditer(text)
        self._tokens = [_Token(match.lastgroup or "", match.group(match.lastgroup or 0)) for match in matches]
        self._tokens.append(_Token("end", ""))
        self._at = 0
        self._depth = 0
        self.names: list[ConditionReference] = []

    def whole(self) -> _Node:
        node = self._decided(self._condition())
        if self._next.kind != "end":
            raise _unexpected(self._next)
        return node

    def _condition(self) -> _Node:
        return self._joined(lambda: self._joined(self._comparison, _AND, all), _OR, any)

    def _joined(
        self, read: Callable[[], _Node], signs: tuple[str, ...], join: Callable[[Iterable[bool]], bool]
    ) -> _Node:
        part = read()
        if self._next.text not in signs:
            return part
        deciding = [self._decided(part)]
        while self._accept(*signs):
            deciding.append(self._decided(read()))
        return _Node(lambda values: join(part.holds(values) for part in deciding))

    def _comparison(self) -> _Node:
        left = self._operand()
        negated = self._next.text == "not" and self._next.kind == "word"
        if negated:
            self._at += 1
        sign = self._next.text if self._next.kind in ("word", "sign") else ""
        if sign in _COMPARED:
            self._at += 1
            compared = _compared(_plain(left), sign, _plain(self._operand()))
        elif sign == "in":
            self._at += 1
            plain, items = _plain(left), self._list()
            compared = _Node(lambda values: any(_equal(plain.value(values), item.value(values)) for item in items))
        elif negated:
            raise ConditionError(f"{_shown(self._next)} is not expected after `not`")
        else:
            return left
        return _not(compared) if negated else compared

    def _operand(self) -> _Node:
        token = self._next
        self._at += 1
        if token.text in _NOT and token.kind in ("word", "sign"):
            return _not(_deciding(self._deeper(self._operand)))
        if token == _Token("sign", "("):
            node = self._deeper(self._condition)
            self._expect(")")
            return node
        if token.kind == "number":
            return _literal(float(token.text))
        if token.kind == "text":
            return self._text(token.text[1:-1])
        if token.kind == "word":
            return self._word(token.text)
        raise _unexpected(token)

    def _text(self, written: str) -> _Node:
        for reference in parse_template(written)[0].references():
            raise ConditionError(f"`{reference}` is not replaced in a condition: {_HINTS['{']}")
        for match in _ESCAPE.finditer(written):
            if match[1] not in _ESCAPED:
                raise ConditionError(f"`{match[0]}` is not supported in a text")
        return _literal(_ESCAPE.sub(lambda match: _ESCAPED[match[1]], written))

    def _decided(self, part: _Node) -> _Node:
        """A part that decides. A value followed by something that is no operator is reported at that."""
        if not part.decides and self._next.kind != "end" and self._next.text not in (")", *_AND, *_OR):
            raise _unexpected(self._next)
        return _deciding(part)

    def _deeper(self, read: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConditionError(f"The condition is nested more than {_DEEPEST} times")
        node = read()
        self._depth -= 1
        return node

    def _word(self, word: str) -> _Node:
        if word in ("true", "false"):
            return _literal(word == "true")
        if self._next == _Token("sign", "("):
            return self._function(word)
        kind, _, rest = word.partition(".")
        name, _, field = rest.partition(".")
        if kind == "inputs" and name and not field:
            self.names.append(ConditionReference("inputs", name, word))
            return _Node(lambda values: values.inputs[name], plain=True)
        if kind == "states" and field in _FIELDS:
            self.names.append(ConditionReference("states", name, word))
            return _of_state(name, _FIELDS[field])
        raise ConditionError(f"`{word}` is not supported in a condition")

    def _function(self, name: str) -> _Node:
        if name not in _FUNCTIONS:
            raise ConditionError(f"`{name}(…)` is not supported in a condition")
        self._expect("(")
        left = _plain(self._operand())
        self._expect(",")
        right = _plain(self._operand())
        self._expect(")")
        return _compared(left, _FUNCTIONS[name], right)

    def _list(self) -> tuple[_Node, ...]:
        self._expect("[")
        items: list[_Node] = []
        while not self._accept("]"):
            if items:
                self._expect(",")
            items.append(_plain(self._operand()))
        return tuple(items)

    @property
    def _next(self) -> _Token:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def _accept(self, *texts: str) -> bool:
        if self._next.kind not in ("word", "sign") or self._next.text not in texts:
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise ConditionError(f"`{sign}` is missing before {_shown(self._next)}")


def _deciding(part: _Node) -> _Node:
    if not part.decides:
        raise ConditionError("A value by itself is not a condition: compare it with something")
    return part


def _plain(part: _Node) -> _Node:
    if not part.plain:
        raise ConditionError("A condition cannot be compared: put what belongs together in parentheses")
    return part


def _unexpected(token: _Token) -> ConditionError:
    meant = f": {_HINTS[token.text]}" if token.text in _HINTS else ""
    return ConditionError(f"{_shown(token)} is not expected here{meant}")


def _shown(token: _Token) -> str:
    return f"`{token.text}`" if token.kind != "end" else "the end"
