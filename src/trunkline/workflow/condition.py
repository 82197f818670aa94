"""Conditions of transitions, as in `states.test.ExitCode == 0 and inputs.mode == 'full'`: parsed here, never evaluated
as code.

They are what AWF documents of the expressions that it takes: comparisons, `contains`, `startsWith`, `endsWith`, `in`,
`and`, `or`, `not` and brackets, over inputs, exit codes and outputs. Anything else is refused by its name.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from trunkline.workflow.template import Reference

_LONGEST: Final = 2000
_DEEPEST: Final = 30
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>-?\d+(?:\.\d+)?(?![\w.]))
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<sign>&&|\|\||==|!=|<=|>=|[<>!(),\[\]])
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_-]+)*)
      | (?P<other>\S)
    )""",
    re.VERBOSE,
)
_NUMBER: Final = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?\Z", re.ASCII)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_FIELDS: Final[Mapping[str, Literal["Output", "ExitCode"]]] = {
    "Output": "Output",
    "output": "Output",
    "ExitCode": "ExitCode",
    "exit_code": "ExitCode",
}
_EQUAL: Final = ("==", "!=")
_ORDER: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "contains": operator.contains,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
}
_FUNCTIONS: Final = {"contains": "contains", "has_prefix": "startsWith", "has_suffix": "endsWith"}
_AND: Final = ("and", "&&")
_OR: Final = ("or", "||")
_NOT: Final = ("not", "!")

Value = str | float | bool


class ConditionFault(ValueError):
    """What is wrong with a condition, or not supported in one."""


