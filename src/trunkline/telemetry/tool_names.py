"""The names of tools and sources that spans and log lines share: those that callers know, with the kind of source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from trunkline.core.call import Call

_KEPT: Final = 4096


class NamingRouter(Protocol):
    """What is asked of a router about names."""

    @property
    def names_version(self) -> int: ...
    def kind_of(self, source: str, /) -> str: ...
    def shown_name(self, source: str, tool: str, /) -> str: ...


class ToolNames:
    """`version` goes up whenever tools may have other names."""

    __slots__ = ("_kind_of", "_names", "_names_version", "_router")

    def __init__(self, router: NamingRouter, kind_of: Callable[[str], str] | None = None) -> None:
        self._router = router
        self._kind_of = kind_of or router.kind_of
        self._names: dict[tuple[str, str], str] = {}
        self._names_version = -1

    @property
    def version(self) -> int:
        return self._router.names_version

    def tool(self, call: Call) -> str:
        """The name that callers know, however this one spelled it, and whatever tool stood for it."""
        if not call.source:
            return call.tool
        version = self.version
        if self._names_version != version or len(self._names) >= _KEPT:
            self._names.clear()
            self._names_version = version
        place = (call.source, call.tool)
        name = self._names.get(place)
        if name is None:
            name = self._names[place] = self._router.shown_name(*place)
        return name

    def source(self, source: str) -> str:
        """`builtin`, `plugin:NAME`, `mcp:NAME` …; empty for none."""
        return source_label(self._kind_of(source), source) if source else ""


def source_label(kind: str, name: str) -> str:
    if kind == "builtin":
        return kind
    return f"{kind.partition('_')[0]}:{name}" if kind else name
