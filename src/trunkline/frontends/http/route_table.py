"""Finds the handler of a request by its path and method."""

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
    """The handlers of one path by method; all require the same credential.

    `rest` says which form its errors have, `waits` whether its responses may take long.
    """

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
        """The handler of a method. Raises Denied."""
        handler = self._handlers.get(method)
        if handler is not None:
            return handler
        if not self._handlers:
            raise Denied(Problem(code=NOT_FOUND, message="No such route", hint=f"MCP is at `{MCP}`"))
        message = f"{method.decode('latin-1')} is not allowed here"
        hint = f"use {self.allow.decode()}; MCP is at `{MCP}`"
        raise Denied(Problem(code=METHOD_NOT_ALLOWED, message=message, hint=hint), self.allow)


# An unknown path requires the credential too, so that strangers cannot probe which paths exist. An MCP client with a
# wrong address understands a JSON-RPC error, so outside of the API it gets one.
_UNKNOWN_PATH: Final = PathHandlers("client", {}, rest=False)
_UNKNOWN_API_PATH: Final = PathHandlers("client", {}, rest=True)
# Clients look here for OAuth before they have a token: they must get 404, not 401. Some look below the MCP address.
_NO_OAUTH: Final = PathHandlers("open", {}, rest=True)
_OAUTH_PATHS: Final = ("/register", "/authorize", "/token")
_WELL_KNOWN: Final = tuple(f"{below}/.well-known/" for below in ("", *AGENTS))


class RouteTable:
    """Finds the handlers of a path. A `{name}` stands for one segment; it is matched before it is decoded."""

    def __init__(self, handlers: Handlers, routes: Iterable[Route] = ROUTES) -> None:
        self._exact: dict[bytes, PathHandlers] = {}
        self._patterns: list[tuple[re.Pattern[str], PathHandlers]] = []
        by_path: dict[str, list[Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, []).append(route)
        for path, group in by_path.items():
            found = _path_handlers(group, handlers)
            if "{" in path:
                self._patterns.append((re.compile(_PART.sub(r"(?P<\1>[^/]+)", path)), found))
            else:
                self._exact[path.encode()] = found

    def find(self, path: bytes) -> tuple[PathHandlers, Mapping[str, str]]:
        found = self._exact.get(path)
        if found is not None:
            return found, {}
        text = path.decode("latin-1")
        for pattern, found in self._patterns:
            match = pattern.fullmatch(text)
            if match is not None:
                return found, {name: unquote(part) for name, part in match.groupdict().items()}
        if text.startswith(_WELL_KNOWN) or text.removesuffix("/") in _OAUTH_PATHS:
            return _NO_OAUTH, {}
        return (_UNKNOWN_API_PATH if text.startswith(API) else _UNKNOWN_PATH), {}


def _path_handlers(group: list[Route], handlers: Handlers) -> PathHandlers:
    methods: dict[bytes, Handler] = {}
    for route in group:
        assert route.credential == group[0].credential, f"the methods of {route.path} require different credentials"
        if route.handler is not None:
            methods[route.method.encode()] = route.handler(handlers)
    if b"GET" in methods:
        methods[b"HEAD"] = methods[b"GET"]
    waits = any(route.waits for route in group)
    return PathHandlers(group[0].credential, methods, rest=group[0].path not in AGENTS, waits=waits)
