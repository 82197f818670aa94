"""What tools cost a model to read, in tokens: a tool, a catalog, and searching in place of listing it whole.

Every model cuts text its own way, and some vendors publish no tokenizer, so one number for all of them can only be an
estimate. This one cuts text into pieces about as the tokenizers do and counts the pieces.

Measured against o200k, Claude's published tokenizer and Llama 3's on 2,797 tools of 308 real MCP servers, of which one
half was used for choosing the pieces and the other half for measuring: the sum over a list of 50 tools is off by 1-3 %
on average and by less than `LIST_ERROR` in 99 of 100 lists, a single tool by 3-4 % in the median and by less than
`TOOL_ERROR` in 99 of 100. The tokenizers differ among themselves by as much. Text that is not English is further off,
mostly within a factor of two. `python -m bench.discovery.tokenizers` measures it again.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.tool import ToolDefinition
from trunkline.router.catalog import Catalog, ToolEntry, shown_definition
from trunkline.search.own_tool_definitions import SEARCHING

LIST_ERROR: Final = 0.05
"""How far off, as a share of the true number, the sum over 50 tools is at most in 99 of 100 lists."""
TOOL_ERROR: Final = 0.16
"""How far off a single tool is at most in 99 of 100."""

_PIECES: Final = (
    r" [A-Za-z][a-z]{0,14}",  # a word of a sentence
    r"[_./]?[a-z]{1,8}",  # a part of an identifier, a path or an address
    r"\W?[A-Z][a-z]{1,9}",
    r"[ _]?[A-Z]{1,3}",
    r"\d{1,3}",
    r"[-=*#~_]{5,64}",  # a line drawn of characters
    r" ?[!-/:-@\[-`{-~]{1,4}",  # what stands between the names and values of JSON, and punctuation
    r" ?[\u0370-\u1fff]{1,3}",  # Greek, Cyrillic, Arabic, Hindi, Thai ...
    r" ?[\uac00-\ud7af]{1,2}",  # Korean
    r"\s{1,99}",
    r"\S",  # Chinese, Japanese, pictures, letters with accents
)
_pieces: Final = re.compile("|".join(_PIECES)).findall

_READ_WHOLE: Final = 32_000
"""The tokens of longer texts are estimated from samples of this many characters in all."""
_SAMPLES: Final = 16
_LARGE_BYTES: Final = 250_000
"""A definition of more is counted as its server wrote it: writing it anew would take longer than counting."""


class _ModelView(msgspec.Struct):
    """The members of a definition that a model is shown, in the order in which it is shown them."""

    name: Any = ""
    description: Any = ""
    input_schema: Any = msgspec.field(name="inputSchema", default_factory=dict[str, Any])


class _RawModelView(msgspec.Struct):
    name: Raw = Raw(b'""')
    description: Raw = Raw(b'""')
    input_schema: Raw = msgspec.field(name="inputSchema", default=Raw(b"{}"))


_decode: Final = msgspec.json.Decoder(_ModelView).decode
_decode_as_written: Final = msgspec.json.Decoder(_RawModelView).decode


def tokens_of(definition: bytes) -> int:
    """Tokens of a tool as a model sees it: its name, description and input schema as JSON without blanks.

    What a vendor's API wraps round each tool, such as `{"type":"function"}`, is not counted.
    """
    try:
        if len(definition) > _LARGE_BYTES:
            raw = _decode_as_written(definition)
            parts = (raw.name, raw.description, raw.input_schema)
            shown = b'{"name":%b,"description":%b,"inputSchema":%b}' % parts
        else:
            shown = msgspec.json.encode(_decode(definition))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        shown = definition
    return tokens_of_text(shown.decode("utf-8", "replace"))


def tokens_of_text(text: str) -> int:
    if len(text) <= _READ_WHOLE:
        return len(_pieces(text))
    length = _READ_WHOLE // _SAMPLES
    every = (len(text) - length) / (_SAMPLES - 1)
    starts = [round(number * every) for number in range(_SAMPLES)]
    counted = sum(len(_pieces(text[start : start + length])) for start in starts)
    return counted * len(text) // _READ_WHOLE


DEFAULT_LIMIT: Final = 5
"""How many tools a search returns unless asked for another number."""
_LISTED_TWICE: Final = 2
"""Before tools are found and once they are there."""
_SPARE: Final = 1000
Mode = Literal["all", "search"]


@dataclass(frozen=True, slots=True)
class ListCosts:
    """In tokens. `everything` is the whole list, `search` the list of a client that has found nothing yet, and
    `dialogue` the most that one search costs: both lists, and what was found in the answer and in the second list."""

    everything: int
    search: int
    dialogue: int
    budget: int

    @property
    def chosen(self) -> Mode:
        """Searching has to be cheaper for certain, and the whole list more than a session should hold."""
        return "search" if self.everything > max(self.budget, self.dialogue) else "all"

    def choice(self, *, searchable: bool) -> tuple[Mode, str]:
        """What `disclosure: auto` chooses, and why."""
        if not searchable:
            return "all", "`meta_tools` is off, so there is nothing to search with"
        budget = f"`context_tokens` ({self.budget:,})"
        if self.chosen == "search":
            return "search", f"the whole list is over {budget}, and a search costs {self.dialogue:,} at most"
        if self.everything <= self.budget:
            return "all", f"the whole list is within {budget}"
        return "all", f"a search may cost {self.dialogue:,}, which is no less than the whole list"


class TokenCosts:
    """The tokens of tools, counted once for each definition."""

    def __init__(self) -> None:
        self._known: dict[ToolDefinition, int] = {}

    def of(self, entry: ToolEntry) -> int:
        tokens = self._known.get(entry.tool)
        if tokens is None:
            tokens = self._known[entry.tool] = tokens_of(shown_definition(entry))
        return tokens

    def forget_all_but(self, entries: Collection[ToolEntry]) -> None:
        """Drop the counts of other tools once there are far more than are in use."""
        known = self._known
        if len(known) > 2 * len(entries) + _SPARE:
            self._known = {entry.tool: known[entry.tool] for entry in entries if entry.tool in known}

    def of_catalog(self, catalog: Catalog, always: list[ToolEntry], budget: int) -> ListCosts:
        """`always` are the tools that are listed to a client that searches."""
        entries = listed(catalog)
        base = sum(map(self.of, always))
        most = sum(nlargest(DEFAULT_LIMIT, (self.of(entry) for entry in entries if entry.source != RESERVED_SOURCE)))
        return ListCosts(
            everything=sum(map(self.of, entries)),
            search=base,
            dialogue=_dialogue(base, most, budget),
            budget=budget,
        )

    def chosen(self, catalog: Catalog, always: list[ToolEntry], budget: int) -> Mode:
        """As `ListCosts.chosen`, without reading thousands of definitions to know that they are many."""
        certain = _dialogue(sum(map(self.of, always)), budget, budget)
        total = 0
        for entry in listed(catalog):
            total += self.of(entry)
            if total > max(certain, budget):
                return "search"
        return self.of_catalog(catalog, always, budget).chosen


def _dialogue(base: int, found: int, budget: int) -> int:
    return _LISTED_TWICE * (base + min(found, budget))


def listed(catalog: Catalog) -> list[ToolEntry]:
    """The tools of a whole list, those of servers that are down at the moment too: a mode that changed whenever a
    server comes and goes would help nobody."""
    entries = [entry for entry in catalog.entries(hidden=True) if entry.exposed is not None]
    return [entry for entry in entries if entry.source != RESERVED_SOURCE or entry.name not in SEARCHING]
