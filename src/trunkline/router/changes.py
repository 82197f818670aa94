"""Which definitions a source describes otherwise than when they were last seen: at its last start, or during this run.

Models do what descriptions say, so a server that changes them by itself is worth a line in the log. So is one that does
it in the process of one client, where nobody else sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Final

import msgspec

from trunkline.core.errors import DEFINITION_CHANGED, HIDDEN_CHARACTERS
from trunkline.core.events import Events
from trunkline.core.hidden_text import reveal
from trunkline.core.tool import LISTS, ListName, Snapshot, Tool

EVERY_S: Final = 10.0
"""A source that changes all the time is told of this often."""
_MOST_NAMED: Final = 10
_MOST_KEPT: Final = 50_000
"""Definitions of one source that are remembered, with those that are listed no longer."""
_MOST_VARIANTS: Final = 4
"""What clients' own processes say of one thing is told this often: some servers describe a tool to each client anew."""
_MOST_HIDDEN: Final = 10
"""Warnings of hidden characters that are kept of clients' own processes of one source."""
_FOR_A_CLIENT: Final = "in a client's own process"
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
        self.variants: dict[Label, set[bytes]] = {}
        """Digests of what clients' own processes said otherwise: each is told once, to however many clients."""
        self.hidden: dict[str, None] = {}
        """Warnings of hidden characters in what they said."""


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
        self._changed(source, seen, changed)

    def published_for_client(self, source: str, snapshot: Snapshot, known_warnings: Collection[str]) -> None:
        """What a client's own process of this source says. It is compared with what all are offered, and never takes
        its place; what comes and goes in such a list is that client's affair."""
        seen = self._sources.setdefault(source, _Seen())
        self._changed(source, seen, [f"{label} {_FOR_A_CLIENT}" for label in _new_variants(seen, snapshot)])
        for warning in snapshot.warnings:
            told = f"{warning}, {_FOR_A_CLIENT}"
            is_news = warning.startswith(f"{HIDDEN_CHARACTERS}:") and warning not in known_warnings
            if is_news and told not in seen.hidden and len(seen.hidden) < _MOST_HIDDEN:
                seen.hidden[told] = None
                self._events.note("warning", "source", told, source=source)

    def _changed(self, source: str, seen: _Seen, changed: list[Label]) -> None:
        if changed:
            seen.changed.update(dict.fromkeys(changed))
            seen.untold.update(dict.fromkeys(changed))
            if seen.pause is None:
                self._tell_changed(source, seen)

    def warnings(self, source: str) -> tuple[str, ...]:
        """For whoever asks how the source is."""
        seen = self._sources.get(source)
        if seen is None:
            return ()
        changed = f"{DEFINITION_CHANGED}: described otherwise than before: {_named(seen.changed)}; {_HINT}"
        return (*((changed,) if seen.changed else ()), *seen.hidden)

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
    for label, text in _instructions(snapshot):
        changed += [label] if seen.definitions.get(label, text) != text else []
        seen.definitions[label] = text
    return news, changed


def _new_variants(seen: _Seen, snapshot: Snapshot) -> list[Label]:
    """What is said otherwise than all are told, and than any client was told yet. Of what only clients are offered the
    first is the measure."""
    found: list[Label] = []
    offered = [pair for name in LISTS for pair in _labelled(snapshot, name)]
    for label, definition in (*offered, *_instructions(snapshot)):
        known = seen.definitions.get(label)
        if known is not None and not _differs(known, definition):
            continue
        variants = seen.variants.get(label)
        if variants is None:
            if known is None and len(seen.variants) >= _MOST_KEPT:
                continue
            variants = seen.variants[label] = set()
        if len(variants) >= _MOST_VARIANTS or (digest := _digest(definition)) in variants:
            continue
        if known is not None or variants:
            found.append(label)
        variants.add(digest)
    return found


def _digest(definition: bytes) -> bytes:
    with suppress(msgspec.MsgspecError, RecursionError, TypeError):  # else its bytes will do
        definition = msgspec.json.encode(_canonical(definition), order="deterministic")
    return blake2b(definition, digest_size=16).digest()


def _instructions(snapshot: Snapshot) -> Iterator[tuple[Label, bytes]]:
    if snapshot.instructions:
        yield _INSTRUCTIONS, snapshot.instructions.encode("utf-8", "surrogatepass")


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
