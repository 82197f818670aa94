"""Trunkline's search as the gateway uses it, with and without the encoder."""

from __future__ import annotations

from collections.abc import Sequence

from bench.discovery.sets import ToolText
from trunkline.core.tool import ToolDefinition
from trunkline.search.index.arrays import Flags, Floats
from trunkline.search.index.corpus import Collection, Corpus, Entry, Group
from trunkline.search.index.vectors import VectorStore


class Encoded:
    """The vectors of every text that is asked for, made at once and kept: no ranking is measured half encoded."""

    def __init__(self) -> None:
        self._store = VectorStore(None)

    def matrix(self, texts: Sequence[str]) -> tuple[Floats, Flags]:
        self._store.encode_now(texts)
        return self._store.matrix(texts)

    def request(self, texts: Sequence[str]) -> None:
        pass

    def query(self, text: str) -> Floats:
        return self._store.query_now(text)


def groups_of(tools: Sequence[ToolText]) -> list[Group]:
    """By server, in the order in which they appear."""
    members: dict[str, list[ToolText]] = {}
    for tool in tools:
        members.setdefault(tool.server, []).append(tool)
    return [Group(server, mine[0].server_text, tuple(map(_entry, mine))) for server, mine in members.items()]


def _entry(tool: ToolText) -> Entry:
    return ToolDefinition(tool.server, tool.name, tool.definition), None, ()


class Ours:
    def __init__(self, tools: Sequence[ToolText], encoded: Encoded | None) -> None:
        self._encoded = encoded
        order: dict[str, list[str]] = {}
        for tool in tools:
            order.setdefault(tool.server, []).append(tool.id)
        self._ids = [tool for mine in order.values() for tool in mine]
        self._collection: Collection = Corpus(vectors=encoded).begin(groups_of(tools))
        self._collection.finish()

    def rank(self, query: str, most: int) -> list[str]:
        vector = self._encoded.query(query) if self._encoded else None
        return [self._ids[hit.position] for hit in self._collection.search(query, vector, limit=most)]
