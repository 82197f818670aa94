from __future__ import annotations

import json
from typing import Annotated, Literal

from trunkline.config.call_arguments import StrictArguments, argument
from trunkline.sources.builtin.tool import definition


class Taken(StrictArguments):
    path: Annotated[str, argument("A path", "file_path")]
    count: Annotated[int, argument("How many", ge=1)] | None = None
    wait: Annotated[float, argument("How long")] = 1.5
    every: Annotated[bool, argument("All of them", "all")] = False
    mode: Annotated[Literal["up", "down"], argument("Which way")] = "up"


def test_the_definition_shows_each_argument_under_its_own_name_only() -> None:
    tool = json.loads(definition("Try", "Tries.", Taken, title="Try", reads_only=True))
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "A path"},
            "count": {"type": "integer", "description": "How many", "minimum": 1},
            "wait": {"type": "number", "description": "How long", "default": 1.5},
            "every": {"type": "boolean", "description": "All of them", "default": False},
            "mode": {"type": "string", "description": "Which way", "enum": ["down", "up"], "default": "up"},
        },
        "required": ["path"],
    }
