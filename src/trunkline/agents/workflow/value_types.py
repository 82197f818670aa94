"""Types of values that only workflows have: templates, timeouts, providers, API keys by reference."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar, Final, Generic, TypeVar

from trunkline.agents.providers import PROVIDERS as PROGRAMS
from trunkline.agents.workflow.condition import Condition, ConditionError, parse_condition
from trunkline.agents.workflow.reader import LocatedReference, WorkflowReader
from trunkline.agents.workflow.shell import QuotedReference, ShellTemplate, shell_template
from trunkline.agents.workflow.template import Reference, Template, TemplateProblem, parse_template
from trunkline.config.problems import InvalidValue, TextSpan, hint_for
from trunkline.config.reader import ConfigReader
from trunkline.config.sources import ONE_DAY_S
from trunkline.config.tree import Node, Scalar
from trunkline.config.value_types import JsonSchema, Text, ValueType
from trunkline.core.errors import (
    BAD_NAME,
    BAD_REFERENCE,
    BAD_VALUE,
    LITERAL_SECRET,
    MODEL_KEY,
    OUTPUT_IN_COMMAND,
    SHELL_POSITION,
    WORKFLOW_UNSUPPORTED,
)

T = TypeVar("T")
OPENAI_COMPATIBLE: Final = "openai_compatible"
PROVIDERS: Final = (*PROGRAMS, OPENAI_COMPATIBLE)
"""What `provider` may be in a workflow."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_ENVIRONMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VARIABLE_NAME: Final = re.compile(r"([A-Z_][A-Z0-9_]{0,63})\Z")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}\Z")


def workflow_reader(reader: ConfigReader) -> WorkflowReader:
    assert isinstance(reader, WorkflowReader)
    return reader


def check_name(node: Scalar, reader: ConfigReader) -> None:
    """Check the name of a state or an input, which references must be able to contain."""
    if _NAME.match(node.text) is None:
        message = f"`{node.text}` is not a valid name: use up to 64 letters, digits, `_` and `-`"
        raise reader.error(BAD_NAME, node, message)


def variable_name_problem(name: str) -> str | None:
    """Why a shell cannot use this name for a variable; None if it can."""
    return None if _ENVIRONMENT.match(name) else f"`{name}` is not a valid variable name: use letters, digits and `_`"


class LocatedText(ValueType[Scalar]):
    """Non-empty text, with its place."""

    def read(self, node: Node, reader: ConfigReader) -> Scalar:
        Text(may_be_empty=False).read(node, reader)
        assert isinstance(node, Scalar)
        return node

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


class Number(ValueType[float]):
    """A number, from 0 to the maximum if there is one."""

    def __init__(self, *, maximum: float | None = None) -> None:
        self._maximum = maximum

    def read(self, node: Node, reader: ConfigReader) -> float:
        if not isinstance(node, Scalar) or node.kind != "number":
            raise reader.wrong_type(node, "a number")
        value = float(reader.text(node))
        if self._maximum is not None and not 0 <= value <= self._maximum:
            raise reader.error(BAD_VALUE, node, f"The number must be from 0 to {self._maximum:g}")
        return value

    def schema(self) -> JsonSchema:
        limits: JsonSchema = {} if self._maximum is None else {"minimum": 0, "maximum": self._maximum}
        return {"type": "number", **limits}


class TemplateText(ValueType[Template]):
    """Text with references, which are kept for the check of the whole file."""

    def __init__(self, *, may_be_empty: bool = False, may_be_raw: bool = False) -> None:
        self._text = Text(any_scalar=True, may_be_empty=may_be_empty)
        self._may_be_raw = may_be_raw

    def read(self, node: Node, reader: ConfigReader) -> Template:
        text = self._text.read(node, reader)
        assert isinstance(node, Scalar)
        template, faults = parse_template(text)
        workflow = workflow_reader(reader)
        for fault in faults:
            _report(fault, workflow.source.locate(node, fault.written), reader)
        for reference in dict.fromkeys(template.references()):
            place = workflow.source.locate(node, reference)
            workflow.references.append(LocatedReference(workflow.step, place, reference))
            if reference.raw and not self._may_be_raw:
                message = f"`{reference}` only makes sense in a `command`: values are not quoted here"
                reader.error(BAD_REFERENCE, place, message, f"write `{replace(reference, raw=False)}`")
        if faults:
            raise InvalidValue
        return template

    def schema(self) -> JsonSchema:
        return self._text.schema()


