"""`validation` of an input: what narrows down its values beyond their type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from trunkline.agents.workflow.unsupported import WorkflowSection
from trunkline.config.reader import Reader
from trunkline.config.section import key
from trunkline.config.shapes import JsonSchema, ListOf, Shape, Text
from trunkline.config.suggest import listed
from trunkline.config.tree import Node, Scalar
from trunkline.core.errors import BAD_VALUE

_LONGEST: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    enum: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    minimum: float | None = None
    maximum: float | None = None

    def wrong_with(self, text: str, number: float | None) -> str:
        """What a value must be and is not, or nothing. `number` is None where it is none."""
        if self.enum and text not in self.enum:
            return f"must be one of {listed(self.enum)}"
        if self.pattern is not None and self.pattern.search(text) is None:
            return f"must match `{self.pattern.pattern}`"
        if self.minimum is not None and (number is None or number < self.minimum):
            return f"must be {self.minimum:g} or more"
        if self.maximum is not None and (number is None or number > self.maximum):
            return f"must be {self.maximum:g} or less"
        return ""


NO_RULES: Final = Rules()


class _Pattern(Shape[re.Pattern[str]]):
    def read(self, node: Node, reader: Reader) -> re.Pattern[str]:
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
    def read(self, node: Node, reader: Reader) -> float:
        if not isinstance(node, Scalar) or node.kind != "number":
            raise reader.wrong_type(node, "a number")
        return float(reader.text(node))

    def schema(self) -> JsonSchema:
        return {"type": "number"}


class _Word(Shape[str]):
    """A value of any type, as it is written."""

    def read(self, node: Node, reader: Reader) -> str:
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

    def rules(self) -> Rules:
        return Rules(enum=self.enum, pattern=self.pattern, minimum=self.min, maximum=self.max)
