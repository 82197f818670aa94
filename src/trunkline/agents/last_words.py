"""Whether the last that a model said is an answer. It is none where there are no words, or where they end with a call
that was written as text, since nothing made a call of it.

A model may well write about such calls, so only what can hardly be anything else counts: it names a tool that the model
has, has the form of a call, stands outside of code, and nothing comes after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

from trunkline.agents.json_lines import mapping
from trunkline.core.errors import NO_ANSWER, WRITTEN_CALL, Problem

_EXAMINED: Final = 20_000
"""Characters from the end. A call that is longer than that is not found."""
_MOST_MARKS: Final = 100
_FENCED: Final = re.compile(r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1|\Z)", re.DOTALL | re.MULTILINE)
_NAME: Final = r"[\w.:/-]{1,200}"
_MARK: Final = re.compile(
    r"""(?<!`)(?:
    <(?:[\w-]{1,32}:)?(?:tool_calls?|function_calls?|tool_use)> | \[TOOL_CALLS?\] | <\|tool_calls?\|> | <\|python_tag\|>
    | <\|tool_calls?_(?:section_)?begin\|> | <\uff5ctool\u2581calls?\u2581begin\uff5c>
    | <function=(?=[\w.:/-]) | <invoke\ (?=name=) | <\|channel\|>\w{1,32}\ (?=to=)
    )""",
    re.VERBOSE,
)
_TAGS: Final = re.compile(r"(?:\s|<[^<>]{1,200}>|\[/?[A-Z_]{1,32}\]|[\[\],;`])*")
_NAMED: Final = re.compile(
    rf"""(?:\s|<[|\uff5c][^<>]{{1,64}}[|\uff5c]>|function<\uff5ctool\u2581sep\uff5c>|\[)*(?:
    <function=(?P<a>{_NAME})> | <invoke\ name="?(?P<b>{_NAME}?)"?\s*> | to=(?P<c>{_NAME}) | (?P<d>{_NAME})
    )""",
    re.VERBOSE,
)
_FROM_ITS_START: Final = ("<function=", "<invoke")
_CODE: Final = 4
"""Columns that a line of code begins with, where it is not fenced."""
_THINKING: Final = re.compile(r"\s*<(think(?:ing)?)>.*?(?:</\1>|\Z)", re.DOTALL)
"""Thoughts that no parser took out."""
_CLOSED: Final = re.compile(r"(?:>|[}\])]|```)\s*\Z")
_BODY: Final = re.compile(r"<[\w|\uff5c]|\{")


def not_an_answer(who: str, said: str, is_tool: Callable[[str], bool], *, thought: bool = False) -> Problem | None:
    """`who` said this last. `thought` tells that thoughts came and may have been all there was."""
    thoughts = _THINKING.match(said)
    answer = said[thoughts.end() :] if thoughts else said
    if not answer.strip():
        thought = thought or bool(said.strip())
        what = "thought, and ended without an answer" if thought else "ended without an answer"
        return Problem(code=NO_ANSWER, message=f"{who} {what}", hint="Ask for a final answer in the prompt")
    if tool := written_call(answer, is_tool):
        message = f"{who} wrote a call of `{tool}` as text, and nothing was called"
        return Problem(code=WRITTEN_CALL, message=message, hint="Start its server with the tool parser of this model")
    return None


def written_call(said: str, is_tool: Callable[[str], bool]) -> str:
    """The tool of the call that this text ends with; empty where it ends with none."""
    said = _FENCED.sub("", said[-_EXAMINED:])
    for mark in list(_MARK.finditer(said))[-_MOST_MARKS:]:
        before = said[said.rfind("\n", 0, mark.start()) + 1 : mark.start()]
        if before.isspace() and len(before.expandtabs(4)) >= _CODE:
            continue
        rest = said[mark.start() :] if mark[0].startswith(_FROM_ITS_START) else said[mark.end() :]
        for name in (_json_call(rest), _tagged_call(rest)):
            if name and is_tool(name):
                return name
    return ""


def _json_call(rest: str) -> str:
    """One or more calls as JSON, and nothing but tags besides."""
    begun = _TAGS.match(rest)
    rest = rest[begun.end() if begun else 0 :]
    names: list[str] = []
    while rest.startswith("{"):
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(rest)
        except (ValueError, RecursionError):
            return ""
        found = list(_names_in(value))
        if not found:
            return ""
        names += found
        after = _TAGS.match(rest, end)
        rest = rest[after.end() if after else end :]
    return names[0] if names and not rest else ""


def _names_in(value: object) -> Iterator[str]:
    call = mapping(value)
    call = mapping(call.get("function")) or call
    if isinstance(name := call.get("name"), str) and any(key in call for key in ("arguments", "parameters", "input")):
        yield name


def _tagged_call(rest: str) -> str:
    """A name, then arguments between tags or as JSON, to the end."""
    found = _NAMED.match(rest)
    if found is None or _CLOSED.search(rest) is None:
        return ""
    after = rest[found.end() :]
    return next(filter(None, found.groups()), "") if _BODY.search(after) or found["a"] or found["b"] else ""
