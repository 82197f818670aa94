"""Parses YAML to a tree from PyYAML's events; PyYAML never constructs objects.

Events keep hostile files harmless: parsing stops at the first list that is too deep, and the size of what an alias
stands for is known before it is used.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from trunkline.config.problems import InvalidValue, Report, TextSpan, span_at
from trunkline.config.tree import ListNode, Node, Scalar, SizedNode, Table, TreeBuilder, ambiguity, plain_scalar_kind
from trunkline.core.errors import AMBIGUOUS_SCALAR, CONFIG_SYNTAX, CONFIG_TOO_LARGE

_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|(?!^)\ufeff")
_HINTS: Final = (
    ("mapping values are not allowed", "check the indentation; a value that holds `: ` needs quotes"),
    ("could not find expected ':'", "check the indentation, and that a space follows each `:`"),
    ("cannot start any token", "put the value in quotes; indent with spaces, not tabs"),
    ("undefined alias", "put a value that starts with `*` in quotes"),
    ("did not find expected", "check the indentation, and that every bracket and quote is closed"),
    ("end of stream", "check that every bracket and quote is closed"),
)


def parse_yaml(text: str, report: Report) -> Node:
    """The tree of the one document in `text`. Raises InvalidValue, with the reason reported, if there is none."""
    wrong = _UNPRINTABLE.search(text)
    if wrong is not None:
        message = f"Character U+{ord(wrong.group()):04X} is not allowed in YAML"
        raise report.error(CONFIG_SYNTAX, span_at(text, wrong.start()), message)
    composer = _Composer(report)
    pyyaml: Any = yaml
    try:
        for event in pyyaml.parse(text, Loader=getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader)):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, report) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # the pure-Python parser lets some bad escapes and directives through to int() and chr()
        raise report.error(CONFIG_SYNTAX, None, f"The file is not valid YAML: {error}") from None
    return composer.root()


class _Composer:
    """Builds the tree from events."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._builder = TreeBuilder(report)
        self._anchors: dict[str, SizedNode | None] = {}
        self._open_anchors: list[str | None] = []
        self._documents = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._start(event, Table(_span(event)))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._start(event, ListNode(_span(event)))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._anchor(self._open_anchors.pop(), self._builder.end())
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._report.error(CONFIG_SYNTAX, _span(event), "The file contains more than one YAML document")

    def root(self) -> Node:
        return self._builder.root or Scalar(TextSpan(1, 1, 1, 1), "null", "")

    def _start(self, event: Any, node: ListNode | Table) -> None:
        self._refuse_tag(event)
        self._builder.start(node)
        self._open_anchors.append(event.anchor)
        # an alias to something still open would contain itself
        self._anchor(event.anchor, None)

    def _scalar(self, event: Any) -> None:
        span = _span(event)
        self._refuse_tag(event)
        plain = bool(event.implicit[0])
        node = Scalar(span, plain_scalar_kind(event.value) if plain else "text", event.value)
        if node.kind == "refused" or (node.kind == "switch" and self._builder.at_key()):
            self._report.error(AMBIGUOUS_SCALAR, span, *ambiguity(node.text))
        if plain and node.text == "<<" and self._builder.at_key():
            hint = "write the keys out, or use an alias for the whole value"
            raise self._report.error(CONFIG_SYNTAX, span, "Merge keys (`<<`) are not supported", hint)
        self._anchor(event.anchor, self._builder.scalar(node))

    def _alias(self, event: Any) -> None:
        span = _span(event)
        if event.anchor not in self._anchors:
            message = f"The alias `*{event.anchor}` is not defined"
            raise self._report.error(CONFIG_SYNTAX, span, message, "put a value that starts with `*` in quotes")
        sized = self._anchors[event.anchor]
        if sized is None:
            raise self._report.error(CONFIG_TOO_LARGE, span, f"The alias `*{event.anchor}` contains itself")
        self._builder.add(sized, span)

    def _anchor(self, name: str | None, sized: SizedNode | None) -> None:
        if name is not None:
            self._anchors[name] = sized

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            message = f"The tag `{event.tag}` is not supported"
            self._report.error(CONFIG_SYNTAX, _span(event), message, "put text in quotes; no other value needs a tag")


def _span(event: Any) -> TextSpan:
    start, end = event.start_mark, event.end_mark
    return TextSpan(start.line + 1, start.column + 1, end.line + 1, end.column + 1)


def _syntax_error(error: yaml.MarkedYAMLError, report: Report) -> InvalidValue:
    mark: Any = error.problem_mark or error.context_mark
    what = str(error.problem or error.context)
    if error.context is not None and error.context_mark is not None:
        what += f" {error.context} that starts on line {error.context_mark.line + 1}"
    span = None if mark is None else TextSpan(mark.line + 1, mark.column + 1, mark.line + 1, mark.column + 2)
    hint = next((hint for part, hint in _HINTS if part in what), "")
    return report.error(CONFIG_SYNTAX, span, f"The file is not valid YAML: {what}", hint)
