"""The OpenAPI document: the operations, made from the table of routes, and the schemas of their bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from trunkline.core.errors import HOST_REFUSED, ORIGIN_REFUSED, UNAUTHORIZED, Code
from trunkline.frontends.http.routes import MCP_PATHS, PATH_PARAMETER, Route
from trunkline.frontends.rest.bodies import SCHEMAS
from trunkline.version import __version__

_SESSIONS: Final = "/api/sessions/"
_TOOLS: Final = ("/api/tools/", "/api/proxy/")
_DESCRIPTION: Final = """\
One line from an AI agent to every tool it may call. Agents use `/mcp`, old ones `/sse`; programs without MCP \
find and run tools below `/api/tools` and `/api/proxy`. The routes below `/api/mcp`, `/api/services`, `/api/sessions` \
and `/api/reload` are for whoever runs the gateway and always require the operator's token, even from the same machine.\
"""
_SECURITY_SCHEMES: Final = {
    "client": {
        "type": "http",
        "scheme": "bearer",
        "description": "`gateway.token`. Not required if none is configured.",
    },
    "operator": {
        "type": "http",
        "scheme": "bearer",
        "description": "`gateway.operator_token`, or the one that the gateway wrote to the file its log names.",
    },
}
_SECURITY: Final[dict[str, list[dict[str, list[str]]]]] = {
    "open": [],
    "client": [{"client": []}, {}],
    "operator": [{"operator": []}],
}
_GROUPS: Final = {
    "MCP": "MCP endpoints",
    "Tools": "Finding, getting and running tools without MCP",
    "Gateway": "Overview, health and metrics",
    "Operator": "Managing a running gateway",
}


# -- operations -------------------------------------------------------------------------------------------------------


def openapi_document(routes: Iterable[Route]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operations = paths.setdefault(route.path, _path_parameters(route.path))
        operations[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Trunkline",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": description} for name, description in _GROUPS.items()],
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": _SECURITY_SCHEMES},
    }


def _path_parameters(path: str) -> dict[str, Any]:
    schema = _reference("SessionId" if path.startswith(_SESSIONS) else "ServerName")
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema} for name in PATH_PARAMETER.findall(path)
    ]
    return {"parameters": parameters} if parameters else {}


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [_group(route)],
        "security": _SECURITY[route.credential],
    }
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "description": meaning, "schema": {"type": "integer", "enum": [0, 1]}}
        for name, meaning in (route.switches or {}).items()
    ]
    members: dict[str, dict[str, Any]] = SCHEMAS[route.query]["properties"] if route.query else {}
    for name, schema in members.items():
        described = {"description": schema["description"]} if "description" in schema else {}
        bare = {key: value for key, value in schema.items() if key != "description"}
        parameters.append({"name": name, "in": "query", **described, "schema": bare})
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        content = {"application/json": {"schema": _reference(route.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = _responses(route)
    return operation


def operation_id(route: Route) -> str:
    """`POST /api/mcp/servers/{name}/reconnect` → `post_api_mcp_servers_name_reconnect`."""
    return "_".join([route.method.lower(), *re.findall(r"\w+", route.path)])


def _group(route: Route) -> str:
    if route.path in MCP_PATHS:
        return "MCP"
    if route.credential == "operator":
        return "Operator"
    return "Tools" if route.path.startswith(_TOOLS) else "Gateway"


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for response in route.responses:
        schema: dict[str, Any] = {"schema": _reference(response.schema)} if response.schema else {}
        content = {"content": dict.fromkeys(response.media, schema)} if response.media else {}
        responses[str(response.status)] = {"description": response.meaning, **content}
    codes = [HOST_REFUSED, ORIGIN_REFUSED, *([] if route.credential == "open" else [UNAUTHORIZED]), *route.problems]
    by_status: dict[int, list[Code]] = {}
    for code in codes:
        by_status.setdefault(code.http, []).append(code)
    problem = _reference("JsonRpcError" if route.path in MCP_PATHS else route.problem)
    for status, group in sorted(by_status.items()):
        responses[str(status)] = {
            "description": "; ".join(f"{code.id}: {code.title}" for code in group),
            "content": {"application/json": {"schema": problem}},
        }
    return dict(sorted(responses.items()))


def _reference(schema: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{schema}"}
