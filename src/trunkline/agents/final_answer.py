"""Tells whether a model's last text is an answer: not if it is empty, or ends with a tool call written as text.

A model may well write about such calls, and rejecting an answer is worse than missing a written call. So only what can
hardly be anything else counts: it names a tool that the model has, has the form and the arguments of a call, is neither
code nor a quotation, and nothing follows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from trunkline.agents.lenient_json import mapping
from trunkline.core.errors import NO_ANSWER, WRITTEN_CALL, Problem

_READ: Final = 1_000_000
_EXAMINED: Final = 100_000
"""Characters from the end: those in which blocks of code are looked for, and those in which a call may begin."""
_MOST_MARKS: Final = 100
_FENCED: Final = re.compile(
    r"""^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(?P<fence>`{3,}|~{3,})[^\n`]*$
    .*?(?:^[ \t>]*(?P=fence)[`~]*[ \t\r]*$ | \Z)""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
"""A fenced block of code, including one in a list or a quotation. Only a bare fence ends it: models nest blocks."""
_NAME: Final = r"[\w.:/-]{1,200}"
_MARK: Final = re.compile(
    r"""(?<!`)(?:
    <(?:[\w-]{1,32}:)?(?:tool_calls?|function_calls?|tool_use)> | \[TOOL_CALLS?\] | <\|tool_calls?\|> | <\|python_tag\|>
    | <\|tool_calls?_(?:section_)?begin\|> | <\uff5ctool\u2581calls?\u2581begin\uff5c>
    | <function=(?=[\w.:/-]) | <invoke\ (?=name=) | <\|channel\|>\w{1,32}\ (?=to=)
    )""",
    re.VERBOSE,
)
_DSML: Final = re.compile(r"(?<=[</])[|\uff5c\u2016]{1,2}DSML[|\uff5c\u2016]{1,2}")
"""DeepSeek puts this before the name of each tag."""
_TAGS: Final = re.compile(r"(?:\s|<(?!/?(?:code|pre)>)[^<>]{1,200}>|\[/?[A-Z_]{1,32}\]|[\[\],;`])*")
_NAMED: Final = re.compile(
    rf"""(?:\s|<[|\uff5c][^<>]{{1,64}}[|\uff5c]>|function<\uff5ctool\u2581sep\uff5c>|\[)*(?:
    <function=(?P<a>{_NAME})> | <invoke\ name="?(?P<b>{_NAME}?)"?\s*> | to=(?P<c>{_NAME}) | (?P<d>{_NAME})
    )""",
    re.VERBOSE,
)
_MARK_NAMES_TOOL: Final = ("<function=", "<invoke")
_CODE: Final = 4
"""The indentation of code that is not fenced."""
_TICKS: Final = re.compile(r"`+")
_THINKING: Final = re.compile(r"(?:\s*<(think(?:ing)?)>.*?(?:</\1>|\Z))+", re.DOTALL)
_THOUGHT: Final = re.compile(r"(?:\A|\n)[ \t]*</think(?:ing)?>\s*\Z")
"""Reasoning that no parser took out; the second if the server's template opened the tag."""
_BEFORE_ARGUMENTS: Final = re.compile(
    r"""\s*>?\s*(?:\[CALL_ID\]\w{0,64})?(?:\[ARGS\])?
    (?:\s|(?:json|code|commentary)\b|```|<[|\uff5c][^<>]{1,64}[|\uff5c]>)*""",
    re.VERBOSE,
)
_TAGGED_ARGUMENTS: Final = re.compile(r"<(?:parameter\b|arg_key>|/(?:function|invoke)>).*>\s*\Z", re.DOTALL)


def answer_problem(who: str, text: str, is_tool: Callable[[str], bool], *, reasoned: bool = False) -> Problem | None:
    """Why `text`, the last of `who`, is no answer; None if it is one. `reasoned`: reasoning came besides."""
    answer = text
    if found := _THINKING.match(text):
        answer = text[found.end() :]
    elif _THOUGHT.search(text) and "<think" not in text:
        answer = ""
    if not answer.strip():
        reasoned = reasoned or bool(text.strip())
        what = "gave its reasoning and no answer" if reasoned else "ended without an answer"
        return Problem(code=NO_ANSWER, message=f"{who} {what}", hint="Ask for a final answer in the prompt")
    if tool := written_call(answer, is_tool):
        message = f"{who} wrote a call to `{tool}` as text, so nothing was called"
        hint = "Start the model's server with the tool parser for this model"
        return Problem(code=WRITTEN_CALL, message=message, hint=hint)
    return None


def written_call(text: str, is_tool: Callable[[str], bool]) -> str:
    """The tool of the call that this text ends with; empty if it ends with none."""
    text = _DSML.sub("", text[-_READ:])
    marks = list(_MARK.finditer(text, max(0, len(text) - _EXAMINED)))[-_MOST_MARKS:]
    blocks = [block.span() for block in _FENCED.finditer(text)] if marks else []
    for mark in marks:
        if _is_shown(text, mark.start()) or any(begin <= mark.start() < end for begin, end in blocks):
            continue
        rest = text[mark.start() :] if mark[0].startswith(_MARK_NAMES_TOOL) else text[mark.end() :]
        for name in (_json_call(rest), _tagged_call(rest)):
            if name and is_tool(name):
                return name
    return ""


def _is_shown(text: str, at: int) -> bool:
    """Whether what begins here is inline code, indented code, or a quotation."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    if len(_TICKS.findall(before)) % 2 or before.lstrip().startswith(">"):
        return True
    return before.isspace() and len(before.expandtabs(4)) >= _CODE


def _json_call(rest: str) -> str:
    """The tool of one or more calls as JSON, with nothing but tags besides."""
    at, names = _tags_end(rest, 0), list[str]()
    while rest.startswith("{", at):
        value, end = _json_at(rest, at)
        call = mapping(value)
        call = mapping(call.get("function")) or call
        if not isinstance(name := call.get("name"), str) or not call.keys() & {"arguments", "parameters", "input"}:
            return ""
        names.append(name)
        at = _tags_end(rest, end)
    return names[0] if names and at == len(rest) else ""


def _tags_end(text: str, at: int) -> int:
    found = _TAGS.match(text, at)
    return found.end() if found else at


def _json_at(text: str, at: int) -> tuple[object, int]:
    """The JSON value at this position, and where it ends; None if there is none."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at


def _tagged_call(rest: str) -> str:
    """The tool of a call in tags: a name, and right after it arguments in tags or as JSON, to the end."""
    found = _NAMED.match(rest)
    begun = _BEFORE_ARGUMENTS.match(rest, found.end()) if found else None
    if found is None or begun is None:
        return ""
    name, at = next(filter(None, found.groups()), ""), begun.end()
    if _TAGGED_ARGUMENTS.match(rest, at):
        return name
    value, end = _json_at(rest, at)
    return name if isinstance(value, dict) and _tags_end(rest, end) == len(rest) else ""
