"""Sanitizes what sources report before anybody sees it: redacts secrets, and makes hidden characters visible.

Sources already redact what their servers write; this covers all kinds of source, so that nothing is missed. Results,
errors of servers and definitions are not redacted: they are passed on byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

import msgspec

from trunkline.core.errors import HIDDEN_CHARACTERS, Problem
from trunkline.core.hidden_text import may_hide, reveal
from trunkline.core.source import Health
from trunkline.core.tool import ItemDefinition, Snapshot, ToolDefinition

Redact = Callable[[str], str]
_NO_INFO = b"{}"


def redact_health(health: Health, redact: Redact) -> Health:
    return replace(
        health,
        reason=redact(health.reason),
        last_error=redact(health.last_error),
        stderr_tail=redact(health.stderr_tail),
        hint=redact(health.hint),
    )


def redact_problem(problem: Problem, redact: Redact) -> Problem:
    return replace(
        problem, message=redact(problem.message), hint=redact(problem.hint), stderr_tail=redact(problem.stderr_tail)
    )


def redact_snapshot(snapshot: Snapshot, redact: Redact) -> Snapshot:
    """Redact instructions and warnings. Server info is JSON, so it is dropped if it has a secret."""
    info = snapshot.server_info.decode(errors="replace")
    return replace(
        snapshot,
        instructions=redact(snapshot.instructions),
        warnings=tuple(map(redact, snapshot.warnings)),
        server_info=snapshot.server_info if redact(info) == info else _NO_INFO,
    )


# -- hidden characters ------------------------------------------------------------------------------------------------

_MOST_NAMED: Final = 5
_ESCAPES: Final = (rb"\u", rb"\b", rb"\f")
"""Escapes by which JSON may hold a hidden character in ASCII. Re-encoded JSON has them for control characters only."""
JSON_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
T = TypeVar("T", ToolDefinition, ItemDefinition)


def reveal_snapshot(snapshot: Snapshot) -> Snapshot:
    """Make hidden characters in a snapshot visible. Names and URIs that requests use stay as they are."""
    found: list[str] = []
    shown = replace(
        snapshot,
        tools=_definitions(snapshot.tools, "tool", found),
        prompts=_definitions(snapshot.prompts, "prompt", found),
        resources=_definitions(snapshot.resources, "resource", found),
        templates=_definitions(snapshot.templates, "resource template", found),
        instructions=reveal(snapshot.instructions),
        server_info=reveal_json(snapshot.server_info),
        warnings=tuple(map(reveal, snapshot.warnings)),
    )
    if shown.instructions != snapshot.instructions:
        found.append("its instructions")
    if shown.server_info != snapshot.server_info:
        found.append("its server info")
    if not found:
        return shown
    shown_as = "hidden characters are shown as code points, such as `<U+200B>`"
    warning = f"{HIDDEN_CHARACTERS}: {shown_as}, in {first_of(found, _MOST_NAMED)}"
    return replace(shown, warnings=(*shown.warnings, warning))


def first_of(names: Collection[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(islice(names, most)) + (f" and {more} more" if more > 0 else "")


def _definitions(items: tuple[T, ...], noun: str, found: list[str]) -> tuple[T, ...]:
    changed: dict[int, T] = {}
    for number, item in enumerate(items):
        definition = reveal_json(item.definition)
        if definition is not item.definition and definition != item.definition:
            changed[number] = replace(item, definition=definition)
            found.append(f"{noun} `{reveal(item.key)}`")
    return tuple(changed.get(number, item) for number, item in enumerate(items)) if changed else items


def reveal_json(raw: bytes) -> bytes:
    """Make hidden characters visible in all strings of a JSON text, member names included."""
    if _is_plain(raw) or not _may_hide(raw):
        return raw
    return JSON_STRING.sub(_revealed_literal, raw)


def _is_plain(raw: bytes) -> bool:
    """Whether the text certainly has no hidden characters; a quick test, which nearly all definitions pass."""
    return raw.isascii() and not any(mark in raw for mark in _ESCAPES) and b"\x7f" not in raw


def _may_hide(raw: bytes) -> bool:
    try:
        plain = msgspec.json.encode(msgspec.json.decode(raw)) if b"\\u" in raw else raw
    except (msgspec.MsgspecError, RecursionError):
        return True
    return any(mark in plain for mark in _ESCAPES) or may_hide(plain.decode("utf-8", "replace"))


def _revealed_literal(literal: re.Match[bytes]) -> bytes:
    raw = literal[0]
    if _is_plain(raw):
        return raw
    try:
        text = msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return raw
    shown = reveal(text)
    return raw if shown == text else msgspec.json.encode(shown)
