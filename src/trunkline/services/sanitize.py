"""The check that every call's arguments pass before anything else happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from trunkline.core.traversal import has_path_traversal
from trunkline.services.errors import PathTraversalError


def sanitize_tool_args(args: Mapping[str, Any]) -> None:
    """Raise PathTraversalError where a string anywhere in `args`, name or value, leads out of a folder.

    What is looked at is what would be sent: an enum's value, a date's text. Raises TypeError for what JSON cannot say.
    """
    todo: list[tuple[str, Any]] = [("args", msgspec.to_builtins(args, str_keys=True))]
    while todo:
        place, value = todo.pop()
        if isinstance(value, str):
            if has_path_traversal(value):
                raise PathTraversalError(place)
        else:
            todo.extend(_inner(place, value))


def _inner(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in cast(dict[str, Any], value).items():
            if has_path_traversal(name):
                raise PathTraversalError(f"a name in {place}")
            yield f"{place}.{name}", item
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast(list[Any], value)):
            yield f"{place}[{index}]", item
