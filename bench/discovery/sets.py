"""Query sets: reading them, and which requests of a set may be tuned on and which are reported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

OWN_SET = Path(__file__).resolve().parent / "own_set"
CORPUS = "mcpzero_corpus"
"""Tools of real MCP servers without requests: for the cost and for the context."""
Split = Literal["dev", "report"]


@dataclass(frozen=True)
class Kind:
    folder: str
    title: str
    seen: bool
    """Whether the shipped encoder was trained on requests of this set."""
    marked: bool = False
    """Whether its authors say which requests are for development; else a hash decides."""


KINDS = (
    Kind("metatool", "MetaTool", seen=True),
    Kind("metatool_multi", "MetaTool, two tools", seen=True),
    Kind("sealtools", "Seal-Tools, test", seen=False, marked=True),
    Kind("bfcl", "BFCL v4", seen=True),
    Kind("acebench", "ACEBench", seen=True),
)
OWN = Kind("own_set", "own set", seen=False, marked=True)


@dataclass(frozen=True)
class ToolText:
    """One tool as the sets write it."""

    id: str
    server: str
    server_text: str
    name: str
    description: str
    schema: dict[str, Any] = field(hash=False)

    @cached_property
    def definition(self) -> bytes:
        """As an MCP server would list it."""
        told = {"name": self.name, "description": self.description, "inputSchema": self.schema or {"type": "object"}}
        return json.dumps(told, ensure_ascii=False).encode()


@dataclass(frozen=True)
class Query:
    id: str
    text: str
    gold: tuple[frozenset[str], ...]
    """One group for each tool that is needed; the ids of a group are as good as one another."""
    split: Split


@dataclass(frozen=True)
class QuerySet:
    kind: Kind
    tools: tuple[ToolText, ...]
    queries: tuple[Query, ...]

    def chosen(self, split: Split, most: int) -> tuple[Query, ...]:
        """A sample that is the same in every run, in the order of the file."""
        found = [query for query in self.queries if query.split == split]
        kept = {query.id for query in sorted(found, key=lambda query: _hash(self.kind.folder, query.id))[:most]}
        return tuple(query for query in found if query.id in kept)


def read_sets(data: Path | None) -> list[QuerySet]:
    """Those of the folder that are there, and the own set."""
    folders = [(kind, data / kind.folder) for kind in KINDS] if data else []
    folders.append((OWN, OWN_SET))
    return [read_set(kind, folder) for kind, folder in folders if (folder / "queries.jsonl").exists()]


def read_set(kind: Kind, folder: Path) -> QuerySet:
    queries = [_query(kind, row) for row in _rows(folder / "queries.jsonl")]
    return QuerySet(kind, read_tools(folder), tuple(queries))


def read_tools(folder: Path) -> tuple[ToolText, ...]:
    return tuple(_tool(row) for row in _rows(folder / "tools.jsonl"))


def _tool(row: dict[str, Any]) -> ToolText:
    server, server_text = row.get("server") or "", row.get("server_desc") or ""
    description, schema = row.get("description") or "", row.get("schema") or {}
    return ToolText(row["id"], server, server_text, row["name"], description, schema)


def _query(kind: Kind, row: dict[str, Any]) -> Query:
    is_dev = row.get("split") == "dev" if kind.marked else _hash(row["id"], kind.folder) % 2 == 0
    gold = tuple(frozenset(group) for group in row["gold"])
    return Query(row["id"], row["query"], gold, "dev" if is_dev else "report")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def in_hash_order(tools: Iterable[ToolText], salt: str) -> list[ToolText]:
    """Shuffled, the same way in every run."""
    return sorted(tools, key=lambda tool: _hash(salt, f"{tool.server}\n{tool.id}"))


def _hash(salt: str, text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{salt}\n{text}".encode()).digest()[:8], "big")
