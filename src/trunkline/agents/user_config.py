"""The user's own configuration of an agent as plain values. It is JSON that may have comments and last commas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from trunkline.config.json_text import read_json
from trunkline.config.report import Invalid, Report
from trunkline.config.tree import Items, Node, PassedOver, Scalar, Table

_FLOAT: Final = re.compile(r"[.eE]")


def read_config(text: str) -> dict[str, Any] | None:
    """The object in this text; None where there is none, which is for the agent to complain about."""
    report = Report("")
    try:
        value = _plain(read_json(text, report, relaxed=True))
    except (Invalid, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) and not report.failed else None


def _plain(node: Node) -> object:
    match node:
        case Table():
            return {entry.key.text: _plain(entry.value) for entry in node.entries}
        case Items():
            return [_plain(item) for item in node.items]
        case PassedOver():
            return node.value
        case Scalar():
            return _scalar(node)


def _scalar(node: Scalar) -> object:
    match node.kind:
        case "null":
            return None
        case "boolean":
            return node.text == "true"
        case "number":
            return float(node.text) if _FLOAT.search(node.text) else int(node.text)
        case _:
            return node.text


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` counts more; objects in both are merged in their turn."""
    result = dict(base)
    for key, value in over.items():
        mine = result.get(key)
        both = isinstance(mine, dict) and isinstance(value, dict)
        result[key] = merged(cast("dict[str, Any]", mine), cast("dict[str, Any]", value)) if both else value
    return result


def picked(values: Mapping[str, Any], paths: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    """Only what is at these places, where there is anything."""
    result: dict[str, Any] = {}
    for path in paths:
        found: Any = values
        for key in path:
            found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
        for key in reversed(path):
            found = {key: found} if found is not None else None
        result = merged(result, found or {})
    return result


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
