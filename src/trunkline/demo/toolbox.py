"""What a demo server is made of: tools with schemas, whose arguments are checked before they run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from trunkline.demo.talk import Client, Talk

Arguments = Mapping[str, Any]
Schema = Mapping[str, Any]

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {"string": (str,), "integer": (int,), "number": (int, float)}


class Refusal(Exception):
    """The caller asked for something that cannot be done; the text tells them what."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool gives back: text for people, and the same as data where the tool has an output schema."""

    text: str
    data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. Arguments are required unless their schema has a default. One that `talks` takes a Talk too."""

    name: str
    title: str
    description: str
    run: Callable[..., Answer]
    arguments: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    result: Mapping[str, Schema] | None = None
    read_only: bool = True
    destructive: bool = False
    talks: bool = False

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        required = [name for name, schema in self.arguments.items() if "default" not in schema]
        definition: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": _object(self.arguments, required),
            "annotations": self._annotations(),
        }
        if self.result is not None:
            definition["outputSchema"] = _object(self.result, list(self.result))
        return definition

    def call(self, arguments: Arguments, talk: Talk | None = None) -> Answer:
        """Run it; raises Refusal when the arguments are not what it takes."""
        checked = _checked(arguments, self.arguments)
        return self.run(checked, talk or Talk(Client())) if self.talks else self.run(checked)

    def _annotations(self) -> dict[str, bool]:
        if self.read_only:
            return {"readOnlyHint": True, "openWorldHint": False}
        return {"readOnlyHint": False, "destructiveHint": self.destructive, "openWorldHint": False}


@dataclass(frozen=True, slots=True)
class Toolbox:
    """One server: its name, a word to the model about it, and its tools by name."""

    name: str
    title: str
    instructions: str
    tools: Mapping[str, Tool]


def toolbox(name: str, title: str, instructions: str, *tools: Tool) -> Toolbox:
    return Toolbox(name, title, instructions, {tool.name: tool for tool in tools})


def _object(properties: Mapping[str, Schema], required: list[str]) -> dict[str, Any]:
    described = {name: dict(schema) for name, schema in properties.items()}
    return {"type": "object", "properties": described, "required": required, "additionalProperties": False}


# Checking -------------------------------------------------------------------------------------------------------------


def _checked(arguments: Arguments, properties: Mapping[str, Schema]) -> dict[str, Any]:
    """The arguments with their defaults filled in."""
    for name in arguments:
        if name not in properties:
            raise Refusal(f"Unknown argument `{name}`; this tool takes {_listed(properties)}")
    values: dict[str, Any] = {}
    for name, schema in properties.items():
        if name not in arguments and "default" not in schema:
            raise Refusal(f"The argument `{name}` is missing")
        values[name] = _whole(arguments.get(name, schema.get("default")), schema)
        _check(name, values[name], schema)
    return values


def _whole(value: Any, schema: Schema) -> Any:
    """To JSON Schema 3.0 is an integer too."""
    return int(value) if schema["type"] == "integer" and isinstance(value, float) and value.is_integer() else value


def _check(name: str, value: Any, schema: Schema) -> None:
    kind = cast(str, schema["type"])
    if isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
        raise Refusal(f"`{name}` must be {'an' if kind == 'integer' else 'a'} {kind}")
    if "enum" in schema and value not in schema["enum"]:
        raise Refusal(f"`{name}` must be one of {_listed(schema['enum'])}")
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", math.inf):
            raise Refusal(f"`{name}` is longer than {schema['maxLength']:,} characters")
    elif not schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf):
        raise Refusal(f"`{name}` must be between {schema['minimum']:,} and {schema['maximum']:,}")


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names) or "no arguments"
