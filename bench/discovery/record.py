"""Everything one run found out, kept as JSON so that a report can be made again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.discovery.metrics import Quality
from bench.discovery.quality import macro
from bench.discovery.sets import KINDS

Json = dict[str, Any]
PUBLIC = tuple(kind.folder for kind in KINDS)


@dataclass
class Record:
    made: str
    machine: str
    versions: dict[str, str]
    settings: Json
    quality: list[Json] = field(default_factory=list)
    costs: dict[str, Json] = field(default_factory=dict)
    context: list[Json] = field(default_factory=list)

    def found(self, method: str, *sets: str) -> Quality | None:
        """On one set, or the mean over several; nothing where that was not measured."""
        return macro(self.quality, method, sets)

    def cost(self, part: str, *keys: str) -> float | None:
        value: Any = self.costs.get(part)
        for key in keys:
            value = value.get(key) if value else None
        return value

    def sent(self, tools: int, mode: str) -> Json | None:
        return next((row for row in self.context if row["tools"] == tools and row["mode"] == mode), None)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> Record:
        return cls(**json.loads(path.read_text()))
