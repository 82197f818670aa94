"""Patterns for places where bash evaluates text as code, whatever its quotes: arithmetic, names of variables, and
programs that run their arguments or their input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_QUOTED: Final = r"\"(?:[^\"\\]|\\.){0,500}\"|'[^']{0,500}'"
_VALUE: Final = rf"(?:{_QUOTED}|\\.|[^\s\"'\\;&|()])"
_OF_TEST: Final = rf"(?:{_QUOTED}|[^\n;&|\"'])"
BRACKETS: Final = re.compile(r"\[\[(?=\s)(?:(?!\s\]\](?![^\s;&|)])).)*", re.DOTALL)
_BRANCH: Final = re.compile(r"&&|\|\|")
_NUMERIC: Final = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge|v|R)\s")
"""In `[[ … ]]` bash evaluates the operands of these as arithmetic, even if quoted, and runs the `$(…)` in them."""
TESTED: Final = re.compile(rf"(?:\[|test)[ \t](?:{_OF_TEST}{{0,500}}?\s)??-[vR]\s(?:(?!\s-[ao]\s){_OF_TEST}){{0,500}}")
ELEMENT: Final = re.compile(r"\w*\[[^\n]{0,500}?\]\+?=")
FORMATTED: Final = re.compile(r"printf[ \t]+-v[ \t]*\S{1,500}")
ASSIGNED: Final = re.compile(rf"\w+\+?={_VALUE}{{0,500}}")
"""It also evaluates names of variables: in tests, as elements of arrays, and in assignments."""
NAMING: Final = frozenset(("let", "read", "unset", "getopts", "mapfile", "readarray", "wait"))
DECLARING: Final = frozenset(("declare", "typeset", "local", "export", "readonly"))
"""Commands that do so with their arguments; the second ones take values as well."""
COMMANDS: Final = NAMING | DECLARING | {"test", "printf"}
FLAGS: Final = re.compile(r"(?:[ \t]+[-+]\w+)*")
DECLARED: Final = re.compile(
    rf"[ \t\n](?:[\"']?(?P<name>[A-Za-z_]\w*)\+?={_VALUE}*(?:\"(?:[^\"\\]|\\.)*|'[^']*)?"
    r"|\"(?P<first>[A-Za-z_]\w*)=(?:[^\"\\]|\\.)*|'(?P<second>[A-Za-z_]\w*)=[^']*)\Z"
)
ARRAYS: Final = re.compile(
    r"\b([A-Za-z_]\w*)(?:\+?=\(|\[)|[ \t]-\w*[aA]\w*[ \t]+([A-Za-z_]\w*)"
    r"|\b(?:mapfile|readarray)(?:[ \t]+-\w+(?:[ \t]+\d+)?)*[ \t]+([A-Za-z_]\w*)"
)
NUMBERS: Final = re.compile(r"\b(?:declare|typeset|local)[ \t]+-\w*[in]\w*((?:[ \t]+[A-Za-z_]\w*)+)")
ALWAYS_NUMBERS: Final = ("RANDOM", "SECONDS", "OPTIND", "HISTCMD")
NEAR: Final = 100
FAR: Final = 2000
SET_TO: Final = re.compile(r"\b([A-Za-z_]\w*)\+?=(?:\"[^\"\n]{0,200}|'[^'\n]{0,200}|[^\s;&|\"']{0,200})\Z")
FILE: Final = re.compile(r"[<>][ \t]*(?:\"[^\"]*|'[^']*|[^\s\"';&|()]*)\Z")
BEFORE_COMMAND: Final = re.compile(
    r"(?:\A|[;&|(){\n]|(?<!\S)(?:if|then|do|else|elif|while|until|time|command|builtin|coproc|!)(?=[ \t]))"
    rf"(?:[ \t\\\n]*(?:\$\{{?\w+\}}?|[A-Za-z_]\w*\+?={_VALUE}*|\d*[<>]{{1,2}}[ \t]*{_VALUE}+|-\w+)(?=[ \t]))*"
    r"[ \t\\\n]*\Z"
)
_NAME: Final = r"[A-Za-z_]\w*"
_CALCULATED: Final = re.compile(
    r"\(\((?P<sum>[^\n]{0,500}?)\)\)|\[\[\s(?P<test>[^\n]{0,500}?\s-(?:eq|ne|lt|le|gt|ge)\s[^\n]{0,500}?)\s\]\]"
    rf"|\$\{{!(?P<indirect>{_NAME})\}}|\$\{{(?P<prompt>{_NAME})@P\}}"
)
_IN_SUM: Final = re.compile(_NAME)
_IN_TEST: Final = re.compile(rf"(?:\$\{{?(?P<value>{_NAME})|(?<=[ \t])(?P<bare>{_NAME})(?=[ \t]))")


def calculating_parts(brackets: re.Match[str]) -> Iterator[tuple[int, int]]:
    """The parts of `[[ … ]]`, between unquoted `&&` and `||`, that bash evaluates as arithmetic."""
    text, start = brackets.group(), 0
    for match in (*_BRANCH.finditer(text), None):
        end = len(text) if match is None else match.start()
        part = text[start:end]
        if match is not None and (part.count('"') % 2 or part.count("'") % 2):
            continue
        if _NUMERIC.search(f" {part} "):
            yield brackets.start() + start, brackets.start() + end
        start = end


def evaluated_variables(command: str) -> frozenset[str]:
    """The variables that bash evaluates as code, as far as the text of the command shows it."""
    names: set[str] = set()
    for match in _CALCULATED.finditer(command):
        if match["sum"] is not None:
            names.update(_IN_SUM.findall(match["sum"]))
        elif match["test"] is not None:
            names.update(name for found in _IN_TEST.findall(match["test"]) for name in found if name)
        else:
            names.add(match["indirect"] or match["prompt"])
    return frozenset(names)


_SHELLS: Final = r"(?:r?ba|da|z|m?k|a|t?c|fi|pw)?sh|\"?\$\{?(?:SHELL|BASH|0)\}?\"?|python[\d.]*|perl|ruby|node"
_RUNNERS: Final = re.compile(
    r"(?<![\w./-])(?:eval|trap|ssh|compgen|alias)\s|\b(?:PS4|BASH_ENV)="
    r"|(?<![\w./-])(?:\.|source)\s+(?:/dev/stdin\s|<\()"
    rf"|(?<![\w-])(?:{_SHELLS}|su)\s+(?:(?:-\S+\s+)*-\w*[ce]\s|[^\n;&|]{{0,200}}<<-?[ \t]*(?=\S))"
)
"""Commands that run their arguments, or a here document, as code."""
_PIPED_INTO: Final = re.compile(
    rf"(?<!\|)\|[ \t]*(?:(?:sudo|env|exec)[ \t]+)?(?:/[\w/]+/)?(?:{_SHELLS})(?:[ \t]+-[a-z]*)*[ \t]*(?=[\n;&|)]|\Z)"
)
"""Interpreters that run their input as code, as they are given no file."""
_COMMAND_ENDS: Final = "\n;&"
_FAR: Final = 2000


def reaches_interpreter(text: str, mark: str) -> bool:
    """Whether the text at `mark` reaches an interpreter."""
    runner = _RUNNERS.search(text)
    if runner is not None and mark in text[runner.end() :]:
        return True
    for piped in _PIPED_INTO.finditer(text):
        before = text[max(0, piped.start() - _FAR) : piped.start()]
        written = before[max(map(before.rfind, _COMMAND_ENDS)) + 1 :]
        if mark in written or ("<<" in written and mark in text[piped.end() :]):
            return True
    return False
