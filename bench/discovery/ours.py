"""Trunkline's search as the gateway uses it, with and without the encoder."""

from __future__ import annotations

from collections.abc import Sequence

from bench.discovery.sets import ToolText
from trunkline.core.tool import ToolDefinition
from trunkline.search.index.arrays import Flags, Floats, np
from trunkline.search.index.catalog_index import Entry, SegmentCache, ServerTools
from trunkline.search.index.encoder import Encoder
from trunkline.search.index.query_encoder import query_vectors
from trunkline.search.index.vector_file import records_of, vectors_of
from trunkline.search.index.wordpiece import MAX_CHARACTERS


class Encoded:
    """The vectors of every text that is asked for, made at once and kept: no ranking is measured half encoded."""

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._records: dict[str, bytes] = {}

    def matrix(self, texts: Sequence[str]) -> tuple[Floats, Flags]:
        cut = [text[:MAX_CHARACTERS] for text in texts]
        missing = list(dict.fromkeys(text for text in cut if text not in self._records))
        self._records |= zip(missing, records_of(self._encoder.encode(missing)), strict=True)
        return vectors_of(self._records[text] for text in cut), np.ones(len(cut), dtype=np.bool_)

    def request(self, texts: Sequence[str]) -> None:
        pass

    def query(self, text: str) -> Floats:
        return query_vectors(self._encoder.encode, text)


def groups_of(tools: Sequence[ToolText]) -> list[ServerTools]:
    """By server, in the order in which they appear."""
    members: dict[str, list[ToolText]] = {}
    for tool in tools:
        members.setdefault(tool.server, []).append(tool)
    return [ServerTools(server, mine[0].server_text, tuple(map(_entry, mine))) for server, mine in members.items()]


def _entry(tool: ToolText) -> Entry:
    return ToolDefinition(tool.server, tool.name, tool.definition), None, ()


class Ours:
    def __init__(self, tools: Sequence[ToolText], encoded: Encoded | None) -> None:
        self._encoded = encoded
        order: dict[str, list[str]] = {}
        for tool in tools:
            order.setdefault(tool.server, []).append(tool.id)
        self._ids = [tool for mine in order.values() for tool in mine]
        self._index = SegmentCache(vectors=encoded).begin(groups_of(tools))
        self._index.finish()

    def rank(self, query: str, most: int) -> list[str]:
        vector = self._encoded.query(query) if self._encoded else None
        return [self._ids[hit.position] for hit in self._index.search(query, vector, limit=most)]