class CommandText(ValueType[ShellTemplate]):
    """A shell command with references, whose values are quoted for their positions."""

    def read(self, node: Node, reader: ConfigReader) -> ShellTemplate:
        command = shell_template(_COMMAND.read(node, reader), workflow_reader(reader).numbers)
        assert isinstance(node, Scalar)
        refused = {
            (quoted.reference, quoted.refused): (quoted, nth) for quoted, nth in _counted(command) if quoted.refused
        }
        for quoted, nth in refused.values():
            message = f"`{quoted.reference}` cannot be inserted safely: {quoted.refused}"
            place = workflow_reader(reader).source.locate(node, quoted.reference, nth)
            reader.error(SHELL_POSITION, place, message, _remedy(quoted))
        if refused:
            raise InvalidValue
        for reference in dict.fromkeys(quoted.reference for quoted in command.references()):
            self._warn(reference, command, workflow_reader(reader).source.locate(node, reference), reader)
        return command

    @staticmethod
    def _warn(reference: Reference, command: ShellTemplate, place: TextSpan, reader: ConfigReader) -> None:
        if reference.raw and reference.kind == "states":
            message = f"`{reference}` becomes part of a shell command: whoever influences that output can run commands"
            reader.warn(OUTPUT_IN_COMMAND, place, message, "remove `.raw` if it is meant as text")
        elif reference in command.evaluated_references:
            warn_about_evaluation(reference, place, reader)
        elif command.to_interpreter and not reference.raw:
            message = f"`{reference}` may reach a program that runs it as code, whatever its quotes"
            reader.warn(OUTPUT_IN_COMMAND, place, message, "set a variable to it with `env`, and use that in the code")

    def schema(self) -> JsonSchema:
        return _COMMAND.schema()


_COMMAND: Final = TemplateText(may_be_raw=True)


def _counted(command: ShellTemplate) -> list[tuple[QuotedReference, int]]:
    """Each reference with its number among those that are alike, the last one first."""
    before: Counter[Reference] = Counter()
    counted: list[tuple[QuotedReference, int]] = []
    for quoted in command.references():
        counted.append((quoted, before[quoted.reference]))
        before[quoted.reference] += 1
    return counted[::-1]


def warn_about_evaluation(reference: Reference, place: TextSpan, reader: ConfigReader) -> None:
    message = f"`{reference}` is put into a variable that bash evaluates as arithmetic, which runs commands in it"
    reader.warn(OUTPUT_IN_COMMAND, place, message, "use an input of the type `integer`, or calculate with `expr`")


def _remedy(quoted: QuotedReference) -> str:
    """What to do instead. If bash evaluates it, a variable does not help: it runs what is in it all the same."""
    if quoted.style != "number":
        return f"set a variable to it with `env`, and use that; or write `{replace(quoted.reference, raw=True)}`"
    if quoted.reference.kind == "inputs":
        return f"give the input `{quoted.reference.name}` the type `integer`; a variable does not make it safe here"
    return "compare it in `[ … ]`, or calculate with `expr`, which run nothing; a variable does not make it safe here"


class ConditionText(ValueType[Condition | None]):
    """A condition, whose references are kept for the check of the whole file."""

    def read(self, node: Node, reader: ConfigReader) -> Condition | None:
        text = Text(any_scalar=True).read(node, reader)
        assert isinstance(node, Scalar)
        if not text.strip():
            return None
        workflow = workflow_reader(reader)
        try:
            condition = parse_condition(text)
        except ConditionError as fault:
            hint = "compare inputs, `states.NAME.ExitCode` and `states.NAME.Output`"
            raise reader.error(WORKFLOW_UNSUPPORTED, node, str(fault), hint) from None
        for name in condition.names:
            place = workflow.source.locate(node, name.written)
            workflow.references.append(LocatedReference(workflow.step, place, name, when_ended=True))
        return condition

    def schema(self) -> JsonSchema:
        return {"type": "string"}


def _report(fault: TemplateProblem, place: TextSpan, reader: ConfigReader) -> None:
    if not fault.written.endswith("}}"):
        message = f"`{fault.written}` is not closed: `}}}}` is missing"
        reader.error(BAD_REFERENCE, place, message, 'write `{{"{{"}}` for two plain braces')
        return
    known = "known are `{{.inputs.NAME}}` and `{{.states.NAME.Output}}`"
    hint = f"did you mean `{fault.meant}`?" if fault.meant else known
    reader.error(BAD_REFERENCE, place, f"`{fault.written}` is not a reference that can be resolved here", hint)


