"""The declared inputs of a workflow, and the values given for them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, cast

from trunkline.agents.workflow.document import NO_RULES, InputRules, InputType, InputValue, Workflow, WorkflowInput
from trunkline.agents.workflow.reader import WorkflowSection, or_none
from trunkline.agents.workflow.shapes import check_name
from trunkline.config.problems import hint_for
from trunkline.config.reader import ConfigReader
from trunkline.config.section import Nested, key, read_section
from trunkline.config.shapes import Boolean, Choice, JsonSchema, ListOf, Shape, Text
from trunkline.config.tree import Items, Node, Scalar, Table, TableEntry
from trunkline.core.errors import BAD_INPUT, BAD_VALUE, DUPLICATE_KEY, GatewayError, Problem

_LONGEST: Final = 500


class _Pattern(Shape[re.Pattern[str]]):
    def read(self, node: Node, reader: ConfigReader) -> re.Pattern[str]:
        text = Text(written=True, may_be_empty=False).read(node, reader)
        if len(text) > _LONGEST:
            raise reader.error(BAD_VALUE, node, f"The pattern has more than {_LONGEST} characters")
        try:
            return re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise reader.error(BAD_VALUE, node, f"This is not a regular expression: {error}") from None

    def schema(self) -> JsonSchema:
        return {"type": "string", "format": "regex"}


class _Number(Shape[float]):
    def read(self, node: Node, reader: ConfigReader) -> float:
        if not isinstance(node, Scalar) or node.kind != "number":
            raise reader.wrong_type(node, "a number")
        return float(reader.text(node))

    def schema(self) -> JsonSchema:
        return {"type": "number"}


class _Word(Shape[str]):
    """A value of any type, as it is written."""

    def read(self, node: Node, reader: ConfigReader) -> str:
        if not isinstance(node, Scalar):
            raise reader.wrong_type(node, "a plain value")
        return reader.text(node)

    def schema(self) -> JsonSchema:
        return {}


class ValidationKeys(WorkflowSection):
    called: ClassVar[str] = "`validation`"

    enum: tuple[str, ...] = key(ListOf(_Word()), default=(), doc="The values that it may have")
    pattern: re.Pattern[str] | None = key(
        _Pattern(), default=None, doc="A regular expression (of Python) that is found in it"
    )
    min: float | None = key(_Number(), default=None, doc="The least that a number may be")
    max: float | None = key(_Number(), default=None, doc="The most that a number may be")

    def rules(self) -> InputRules:
        return InputRules(enum=self.enum, pattern=self.pattern, minimum=self.min, maximum=self.max)


_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,30}\Z", re.ASCII)
_WRITTEN_AS: Final[Mapping[InputType, tuple[str, ...]]] = {
    "integer": ("number",),
    "number": ("number",),
    "boolean": ("boolean",),
}
_NUMBER: Final = re.compile(r"[-+]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?\Z", re.ASCII)


class _Name(Shape[Scalar]):
    def read(self, node: Node, reader: ConfigReader) -> Scalar:
        Text(may_be_empty=False).read(node, reader)
        assert isinstance(node, Scalar)
        check_name(node, reader)
        return node

    def schema(self) -> JsonSchema:
        return {"type": "string"}


class _Any(Shape[Scalar]):
    """A plain value, checked once its type is known."""

    def read(self, node: Node, reader: ConfigReader) -> Scalar:
        if not isinstance(node, Scalar):
            raise reader.wrong_type(node, "a plain value")
        reader.text(node)
        return node

    def schema(self) -> JsonSchema:
        return {}


class InputKeys(WorkflowSection):
    """One entry of `inputs`."""

    called: ClassVar[str] = "an input"
    elsewhere: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("enum", "pattern", "min", "max"), "it belongs under `validation`"
    )

    name: Scalar = key(_Name(), doc="What texts refer to it by")
    type: str = key(
        Choice("string", "integer", "number", "boolean"),
        default="string",
        doc="What values it takes",
    )
    required: bool = key(Boolean(), default=False, doc="Whether it must be given where it has no default")
    default: Scalar | None = key(_Any(), default=None, doc="The value if none is given; without it, empty")
    validation: ValidationKeys | None = key(
        Nested(ValidationKeys), default=None, doc="What is asked of its value beyond the type"
    )
    description: str = key(Text(written=True), default="", doc="For people; not used")


def read_inputs(node: Node | None, reader: ConfigReader) -> tuple[WorkflowInput, ...]:
    """The valid inputs; what is wrong with the others is in the report."""
    if node is None or (isinstance(node, Scalar) and node.kind == "null"):
        return ()
    if not isinstance(node, Items | Table):
        reader.wrong_type(node, "a list", "begin each input with `- name: NAME`")
        return ()
    found: dict[str, WorkflowInput] = {}
    for item in listed_inputs(node):
        keys = or_none(lambda item=item: read_section(InputKeys, item, reader))
        if keys is None:
            continue
        if keys.name.text in found:
            reader.error(DUPLICATE_KEY, keys.name, f"The input `{keys.name.text}` is given twice", "rename one of them")
            continue
        found[keys.name.text] = _input(keys, reader)
    return tuple(found.values())


def listed_inputs(node: Node | None) -> list[Node]:
    """The nodes of the inputs, which may be a list, or a group with their names as keys."""
    if isinstance(node, Items):
        return node.items
    entries = node.entries if isinstance(node, Table) else []
    return [_with_name(entry) for entry in entries]


def _with_name(entry: TableEntry) -> Node:
    if not isinstance(entry.value, Table):
        return entry.value
    return Table(
        entry.value.span, [TableEntry(Scalar(entry.key.span, "text", "name"), entry.key), *entry.value.entries]
    )


def _input(keys: InputKeys, reader: ConfigReader) -> WorkflowInput:
    kind = cast(InputType, keys.type)
    rules = NO_RULES if keys.validation is None else keys.validation.rules()
    value: InputValue | None = None
    if keys.default is not None:
        value = _READERS[kind](keys.default.text)
        if value is None or keys.default.kind not in _WRITTEN_AS.get(kind, (keys.default.kind,)):
            reader.error(BAD_INPUT, keys.default, f"The default is not {_TYPE_NAMES[kind]}", "change it, or the `type`")
        elif problem := rules.problem_with(_written(value), _as_number(value)):
            reader.error(BAD_INPUT, keys.default, f"The default {problem}", "change it, or the `validation`")
    return WorkflowInput(name=keys.name.text, type=kind, required=keys.required, default=value, rules=rules)


def bind_inputs(workflow: Workflow, given: Mapping[str, str]) -> Mapping[str, str]:
    """The value of every input as text. Raises GatewayError with every problem of the given values."""
    problems = [*_unknown(workflow, given)]
    values: dict[str, str] = {}
    for declared in workflow.inputs:
        problem = _input_problem(declared, given.get(declared.name))
        if problem is not None:
            problems.append(problem)
        values[declared.name] = _text_of(declared, given.get(declared.name))
    if problems:
        raise _refused(workflow, problems)
    return values


def _refused(workflow: Workflow, problems: list[Problem]) -> GatewayError:
    if len(problems) == 1:
        return GatewayError(problems[0])
    message = f"{len(problems)} things are wrong with the inputs of `{workflow.name}`"
    return GatewayError(Problem(code=BAD_INPUT, message=message, where=str(workflow.path)), tuple(problems))


def _unknown(workflow: Workflow, given: Mapping[str, str]) -> list[Problem]:
    known = [declared.name for declared in workflow.inputs]
    return [
        _problem(f"The workflow has no input `{name}`", hint_for(name, known, "inputs") or "it takes no inputs")
        for name in given
        if name not in known
    ]


def _input_problem(declared: WorkflowInput, text: str | None) -> Problem | None:
    if text is None:
        if not declared.required or declared.default is not None:
            return None
        hint = f"give it with `--input {declared.name}=…`"
        return _problem(f"The input `{declared.name}` is required and was not given", hint)
    value = _READERS[declared.type](text)
    if value is None:
        return _problem(f"The input `{declared.name}` must be {_TYPE_NAMES[declared.type]}", "")
    problem = declared.rules.problem_with(_written(value), _as_number(value))
    return _problem(f"The input `{declared.name}` {problem}", "") if problem else None


def _problem(message: str, hint: str) -> Problem:
    return Problem(code=BAD_INPUT, message=message, hint=hint)


def _text_of(declared: WorkflowInput, text: str | None) -> str:
    if text is not None:
        return text.lower() if declared.type == "boolean" else text
    return "" if declared.default is None else _written(declared.default)


def _written(value: InputValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_number(value: InputValue) -> float | None:
    return None if isinstance(value, str | bool) else float(value)


# -- the types --------------------------------------------------------------------------------------------------------


def _string(text: str) -> InputValue | None:
    return text


def _integer(text: str) -> InputValue | None:
    return int(text) if _INTEGER.match(text) else None


def _number(text: str) -> InputValue | None:
    if _INTEGER.match(text):
        return int(text)
    value = float(text) if _NUMBER.match(text) else math.inf
    return value if math.isfinite(value) else None


def _boolean(text: str) -> InputValue | None:
    return {"true": True, "false": False}.get(text.lower())


_READERS: Final[Mapping[InputType, Callable[[str], Any]]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}
_TYPE_NAMES: Final[Mapping[InputType, str]] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
}
