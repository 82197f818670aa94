"""Path patterns of Glob and Grep as regular expressions: `*`, `**`, `?`, `[ab]`, `{a,b}` and `\\` to escape."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trunkline.sources.builtin.root import quoted
from trunkline.sources.builtin.tool import ToolFault

_LONGEST: Final = 4_000  # bytes: ripgrep reads a regular expression from a pipe
_MAX_DEPTH: Final = 10
_TOKEN: Final = re.compile(
    r"""
      (?P<stars>\*+) (?P<slash>/?)
    | \[ (?P<negated>[!^]?) (?P<members>(?:\\.|[^\\])(?:\\.|[^\]\\])*) \]  # a `]` right after `[` is a member
    | \\ (?P<escaped>.)
    | (?P<char>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_SET_MEMBER: Final = re.compile(r"(\\.|[^\\])-(\\.|[^\\])|(\\.|[^\\])", re.DOTALL)
_PLAIN_NAME: Final = re.compile(r"[\w.*?{},+@ !\^\[\]-]+")
_EMPTY_CHOICE: Final = re.compile(r"\{[,}]|,[,}]")
_SEPARATORS: Final = " ,\t\n"


@dataclass(frozen=True, slots=True)
class PathFilter:
    """A path is taken if it fully matches `wanted`, where there is one, and does not match `unwanted`.

    `names` are globs that the name of every wanted file fits and that ripgrep reads the same way, if there are any:
    they save work, the regular expressions decide.
    """

    wanted: str | None
    unwanted: str | None
    names: Sequence[str]


def path_filter(patterns: Sequence[str]) -> PathFilter:
    """At least one plain pattern must match, and none that begins with `!`. Raises ToolFault."""
    check_length("".join(patterns))
    wanted: list[str] = []
    unwanted: list[str] = []
    names: list[str] = []
    for pattern in patterns:
        if pattern.startswith("!"):
            unwanted.append(_regex(pattern[1:]))
            continue
        wanted.append(_regex(pattern))
        name = pattern.rpartition("/")[2]
        is_plain = _PLAIN_NAME.fullmatch(name) and "**" not in name and not _EMPTY_CHOICE.search(name)
        if is_plain and name.count("{") == name.count("}"):
            names.append(name)
    return PathFilter("|".join(wanted) or None, "|".join(unwanted) or None, names if len(names) == len(wanted) else ())


def check_length(pattern: str) -> None:
    """Raises ToolFault."""
    if len(os.fsencode(pattern)) > _LONGEST:
        raise ToolFault(f"The pattern is longer than {_LONGEST:,} bytes")


def split_patterns(text: str) -> list[str]:
    """The patterns of a list separated by blanks or commas, except for those inside braces."""
    found: list[str] = []
    current, depth = "", 0
    for char in text:
        if char in _SEPARATORS and depth == 0:
            found.append(current)
            current = ""
            continue
        depth += (char == "{") - (char == "}" and depth > 0)
        current += char
    return [pattern for pattern in [*found, current] if pattern]


def _regex(pattern: str) -> str:
    """A pattern without a `/` matches names at any depth, one with a `/` paths relative to the folder searched."""
    path = pattern.removeprefix("./").removeprefix("/")
    if not path:
        raise ToolFault("A pattern for paths is empty")
    try:
        regex = _translate(f"{path}**" if path.endswith("/") else path)
    except ValueError as error:
        raise ToolFault(f"{quoted(pattern)} is not a pattern for paths: {error}") from None
    return f"(?:{regex})" if "/" in pattern else f"(?:(?:.*/)?{regex})"


def _translate(pattern: str) -> str:
    """A pattern as a regular expression. Raises ValueError, with the reason, for what is none."""
    parts: list[str] = []
    braces: list[bool] = []  # for each open brace, whether a name begins there
    at_start = True
    for token in _TOKEN.finditer(pattern):
        char = token["char"]
        if char == "{":
            if len(braces) == _MAX_DEPTH:
                raise ValueError(f"braces are nested more than {_MAX_DEPTH} deep")
            braces.append(at_start)
            parts.append("(?:")
            continue
        if braces and char in (",", "}"):
            parts.append("|" if char == "," else ")")
            at_start = braces[-1] if char == "," else False
            braces = braces if char == "," else braces[:-1]
            continue
        if char == "[":
            raise ValueError("a `[` is never closed")
        if char == "\\":
            raise ValueError("it ends in a backslash that escapes nothing")
        if token["stars"]:
            parts.append(_stars(token, at_start=at_start, in_braces=bool(braces)))
        elif token["members"]:  # a set, which never matches `/`
            members = "".join(_set_member(member) for member in _SET_MEMBER.finditer(token["members"]))
            parts.append(f"(?!/)[{'^' if token['negated'] else ''}{members}]")
        else:
            parts.append("[^/]" if char == "?" else re.escape(char or token["escaped"]))
        at_start = token.group().endswith("/")
    if braces:
        raise ValueError("a `{` is never closed")
    return "".join(parts)


def _stars(token: re.Match[str], *, at_start: bool, in_braces: bool) -> str:
    """`**` matches folders at any depth if it is a whole name; other stars match within a name."""
    rest = token.string[token.end() : token.end() + 1]
    if token["stars"] != "**" or not at_start:
        return f"[^/]*{token['slash']}"
    if token["slash"]:
        return "(?:[^/]+/)*"
    return ".+" if not rest or (in_braces and rest in ",}") else "[^/]*"


def _set_member(member: re.Match[str]) -> str:
    if member[3]:
        return re.escape(member[3][-1])
    low, high = member[1][-1], member[2][-1]
    if low > high:
        raise ValueError(f"the range `{low}-{high}` is the wrong way round")
    return f"{re.escape(low)}-{re.escape(high)}"