class Timeout(ValueType[float]):
    """A timeout in seconds: a whole number, or a duration like `1m30s`."""

    def read(self, node: Node, reader: ConfigReader) -> float:
        seconds = self._seconds(node, reader)
        if seconds <= 0:
            raise reader.error(BAD_VALUE, node, "The timeout must be more than 0")
        if seconds > ONE_DAY_S:
            raise reader.error(BAD_VALUE, node, "The timeout must be at most a day")
        return seconds

    @staticmethod
    def _seconds(node: Node, reader: ConfigReader) -> float:
        if not isinstance(node, Scalar) or node.kind not in ("number", "text"):
            raise reader.wrong_type(node, "seconds, or a duration like `1m30s`")
        text = reader.text(node)
        if node.kind == "number":
            if text.removeprefix("+").isdigit():
                return float(text)
            hint = f'write `"{text}s"`' if not text.startswith("-") and "e" not in text.lower() else ""
            raise reader.error(BAD_VALUE, node, "Seconds must be a whole number, in digits only", hint)
        try:
            return parse_duration(text)
        except ValueError as error:
            hint = "remove the quotes for seconds" if text.isdigit() else "write it like `1m30s`, `500ms` or `2h`"
            raise reader.error(BAD_VALUE, node, str(error), hint) from None

    def schema(self) -> JsonSchema:
        return {"type": ["integer", "string"]}


class ProviderName(ValueType[str]):
    """One of the providers, with `-` or `_` in its name."""

    def read(self, node: Node, reader: ConfigReader) -> str:
        written = Text(may_be_empty=False).read(node, reader)
        name = written.replace("-", "_")
        if name not in PROVIDERS:
            hint = hint_for(written, PROVIDERS, "providers")
            raise reader.error(WORKFLOW_UNSUPPORTED, node, f"The provider `{written}` is not supported", hint)
        return name

    def schema(self) -> JsonSchema:
        return {"enum": [*PROVIDERS, "openai-compatible"]}


class WithEnvironment(ValueType[T], Generic[T]):
    """A value in which `${NAME}` is a variable of the environment. If that is not set, the step cannot be run, and
    `instead` is the value."""

    def __init__(self, shape: ValueType[T], instead: T) -> None:
        self._shape = shape
        self._instead = instead

    def read(self, node: Node, reader: ConfigReader) -> T:
        expanding = workflow_reader(reader).expanding
        errors_before = reader.report.errors
        expanding.obstacles = []
        try:
            return self._shape.read(node, expanding)
        except InvalidValue:
            if reader.report.errors > errors_before:
                raise
            for what in expanding.obstacles:
                workflow_reader(reader).add_missing(what)
            return self._instead
        finally:
            expanding.obstacles = None

    def schema(self) -> JsonSchema:
        return self._shape.schema()


class ApiKeyReference(ValueType[str]):
    """A secret, which a file may only refer to, as `${NAME}`."""

    written_as: ClassVar[str] = "${NAME}"
    name: ClassVar[re.Pattern[str]] = _VARIABLE

    def read(self, node: Node, reader: ConfigReader) -> str:
        if not isinstance(node, Scalar) or node.kind == "null":
            raise reader.wrong_type(node, f"a reference like `{self.written_as}`")
        match = self.name.match(node.text)
        if match is None:
            hint = f"keep it in the environment, and write `{self.written_as}` with the variable's name"
            raise reader.error(LITERAL_SECRET, node, "A file must refer to a key, not contain it", hint)
        key = workflow_reader(reader).environ.get(match[1], "")
        if not key:
            message = f"Environment variable `{match[1]}` is not set"
            reader.warn(MODEL_KEY, node, message, "set it before this is run")
            workflow_reader(reader).add_missing(message)
        return key

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": self.name.pattern.replace(r"\Z", "$")}


class ApiKeyVariable(ApiKeyReference):
    """A secret by its variable's name alone. What does not look like a name may be the secret itself."""

    written_as: ClassVar[str] = "NAME"
    name: ClassVar[re.Pattern[str]] = _VARIABLE_NAME


_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign, then the Greek letter
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<unit>[^0-9.]*)")
_LONGEST: Final = 64


def parse_duration(text: str) -> float:
    """The seconds of a duration as in Go: `1m30s`, `500ms`, `1.5h`. Raises ValueError with what is wrong."""
    if len(text) > _LONGEST:
        raise ValueError("The duration is too long")
    if not text:
        raise ValueError("The duration is empty")
    nanoseconds, at = Fraction(0), 1 if text[0] in "+-" else 0
    if at == len(text):
        raise ValueError(f"`{text}` is not a duration")
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError(f"`{text}` is not a duration")
        number, unit = part["number"], part["unit"]
        if unit not in _NANOSECONDS:
            raise ValueError(f"`{unit}` is not a unit of time" if unit else f"`{number}` has no unit")
        nanoseconds += Fraction(f"0{number}") * _NANOSECONDS[unit]
        at = part.end()
    seconds = float(nanoseconds / _NANOSECONDS["s"])
    return -seconds if text[0] == "-" else seconds
