from __future__ import annotations

import json
from typing import Annotated, Literal

<<<<<<< HEAD
import pytest

from trunkline.sources.builtin.tool import Parameter, ToolFault, ToolHints, definition, read_arguments

PARAMETERS = (
    Parameter(name="path", doc="A path", required=True, also=("file_path",)),
    Parameter(name="count", doc="How many", kind="integer", minimum=1),
    Parameter(name="wait", doc="How long", kind="number", default=1.5),
    Parameter(name="every", doc="All of them", kind="boolean", default=False, also=("all",)),
    Parameter(name="mode", doc="Which way", choices=("up", "down"), default="up"),
)
=======
from trunkline.config.call_arguments import Arguments, about
from trunkline.sources.builtin.arguments import Hints, definition
>>>>>>> 8e530d308405f95cc6a0fd9e5d58b0ad6e9f6bd3


class Taken(Arguments):
    path: Annotated[str, about("A path", "file_path")]
    count: Annotated[int, about("How many", ge=1)] | None = None
    wait: Annotated[float, about("How long")] = 1.5
    every: Annotated[bool, about("All of them", "all")] = False
    mode: Annotated[Literal["up", "down"], about("Which way")] = "up"


def test_the_definition_shows_each_argument_under_its_own_name_only() -> None:
<<<<<<< HEAD
    tool = json.loads(definition("Try", "Tries.", PARAMETERS, ToolHints(title="Try", reads_only=True)))
=======
    tool = json.loads(definition("Try", "Tries.", Taken, Hints(title="Try", reads_only=True)))
>>>>>>> 8e530d308405f95cc6a0fd9e5d58b0ad6e9f6bd3
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