class NotRun(Exception):
    """A condition asks for a state that has not run yet: then it does not hold, as in AWF."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What conditions are about, as it is when a step has ended."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    exit_codes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NameInCondition(Reference):
    """What a condition asks for, shown as it is written there."""

    written: str

    def __str__(self) -> str:
        return self.written


# -- what a condition is made of --------------------------------------------------------------------------------------


class _Node:
    """Most have a value that says whether they hold."""

    def value(self, facts: Facts) -> Value:
        raise NotImplementedError

    def holds(self, facts: Facts) -> bool:
        return self.value(facts) is True


@dataclass(frozen=True)
class _Literal(_Node):
    written: Value

    def value(self, facts: Facts) -> Value:
        return self.written


@dataclass(frozen=True)
class _Input(_Node):
    name: str

    def value(self, facts: Facts) -> Value:
        return facts.inputs[self.name]

    def holds(self, facts: Facts) -> bool:
        return facts.inputs[self.name].lower() == "true"


@dataclass(frozen=True)
class _OfState(_Node):
    state: str
    field: Literal["Output", "ExitCode"]

    def value(self, facts: Facts) -> Value:
        if self.state not in facts.exit_codes:
            raise NotRun
        return facts.outputs.get(self.state, "") if self.field == "Output" else facts.exit_codes[self.state]


@dataclass(frozen=True)
class _Not(_Node):
    inner: _Node

    def value(self, facts: Facts) -> Value:
        return not self.inner.holds(facts)


@dataclass(frozen=True)
class _All(_Node):
    parts: tuple[_Node, ...]

    def value(self, facts: Facts) -> Value:
        return all(part.holds(facts) for part in self.parts)


@dataclass(frozen=True)
class _Any(_Node):
    parts: tuple[_Node, ...]

    def value(self, facts: Facts) -> Value:
        return any(part.holds(facts) for part in self.parts)


@dataclass(frozen=True)
class _Compare(_Node):
    left: _Node
    sign: str
    right: _Node

    def value(self, facts: Facts) -> Value:
        left, right = self.left.value(facts), self.right.value(facts)
        if self.sign in _TEXT:
            return _TEXT[self.sign](_as_text(left), _as_text(right))
        if self.sign in _EQUAL:
            return _equal(left, right) is (self.sign == "==")
        return _ordered(left, self.sign, right)


@dataclass(frozen=True)
class _In(_Node):
    left: _Node
    among: tuple[_Node, ...]

    def value(self, facts: Facts) -> Value:
        left = self.left.value(facts)
        return any(_equal(left, item.value(facts)) for item in self.among)


def _equal(left: Value, right: Value) -> bool:
    """Text that stands beside a number or a boolean is read as one; two texts are equal where they are the same."""
    if isinstance(left, bool) or isinstance(right, bool):
        return _as_text(left).lower() == _as_text(right).lower()
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    numbers = _number(left), _number(right)
    return None not in numbers and numbers[0] == numbers[1]


def _ordered(left: Value, sign: str, right: Value) -> bool:
    """Only numbers have an order, and text that is one."""
    first, second = _number(left), _number(right)
    return first is not None and second is not None and _ORDER[sign](first, second)


def _number(value: Value) -> float | None:
    if isinstance(value, str):
        return float(value) if _NUMBER.match(value.strip()) else None
    return float(value)


def _as_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:.15g}"


# -- parsing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Condition:
    """`names` are the inputs and states that it asks for."""

    _node: _Node
    names: tuple[NameInCondition, ...]

    def holds(self, facts: Facts) -> bool:
        try:
            return self._node.holds(facts)
        except NotRun:
            return False


def parse_condition(text: str) -> Condition:
    """Raises ConditionFault."""
    if len(text) > _LONGEST:
        raise ConditionFault(f"The condition has more than {_LONGEST} characters")
    parser = _Parser(text)
    node = parser.whole()
    return Condition(node, tuple(dict.fromkeys(parser.names)))


class _Token(NamedTuple):
    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        yield _Token(match.lastgroup or "", match.group(match.lastgroup or 0))


class _Parser:
    """By descent, one method for each level of precedence."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), _Token("end", "")]
        self._at = 0
        self._depth = 0
        self.names: list[NameInCondition] = []

    def whole(self) -> _Node:
        node = _deciding(self._condition())
        if self._next.kind != "end":
            raise ConditionFault(f"{_shown(self._next)} is not expected here")
        return node

    def _condition(self) -> _Node:
        parts = [self._conjunction()]
        while self._took(*_OR):
            parts.append(self._conjunction())
        return _Any(tuple(map(_deciding, parts))) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> _Node:
        parts = [self._comparison()]
        while self._took(*_AND):
            parts.append(self._comparison())
        return _All(tuple(map(_deciding, parts))) if len(parts) > 1 else parts[0]

    def _comparison(self) -> _Node:
        left = self._operand()
        negated = self._next.text == "not" and self._next.kind == "word"
        if negated:
            self._at += 1
        sign = self._next.text if self._next.kind in ("word", "sign") else ""
        if sign in _ORDER or sign in _EQUAL or sign in _TEXT:
            self._at += 1
            compared: _Node = _Compare(_plain(left), sign, _plain(self._operand()))
        elif sign == "in":
            self._at += 1
            compared = _In(_plain(left), self._list())
        elif negated:
            raise ConditionFault(f"{_shown(self._next)} is not expected after `not`")
        else:
            return left
        return _Not(compared) if negated else compared

    def _operand(self) -> _Node:
        token = self._next
        self._at += 1
        if token.text in _NOT and token.kind in ("word", "sign"):
            return _Not(_deciding(self._deeper(self._operand)))
        if token == _Token("sign", "("):
            node = self._deeper(self._condition)
            self._expect(")")
            return node
        if token.kind == "number":
            return _Literal(float(token.text))
        if token.kind == "text":
            return _Literal(_ESCAPE.sub(r"\1", token.text[1:-1]))
        if token.kind == "word":
            return self._word(token.text)
        raise ConditionFault(f"{_shown(token)} is not expected here")

    def _deeper(self, read: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConditionFault(f"The condition is nested more than {_DEEPEST} times")
        node = read()
        self._depth -= 1
        return node

    def _word(self, word: str) -> _Node:
        if word in ("true", "false"):
            return _Literal(word == "true")
        if self._next == _Token("sign", "("):
            return self._function(word)
        kind, _, rest = word.partition(".")
        name, _, field = rest.partition(".")
        if kind == "inputs" and name and not field:
            self.names.append(NameInCondition("inputs", name, word))
            return _Input(name)
        if kind == "states" and field in _FIELDS:
            self.names.append(NameInCondition("states", name, word))
            return _OfState(name, _FIELDS[field])
        raise ConditionFault(f"`{word}` is not supported in a condition")

    def _function(self, name: str) -> _Node:
        if name not in _FUNCTIONS:
            raise ConditionFault(f"`{name}(…)` is not supported in a condition")
        self._expect("(")
        left = _plain(self._operand())
        self._expect(",")
        right = _plain(self._operand())
        self._expect(")")
        return _Compare(left, _FUNCTIONS[name], right)

    def _list(self) -> tuple[_Node, ...]:
        self._expect("[")
        items: list[_Node] = []
        while not self._took("]"):
            if items:
                self._expect(",")
            items.append(_plain(self._operand()))
        return tuple(items)

    @property
    def _next(self) -> _Token:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def _took(self, *texts: str) -> bool:
        if self._next.kind not in ("word", "sign") or self._next.text not in texts:
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._took(sign):
            raise ConditionFault(f"`{sign}` is missing before {_shown(self._next)}")


def _deciding(node: _Node) -> _Node:
    """A node that holds or does not; an input does where it is `true`."""
    if not isinstance(node, _OfState) and not (isinstance(node, _Literal) and not isinstance(node.written, bool)):
        return node
    raise ConditionFault("A value by itself is not a condition: compare it with something")


def _plain(node: _Node) -> _Node:
    if isinstance(node, _Literal | _Input | _OfState):
        return node
    raise ConditionFault("A condition is compared with something: put brackets round what belongs together")


def _shown(token: _Token) -> str:
    return f"`{token.text}`" if token.kind != "end" else "the end"
