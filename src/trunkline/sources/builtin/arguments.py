"""The arguments of built-in tools: declared once, shown to clients as a schema, and read kindly.

Models write `"10"` for 10, null for what they leave out, and the names that other tools taught them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from trunkline.config.suggest import listed, nearest
from trunkline.core.call import Json
from trunkline.protocol.jsonrpc import encode
from trunkline.sources.builtin.tool import ToolFault

Kind = Literal["string", "integer", "number", "boolean"]
_SHOWN: Final = 100
_WORDS: Final[Mapping[str, bool]] = {"true": True, "false": False, "yes": True, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument. `also` are other names for it that callers may use; the schema shows only its own."""

    name: str
    doc: str
    kind: Kind = "string"
    required: bool = False
    default: str | float | bool | None = None
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What a tool does to its surroundings, as MCP's annotations say it."""

    title: str
    reads_only: bool = False
    destroys: bool = False
    idempotent: bool = False
    open_world: bool = False


def definition(name: str, doc: str, parameters: Sequence[Parameter], hints: Hints) -> bytes:
    """The tool as `tools/list` shows it."""
    annotations = {
        "title": hints.title,
        "readOnlyHint": hints.reads_only,
        "destructiveHint": hints.destroys,
        "idempotentHint": hints.idempotent,
        "openWorldHint": hints.open_world,
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {parameter.name: _schema(parameter) for parameter in parameters},
        "required": [parameter.name for parameter in parameters if parameter.required],
    }
    return encode({"name": name, "description": doc, "inputSchema": schema, "annotations": annotations})


def _schema(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind, "description": parameter.doc}
    if parameter.choices:
        schema["enum"] = parameter.choices
    if parameter.minimum is not None:
        schema["minimum"] = parameter.minimum
    if parameter.default is not None:
        schema["default"] = parameter.default
    return schema


# -- reading -----------------------------------------------------------------------------------------------------------


class _Params(msgspec.Struct):
    arguments: Raw = Raw(b"{}")


def read_arguments(params: Json, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The arguments of a call under their own names, with defaults; None for what has neither. Raises ToolFault."""
    given = _decoded(params)
    names = {spelling: parameter for parameter in parameters for spelling in (parameter.name, *parameter.also)}
    values: dict[str, Any] = {parameter.name: parameter.default for parameter in parameters}
    seen: dict[str, str] = {}
    for name, value in given.items():
        parameter = names.get(name)
        if parameter is None:
            raise ToolFault(_unknown(name, parameters))
        if value is None:
            continue
        read = _value(parameter, name, value)
        if parameter.name in seen and values[parameter.name] != read:
            raise ToolFault(f"`{seen[parameter.name]}` and `{name}` are the same argument and differ: give one of them")
        seen[parameter.name] = name
        values[parameter.name] = read
    missing = [parameter.name for parameter in parameters if parameter.required and parameter.name not in seen]
    if missing:
        raise ToolFault(f"Missing argument {listed(missing)}; {_taken(parameters)}")
    return values


def _decoded(params: Json) -> dict[str, Any]:
    try:
        raw = msgspec.json.decode(params, type=_Params).arguments
        arguments = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ToolFault(f"The arguments cannot be read: {error}"[:300]) from None
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise ToolFault("The arguments must be one JSON object")
    return arguments  # pyright: ignore[reportUnknownVariableType] - JSON: its keys are text, its values are checked


def _unknown(name: str, parameters: Sequence[Parameter]) -> str:
    guess = nearest(name, [parameter.name for parameter in parameters])
    meant = f": did you mean `{guess}`?" if guess else ""
    return f"Unknown argument `{name[:_SHOWN]}`{meant} ({_taken(parameters)})"


def _taken(parameters: Sequence[Parameter]) -> str:
    return f"this tool takes {listed(parameter.name for parameter in parameters)}"


def _value(parameter: Parameter, name: str, value: object) -> str | int | float | bool:
    read = _as_kind(parameter.kind, value)
    if read is None:
        wanted = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}.get(
            parameter.kind, "text"
        )
        raise ToolFault(f"`{name}` must be {wanted}, not {encode(value).decode()[:_SHOWN]}")
    if parameter.choices and read not in parameter.choices:
        raise ToolFault(f"`{name}` must be one of {listed(parameter.choices)}")
    if parameter.minimum is not None and isinstance(read, int | float) and read < parameter.minimum:
        raise ToolFault(f"`{name}` must be at least {parameter.minimum}")
    return read


def _as_kind(kind: Kind, value: object) -> str | int | float | bool | None:
    if kind == "string":
        return value if isinstance(value, str) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else _WORDS.get(value.lower()) if isinstance(value, str) else None
    return _number(value, whole=kind == "integer")


def _number(value: object, *, whole: bool) -> int | float | None:
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < _SHOWN else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if whole and not isinstance(value, int) else value
