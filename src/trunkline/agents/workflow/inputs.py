"""The declared inputs of a workflow, and the values given for them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, NamedTuple, cast

from trunkline.agents.workflow.document import NO_RULES, InputRules, InputType, InputValue, Workflow, WorkflowInput
from trunkline.agents.workflow.reader import WorkflowSection, is_null, or_none
from trunkline.agents.workflow.value_types import LocatedText, Number, check_name
from trunkline.config.problems import hint_for
from trunkline.config.reader import ConfigReader
from trunkline.config.section import NestedSection, key, read_section
from trunkline.config.tree import ListNode, Node, Scalar, Table, TableEntry
from trunkline.config.value_types import Boolean, Choice, JsonSchema, ListOf, Text, ValueType
from trunkline.core.errors import BAD_INPUT, BAD_VALUE, DUPLICATE_KEY, GatewayError, Problem

_LONGEST: Final = 500


class _ScalarInput(ValueType[Scalar]):
    """A value of any type, with its place."""

    def read(self, node: Node, reader: ConfigReader) -> Scalar:
        if not isinstance(node, Scalar):
            raise reader.wrong_type(node, "a plain value")
        reader.text(node)
        return node

    def schema(self) -> JsonSchema:
        return {}


class _Pattern(ValueType[re.Pattern[str]]):
    def read(self, node: Node, reader: ConfigReader) -> re.Pattern[str]:
        text = Text(any_scalar=True, may_be_empty=False).read(node, reader)
        if len(text) > _LONGEST:
            raise reader.error(BAD_VALUE, node, f"The pattern has more than {_LONGEST} characters")
        try:
            return re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise reader.error(BAD_VALUE, node, f"This is not a valid regular expression: {error}") from None

    def schema(self) -> JsonSchema:
        return {"type": "string", "format": "regex"}


class ValidationSection(WorkflowSection):
    called: ClassVar[str] = "`validation`"

    enum: tuple[Scalar, ...] = key(ListOf(_ScalarInput()), default=(), doc="The allowed values")
    pattern: re.Pattern[str] | None = key(
        _Pattern(), default=None, doc="A Python regular expression that must match somewhere in the value"
    )
    min: float | None = key(Number(), default=None, doc="Smallest number allowed")
    max: float | None = key(Number(), default=None, doc="Largest number allowed")

    def rules(self) -> InputRules:
        enum = tuple(value.text for value in self.enum)
        return InputRules(enum=enum, pattern=self.pattern, minimum=self.min, maximum=self.max)


_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,30}\Z", re.ASCII)
_NUMBER: Final = re.compile(r"[-+]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?\Z", re.ASCII)


class _Name(LocatedText):
    def read(self, node: Node, reader: ConfigReader) -> Scalar:
        name = super().read(node, reader)
        check_name(name, reader)
        return name


class InputSection(WorkflowSection):
    """One entry of `inputs`."""

    called: ClassVar[str] = "an input"
    elsewhere: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("enum", "pattern", "min", "max"), "it belongs under `validation`"
    )

    name: Scalar = key(_Name(), doc="The name used in references")
    type: str = key(
        Choice("string", "integer", "number", "boolean"),
        default="string",
        doc="Its type",
    )
    required: bool = key(Boolean(), default=False, doc="Whether it must be given if it has no default")
    default: Scalar | None = key(_ScalarInput(), default=None, doc="The value if none is given; empty by default")
    validation: ValidationSection | None = key(
        NestedSection(ValidationSection), default=None, doc="What is asked of its value beyond the type"
    )
    description: str = key(Text(any_scalar=True), default="", doc="A description; not used")


def read_inputs(node: Node | None, reader: ConfigReader) -> tuple[WorkflowInput, ...]:
    """The valid inputs; what is wrong with the others is in the report."""
    if node is None or is_null(node):
        return ()
    if not isinstance(node, ListNode | Table):
        reader.wrong_type(node, "a list", "begin each input with `- name: NAME`")
        return ()
    found: dict[str, WorkflowInput] = {}
    for item in listed_inputs(node):
        keys = or_none(lambda item=item: read_section(InputSection, item, reader))
        if keys is None:
            continue
        if keys.name.text in found:
            reader.error(DUPLICATE_KEY, keys.name, f"The input `{keys.name.text}` is given twice", "rename one of them")
            continue
        found[keys.name.text] = _input(keys, reader)
    return tuple(found.values())


def listed_inputs(node: Node | None) -> list[Node]:
    """The nodes of the inputs, which may be a list, or a group with their names as keys."""
    if isinstance(node, ListNode):
        return node.items
    found: list[Node] = []
    for entry in node.entries if isinstance(node, Table) else ():
        name, value = TableEntry(Scalar(entry.key.span, "text", "name"), entry.key), entry.value
        found.append(Table(value.span, [name, *value.entries]) if isinstance(value, Table) else value)
    return found


def _input(keys: InputSection, reader: ConfigReader) -> WorkflowInput:
    kind = cast(InputType, keys.type)
    rules = NO_RULES if keys.validation is None else keys.validation.rules()
    value: InputValue | None = None
    if keys.default is not None:
        value = _KINDS[kind].read(keys.default.text)
        if value is None or _KINDS[kind].scalar_kind not in ("", keys.default.kind):
            message = f"The default is not {_KINDS[kind].description}"
            reader.error(BAD_INPUT, keys.default, message, "change it, or the `type`")
        elif problem := rules.problem_with(_written(value), _as_number(value)):
            reader.error(BAD_INPUT, keys.default, f"The default {problem}", "change it, or the `validation`")
    return WorkflowInput(name=keys.name.text, type=kind, required=keys.required, default=value, rules=rules)


def bind_inputs(workflow: Workflow, given: Mapping[str, str]) -> Mapping[str, str]:
    """The value of every input as text. Raises GatewayError with every problem of the given values."""
    known = [declared.name for declared in workflow.inputs]
    problems = [
        _problem(f"The workflow has no input `{name}`", hint_for(name, known, "inputs") or "it takes no inputs")
        for name in given
        if name not in known
    ]
    values: dict[str, str] = {}
    for declared in workflow.inputs:
        text = given.get(declared.name)
        if (problem := _input_problem(declared, text)) is not None:
            problems.append(problem)
        if text is None:
            values[declared.name] = "" if declared.default is None else _written(declared.default)
        else:
            values[declared.name] = text.lower() if declared.type == "boolean" else text
    if len(problems) > 1:
        message = f"{len(problems)} problems with the inputs of `{workflow.name}`"
        raise GatewayError(Problem(code=BAD_INPUT, message=message, where=str(workflow.path)), tuple(problems))
    if problems:
        raise GatewayError(problems[0])
    return values


def _input_problem(declared: WorkflowInput, text: str | None) -> Problem | None:
    if text is None:
        if not declared.required or declared.default is not None:
            return None
        hint = f"give it with `--input {declared.name}=…`"
        return _problem(f"The input `{declared.name}` is required and was not given", hint)
    value = _KINDS[declared.type].read(text)
    if value is None:
        return _problem(f"The input `{declared.name}` must be {_KINDS[declared.type].description}", "")
    problem = declared.rules.problem_with(_written(value), _as_number(value))
    return _problem(f"The input `{declared.name}` {problem}", "") if problem else None


def _problem(message: str, hint: str) -> Problem:
    return Problem(code=BAD_INPUT, message=message, hint=hint)


def _written(value: InputValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_number(value: InputValue) -> float | None:
    return None if isinstance(value, str | bool) else float(value)


# -- the types --------------------------------------------------------------------------------------------------------


def _number(text: str) -> InputValue | None:
    if _INTEGER.match(text):
        return int(text)
    value = float(text) if _NUMBER.match(text) else math.inf
    return value if math.isfinite(value) else None


def _integer(text: str) -> InputValue | None:
    return int(text) if _INTEGER.match(text) else None


def _boolean(text: str) -> InputValue | None:
    return {"true": True, "false": False}.get(text.lower())


class _InputKind(NamedTuple):
    """A type of inputs: how a text is read as a value, None if it is none, and how a default is written."""

    read: Callable[[str], InputValue | None]
    description: str
    scalar_kind: str = ""
    """Empty if it may be written as any scalar."""


_KINDS: Final[Mapping[InputType, _InputKind]] = {
    "string": _InputKind(str, "text"),
    "integer": _InputKind(_integer, "a whole number", "number"),
    "number": _InputKind(_number, "a number", "number"),
    "boolean": _InputKind(_boolean, "`true` or `false`", "boolean"),
}
