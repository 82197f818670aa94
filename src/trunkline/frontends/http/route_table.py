"""Finds who answers a request by its path and method."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from trunkline.core.errors import METHOD_NOT_ALLOWED, NOT_FOUND, Problem
from trunkline.frontends.http.access import Credential, Denied
from trunkline.frontends.http.requests import API, Handler
from trunkline.frontends.http.routes import AGENTS, MCP, ROUTES, Handlers, Route

_PART: Final = re.compile(r"\{(\w+)\}")


class PathHandlers:
    """One path: all its methods ask for the same credential. `rest` says which shape its errors have, `waits` whether
    its answers may take their time."""

    __slots__ = ("_handlers", "allow", "credential", "rest", "waits")

    def __init__(
        self, credential: Credential, handlers: Mapping[bytes, Handler], *, rest: bool, waits: bool = False
    ) -> None:
        self.credential: Credential = credential
        self.rest = rest
        self.waits = waits
        self._handlers = handlers
        self.allow = b", ".join(sorted(handlers))

    def handler(self, method: bytes) -> Handler:
        """Who answers, or Denied."""
        handler = self._handlers.get(method)
        if handler is not None:
            return handler
        if not self._handlers:
            raise Denied(Problem(code=NOT_FOUND, message="No such route", hint=f"MCP is at `{MCP}`"))
        message = f"{method.decode('latin-1')} is not allowed here"
        hint = f"use {self.allow.decode()}; MCP is at `{MCP}`"
        raise Denied(Problem(code=METHOD_NOT_ALLOWED, message=message, hint=hint), self.allow)


# Whoever asks for what is not there must still be let in: what exists is nobody else's business. An MCP client that
# was given a wrong address understands a JSON-RPC error, so outside of the API it gets one.
_NOWHERE: Final = PathHandlers("client", {}, rest=False)
_NOWHERE_IN_API: Final = PathHandlers("client", {}, rest=True)
# Clients look here for a way to log in, before they have a token: they must learn that there is none, not be asked for
# one. Some look below the address of MCP that they were given.
_NO_LOGIN: Final = PathHandlers("open", {}, rest=True)
_LOGIN_PATHS: Final = ("/register", "/authorize", "/token")
_WELL_KNOWN: Final = tuple(f"{below}/.well-known/" for below in ("", *AGENTS))


class RouteTable:
    """Finds the place of a path. A `{name}` stands for one segment, taken apart before anything in it is decoded."""

    def __init__(self, handlers: Handlers, routes: Iterable[Route] = ROUTES) -> None:
        self._exact: dict[bytes, PathHandlers] = {}
        self._patterns: list[tuple[re.Pattern[str], PathHandlers]] = []
        by_path: dict[str, list[Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, []).append(route)
        for path, group in by_path.items():
            place = _place(group, handlers)
            if "{" in path:
                self._patterns.append((_pattern(path), place))
            else:
                self._exact[path.encode()] = place

    def find(self, path: bytes) -> tuple[PathHandlers, Mapping[str, str]]:
        place = self._exact.get(path)
        if place is not None:
            return place, {}
        text = path.decode("latin-1")
        for pattern, place in self._patterns:
            match = pattern.fullmatch(text)
            if match is not None:
                return place, {name: unquote(part) for name, part in match.groupdict().items()}
        if text.startswith(_WELL_KNOWN) or text.removesuffix("/") in _LOGIN_PATHS:
            return _NO_LOGIN, {}
        return (_NOWHERE_IN_API if text.startswith(API) else _NOWHERE), {}


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(_PART.sub(r"(?P<\1>[^/]+)", path))


def _place(group: list[Route], handlers: Handlers) -> PathHandlers:
    methods: dict[bytes, Handler] = {}
    for route in group:
        assert route.credential == group[0].credential, f"{route.path} asks for different credentials"
        if route.handler is not None:
            methods[route.method.encode()] = route.handler(handlers)
    if b"GET" in methods:
        methods[b"HEAD"] = methods[b"GET"]
    waits = any(route.waits for route in group)
    return PathHandlers(group[0].credential, methods, rest=group[0].path not in AGENTS, waits=waits)
