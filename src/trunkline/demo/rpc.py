"""The demo servers' MCP: a message in, its answer out. Nothing a client sends makes it raise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from trunkline.demo.library import Library
from trunkline.demo.rpc_errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    RpcError,
)
from trunkline.demo.talk import Client, Talk, known_level
from trunkline.demo.toolbox import Answer, Refusal, Toolbox
from trunkline.version import __version__

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

Json = dict[str, Any]


class RpcServer:
    """One toolbox, and what a server has beside tools, as an MCP server of the versions with a handshake."""

    def __init__(self, toolbox: Toolbox, library: Library | None = None) -> None:
        self.client = Client()
        self._toolbox = toolbox
        self._library = library or Library()
        self._talks = any(tool.talks for tool in toolbox.tools.values())

    def answer(self, data: bytes) -> bytes | None:
        """The bytes to send back; None when nothing is to be: a notification, or an answer to somebody."""
        try:
            message = json.loads(data, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return _encoded(_failed(None, PARSE_ERROR, "This is not JSON"))
        if not isinstance(message, list):
            return _encoded(self._one(message))
        # 2025-03-26 lets a client send several messages as one
        batch = cast(list[Any], message)
        answers = [answer for one in batch if (answer := self._one(one)) is not None]
        if not batch:
            return _encoded(_failed(None, INVALID_REQUEST, "The batch is empty"))
        return _encoded(answers) if answers else None

    def _one(self, message: Any) -> Json | None:
        if not isinstance(message, dict):
            return _failed(None, INVALID_REQUEST, "A message is a JSON object")
        request = cast(Json, message)
        if "method" not in request and ("result" in request or "error" in request):
            return None
        number = request.get("id")
        if "id" in request and not _is_id(number):
            return _failed(None, INVALID_REQUEST, "An id is a string or an integer")
        try:
            result = self._result(request)
        except RpcError as error:
            return _failed(number, error.code, str(error), error.data) if "id" in request else None
        except Exception as error:
            return _failed(number, INTERNAL_ERROR, f"{type(error).__name__}: {error}") if "id" in request else None
        return {"jsonrpc": "2.0", "id": number, "result": result} if "id" in request else None

    def _result(self, request: Json) -> Json:
        method, params = request.get("method"), request.get("params", {})
        if not isinstance(method, str):
            raise RpcError(INVALID_REQUEST, "A method is a string")
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "`params` is an object")
        return self._run(method, cast(Json, params)) if "id" in request else {}

    def _run(self, method: str, params: Json) -> Json:
        match method:
            case "initialize":
                return self._initialize(params)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.definition for tool in self._toolbox.tools.values()]}
            case "tools/call":
                return self._call(params)
            case "logging/setLevel" if self._talks:
                return self._set_level(params.get("level"))
            case _:
                return self._library.answer(method, params)

    def _initialize(self, params: Json) -> Json:
        asked, declared = params.get("protocolVersion"), params.get("capabilities")
        self.client.declared = cast(Json, declared) if isinstance(declared, dict) else {}
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[-1],
            "capabilities": {"tools": {}, **self._library.capabilities, **({"logging": {}} if self._talks else {})},
            "serverInfo": {
                "name": f"trunkline-demo-{self._toolbox.name}",
                "title": self._toolbox.title,
                "version": __version__,
            },
            "instructions": self._toolbox.instructions,
        }

    def _call(self, params: Json) -> Json:
        name, arguments = params.get("name"), params.get("arguments", {})
        tool = self._toolbox.tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "`arguments` is an object")
        try:
            return _shown(tool.call(cast(Json, arguments), Talk(self.client, _progress_token(params))))
        except Refusal as refusal:
            return {"content": [{"type": "text", "text": str(refusal)}], "isError": True}

    def _set_level(self, level: Any) -> Json:
        if not known_level(level):
            raise RpcError(INVALID_PARAMS, f"Unknown level: {level}")
        self.client.level = level
        return {}


def _progress_token(params: Json) -> Any:
    meta = params.get("_meta")
    return cast(Json, meta).get("progressToken") if isinstance(meta, dict) else None


def _shown(answer: Answer) -> Json:
    result: Json = {"content": [{"type": "text", "text": answer.text}], "isError": False}
    if answer.data is not None:
        result["structuredContent"] = answer.data
    return result


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _failed(number: str | int | None, code: int, message: str, data: Any = None) -> Json:
    error: Json = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": number, "error": error}


def _encoded(message: Mapping[str, Any] | list[Json] | None) -> bytes | None:
    return None if message is None else json.dumps(message, separators=(",", ":")).encode()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
