"""Which tools a request to a model offers, read off the request: one shape for each of the APIs that agents speak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

_NAMESPACE: Final = "namespace"


def tools_offered(body: bytes) -> tuple[str, ...]:
    """The names of all tools in the body of a request; empty where it offers none, or is no such request.

    A tool in a namespace is `namespace/name`. A kind of tool without a name is called by its kind.
    """
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ()
    if not isinstance(request, dict):
        return ()
    asked = cast(dict[str, Any], request)
    names = list(_names(asked.get("tools"), ""))
    for item in _objects(asked.get("input")):  # some models are told of tools in the conversation
        names += _names(item.get("tools"), "")
    return tuple(names)


def _names(tools: object, namespace: str) -> Iterator[str]:
    for tool in _objects(tools):
        if "functionDeclarations" in tool or not tool.keys() & {"name", "type", "function"}:
            yield from _in_group(tool)
        elif tool.get("type") == _NAMESPACE:
            inside = f"{tool.get('name')}/"
            yield from list(_names(tool.get("tools"), inside)) or [inside]  # what we cannot read is not nothing
        else:
            yield namespace + _name(tool)


def _in_group(group: Mapping[str, Any]) -> Iterator[str]:
    """A group of functions, beside kinds of tools that have no name but their key."""
    for kind, value in group.items():
        if kind == "functionDeclarations":
            yield from (str(function.get("name")) for function in _objects(value))
        else:
            yield kind


def _name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function")
    named = cast(Mapping[str, Any], function) if isinstance(function, dict) else tool
    return str(named.get("name") or tool.get("type"))


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    for item in cast(list[Any], value) if isinstance(value, list) else []:
        if isinstance(item, dict):
            yield cast(Mapping[str, Any], item)
