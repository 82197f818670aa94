"""The operator's routes: servers, registered services, session tokens and the reload.

What is done, and whether it may be, is decided behind `Operator`; this is only its HTTP.
"""

from __future__ import annotations

from typing import Final, Protocol
from urllib.parse import parse_qsl

from trunkline.core.errors import INVALID_PARAMS, UNKNOWN_SERVER, GatewayError, Problem
from trunkline.core.names import is_source_name
from trunkline.frontends.http.access import check_content_type
from trunkline.frontends.http.requests import RouteRequest
from trunkline.protocol.http1 import HttpRequest
from trunkline.router.router import Router
from trunkline.router.status import diagnose_tool, server_statuses, status_json

PERSIST_SWITCH: Final = "persist"
_SWITCH: Final = {"1": True, "0": False}
_MAX_FIELDS: Final = 10


class Operator(Protocol):
    """The operator's actions. Each raises GatewayError if it was not done."""

    def reload(self) -> dict[str, object]: ...
    def add_server(self, body: bytes, /, *, persist: bool) -> dict[str, object]: ...
    def remove_server(self, name: str, /) -> dict[str, object]: ...
    def reconnect(self, name: str, /) -> dict[str, object]: ...
    def register_service(self, name: str, body: bytes, /) -> tuple[dict[str, object], bool]: ...
    def leave_service(self, name: str, /) -> dict[str, object]: ...
    def put_session_token(self, session: str, body: bytes, /) -> dict[str, object]: ...
    def drop_session_token(self, session: str, /) -> dict[str, object]: ...


class OperatorApi:
    """The handlers of the operator's routes."""

    def __init__(self, router: Router, operator: Operator) -> None:
        self._router = router
        self._operator = operator

    def list_servers(self, request: RouteRequest) -> None:
        switches(request.http)
        request.respond_json(200, {"servers": [status_json(status) for status in server_statuses(self._router)]})

    def add_server(self, request: RouteRequest) -> None:
        persist = switches(request.http, PERSIST_SWITCH)[PERSIST_SWITCH]
        request.respond_json(201, self._operator.add_server(_json_body(request), persist=persist))

    def remove_server(self, request: RouteRequest) -> None:
        switches(request.http)
        request.respond_json(200, self._operator.remove_server(_server_name(request)))

    def reconnect(self, request: RouteRequest) -> None:
        """Begin to reconnect: the response does not wait for the outcome."""
        switches(request.http)
        request.respond_json(202, self._operator.reconnect(_server_name(request)))

    def register_service(self, request: RouteRequest) -> None:
        switches(request.http)
        document, is_new = self._operator.register_service(request.path_parameters["id"], _json_body(request))
        request.respond_json(201 if is_new else 200, document)

    def leave_service(self, request: RouteRequest) -> None:
        switches(request.http)
        request.respond_json(200, self._operator.leave_service(request.path_parameters["id"]))

    def put_session_token(self, request: RouteRequest) -> None:
        switches(request.http)
        request.respond_json(200, self._operator.put_session_token(request.path_parameters["id"], _json_body(request)))

    def drop_session_token(self, request: RouteRequest) -> None:
        switches(request.http)
        request.respond_json(200, self._operator.drop_session_token(request.path_parameters["id"]))

    def diagnose_tool(self, request: RouteRequest) -> None:
        switches(request.http)
        request.respond_json(200, diagnose_tool(self._router, request.path_parameters["name"]))

    def reload(self, request: RouteRequest) -> None:
        switches(request.http)
        request.respond_json(200, self._operator.reload())


def switches(request: HttpRequest, *known: str, otherwise: bool = False) -> dict[str, bool]:
    """Parse the query's parameters that are `1` or `0`; unknown ones are refused, or a mistyped `persist` were lost."""
    found = dict.fromkeys(known, otherwise)
    try:
        fields = parse_qsl(request.query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise _bad_query("The query has too many parameters") from None
    names = [name for name, _ in fields]
    for name, value in fields:
        if name not in found:
            which = f"this route takes only `{'`, `'.join(known)}`" if known else "this route takes none"
            raise _bad_query(f"The query has an unknown parameter; {which}")
        if value not in _SWITCH or names.count(name) > 1:
            raise _bad_query(f"`{name}` must be given once, as `1` or `0`")
        found[name] = _SWITCH[value]
    return found


def _bad_query(message: str) -> GatewayError:
    return GatewayError(Problem(code=INVALID_PARAMS, message=message))


def _json_body(request: RouteRequest) -> bytes:
    check_content_type(request.http)
    return request.http.body


def _server_name(request: RouteRequest) -> str:
    name = request.path_parameters["name"]
    if not is_source_name(name):
        message = "The path contains no valid server name: names consist of letters, digits, `_` and `-`"
        raise GatewayError(Problem(code=UNKNOWN_SERVER, message=message))
    return name
