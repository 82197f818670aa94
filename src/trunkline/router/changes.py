"""Which definitions a source describes otherwise than when they were last seen: at its last start, or during this run.

Models do what descriptions say, so a server that changes them by itself is worth a line in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from trunkline.core.errors import DEFINITION_CHANGED
from trunkline.core.events import Events
from trunkline.core.hidden_text import reveal
from trunkline.core.tool import LISTS, ListName, Snapshot, Tool

EVERY_S: Final = 10.0
"""A source that changes all the time is told of this often."""
_MOST_NAMED: Final = 10
_MOST_KEPT: Final = 50_000
"""Definitions of one source that are remembered, with those that are listed no longer."""
_HINT: Final = "read what they say now: `trunkline tools --json`"
_NOUNS: Final[dict[ListName, str]] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "resource template",
}
_INSTRUCTIONS: Final = "its instructions"

Label = str
"""What people call a definition, such as `` tool `add` ``; no two of a source have the same."""


class _Seen:
    """What one source offered so far. `changed` are all that did during this run, `untold` those of the last moment."""

    def __init__(self) -> None:
        self.definitions: dict[Label, bytes] = {}
        self.listed: dict[ListName, frozenset[Label]] = {}
        self.changed: dict[Label, None] = {}
        self.untold: dict[Label, None] = {}
        self.pause: asyncio.TimerHandle | None = None


class DefinitionChanges:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._sources: dict[str, _Seen] = {}
        self._loop = asyncio.get_running_loop()

    def begin(self, source: str, before: Snapshot | None) -> None:
        """A source comes, or another takes its name; `before` is what it offered when it last ran."""
        self.forget(source)
        seen = self._sources[source] = _Seen()
        if before is not None:
            _remember(seen, before)

    def published(self, source: str, snapshot: Snapshot) -> None:
        seen = self._sources.setdefault(source, _Seen())
        is_first = not seen.definitions
        listed, changed = _remember(seen, snapshot)
        if not is_first:
            self._tell_listed(source, listed)
        if changed:
            seen.changed.update(dict.fromkeys(changed))
            seen.untold.update(dict.fromkeys(changed))
            if seen.pause is None:
                self._tell_changed(source, seen)

    def warnings(self, source: str) -> tuple[str, ...]:
        """For whoever asks how the source is."""
        seen = self._sources.get(source)
        if seen is None or not seen.changed:
            return ()
        return (f"{DEFINITION_CHANGED}: described otherwise than before: {_named(seen.changed)}; {_HINT}",)

    def forget(self, source: str) -> None:
        """What was kept back until now is told: the next start will not know of it."""
        seen = self._sources.pop(source, None)
        if seen is not None and seen.pause is not None:
            seen.pause.cancel()
            if seen.untold:
                self._note_changed(source, seen)

    def close(self) -> None:
        for source in list(self._sources):
            self.forget(source)

    def _note_changed(self, source: str, seen: _Seen) -> None:
        message = f"{source} describes otherwise than before: {_named(seen.untold)}"
        code = DEFINITION_CHANGED.id
        self._events.note("warning", "definitions", message, source=source, code=code, hint=_HINT)
        seen.untold = {}

    def _tell_changed(self, source: str, seen: _Seen) -> None:
        seen.pause = None
        if seen.untold:
            self._note_changed(source, seen)
            seen.pause = self._loop.call_later(EVERY_S, self._tell_changed, source, seen)

    def _tell_listed(self, source: str, listed: dict[str, list[Label]]) -> None:
        said = [f"{word} {_named(labels)}" for word, labels in listed.items() if labels]
        if said:
            self._events.note("info", "definitions", f"{source} now offers {'; '.join(said)}", source=source)


def _remember(seen: _Seen, snapshot: Snapshot) -> tuple[dict[str, list[Label]], list[Label]]:
    """What came and went in the lists, and what changed. An empty list may be one that is still to come."""
    news: dict[str, list[Label]] = {"more:": [], "no longer:": []}
    changed: list[Label] = []
    if len(seen.definitions) > _MOST_KEPT:
        seen.definitions.clear()
    for name in LISTS:
        definitions = dict(_labelled(snapshot, name))
        if not definitions:
            continue
        changed += [label for label, raw in definitions.items() if _differs(seen.definitions.get(label), raw)]
        labels = frozenset(definitions)
        before = seen.listed.get(name, labels)
        news["more:"] += [label for label in definitions if label not in before]
        news["no longer:"] += sorted(before - labels)
        seen.listed[name] = labels
        seen.definitions.update(definitions)
    if snapshot.instructions:
        text = snapshot.instructions.encode("utf-8", "surrogatepass")
        changed += [_INSTRUCTIONS] if seen.definitions.get(_INSTRUCTIONS, text) != text else []
        seen.definitions[_INSTRUCTIONS] = text
    return news, changed


def _labelled(snapshot: Snapshot, name: ListName) -> Iterator[tuple[Label, bytes]]:
    for item in getattr(snapshot, name):
        key = item.name if isinstance(item, Tool) else item.key
        yield f"{_NOUNS[name]} `{reveal(key)}`", item.definition


def _differs(before: bytes | None, now: bytes) -> bool:
    return before is not None and before != now and _canonical(before) != _canonical(now)


def _canonical(definition: bytes) -> object:
    """The order of members and the spelling of texts mean nothing."""
    try:
        return msgspec.json.decode(definition)
    except (msgspec.MsgspecError, RecursionError):
        return definition


def _named(labels: Iterable[Label]) -> str:
    names = list(labels)
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
