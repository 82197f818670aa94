"""The protocol part of a fault server, independent of the transport."""

from __future__ import annotations

import base64
import json
import os
import random
import threading
import time
from typing import Any

from tests.support.fault.journal import Journal, Ledger
from tests.support.fault.options import Options

MODERN = "2026-07-28"
META_VERSION = "io.modelcontextprotocol/protocolVersion"
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


class Session:
    """What one client of the server has: its counter, its calls in flight, what it was asked."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.counter = 0
        self.running: dict[Any, Exchange] = {}
        self.expected: dict[Any, threading.Event] = {}
        self.answers: dict[Any, dict[str, Any]] = {}

    def expect(self, request_id: Any) -> threading.Event:
        self.expected[request_id] = threading.Event()
        return self.expected[request_id]

    def answered(self, message: dict[str, Any]) -> None:
        expected = self.expected.pop(message["id"], None)
        if expected is not None:
            self.answers[message["id"]] = message
            expected.set()


class Exchange:
    """One request and the means to answer it, well or badly. A transport provides the last group of methods."""

    def __init__(self, server: Server, session: Session, raw: bytes, message: dict[str, Any]) -> None:
        self.server = server
        self.session = session
        self.raw = raw
        self.message = message
        self.cancelled = threading.Event()

    @property
    def id(self) -> Any:
        return self.message.get("id")

    @property
    def params(self) -> dict[str, Any]:
        return self.message.get("params") or {}

    @property
    def args(self) -> dict[str, Any]:
        return self.params.get("arguments") or {}

    @property
    def modern(self) -> bool:
        return META_VERSION in (self.params.get("_meta") or {})

    @property
    def progress_token(self) -> Any:
        return (self.params.get("_meta") or {}).get("progressToken")

    def envelope(self, member: str, value: bytes, *, id: Any = ...) -> bytes:  # noqa: A002
        given = json.dumps(self.id if id is ... else id).encode()
        return b'{"jsonrpc":"2.0","id":' + given + b',"' + member.encode() + b'":' + value + b"}"

    def answer(self, result: dict[str, Any]) -> None:
        if self.modern:
            result = {"resultType": "complete", **result}
        self.answer_raw(json.dumps(result).encode())

    def answer_raw(self, result: bytes) -> None:
        self.send(self.envelope("result", result), last=True)

    def text(self, text: str, /, **structured: Any) -> None:
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if structured:
            result["structuredContent"] = structured
        self.answer(result)

    def error(self, code: int, message: str, data: Any = None) -> None:
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        self.send(self.envelope("error", json.dumps(error).encode()), last=True)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def progress(self, value: float, **more: Any) -> None:
        if self.progress_token is not None:
            self.notify("notifications/progress", {"progressToken": self.progress_token, "progress": value, **more})

    def send(self, data: bytes, *, last: bool = False) -> None:
        """One message to the client; `last` when it is the answer."""
        raise NotImplementedError

    def pause(self, seconds: float) -> bool:
        """Wait; True when the client cancelled or left meanwhile."""
        raise NotImplementedError

    def after(self, seconds: float, then: Any) -> None:
        """Do something later, cheaply enough for thousands of calls."""
        raise NotImplementedError

    def half(self) -> None:
        """Half a message, then the end of the connection."""
        raise NotImplementedError

    def reset(self) -> None:
        """The connection breaks off without an answer, as roughly as the transport can."""
        raise NotImplementedError

    def hang_up(self) -> None:
        """The connection ends in order, without an answer."""
        raise NotImplementedError


class Server:
    def __init__(self, options: Options) -> None:
        from tests.support.fault import tools

        self.options = options
        self.journal = Journal(options.journal)
        self.ledger = Ledger(options.ledger)
        self.tools = tools.table() | {definition["name"]: tools.echo for definition in options.tools}
        self.shared = Session()
        self.journal.write("start")

    def received(self, exchange: Exchange) -> None:
        """Every message of a client ends up here, requests and notifications alike."""
        self.journal.write("message", raw=base64.b64encode(exchange.raw).decode(), session=exchange.session.name)
        if self.options.latency:
            mean, spread = self.options.latency
            time.sleep(max(0.0, mean + random.uniform(-spread, spread)))
        method = exchange.message.get("method")
        if "id" not in exchange.message:
            self._notification(exchange, str(method))
        elif method is not None:
            self._request(exchange, str(method))
        else:
            exchange.session.answered(exchange.message)

    def _notification(self, exchange: Exchange, method: str) -> None:
        if method != "notifications/cancelled":
            return
        target = exchange.params.get("requestId")
        self.journal.write("cancelled", requestId=target, session=exchange.session.name)
        running = exchange.session.running.get(target)
        if running is not None:
            running.cancelled.set()

    def _request(self, exchange: Exchange, method: str) -> None:
        if "mute" in self.options.faults:
            return
        handlers = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda exchange: exchange.answer({}),
            "tools/list": self._list,
            "tools/call": self._call,
        }
        handler = handlers.get(method)
        if handler is None:
            exchange.error(-32601, f"unknown method `{method}`")
        else:
            handler(exchange)

    def _initialize(self, exchange: Exchange) -> None:
        params = exchange.params
        self.journal.write("initialize", params=params, session=exchange.session.name)
        if "exit_in_handshake" in self.options.faults:
            os._exit(3)
        if "mute_initialize" in self.options.faults:
            return
        if self.options.era == "modern":
            exchange.error(-32022, "only 2026-07-28", {"supported": [MODERN], "requested": params["protocolVersion"]})
            return
        asked = params.get("protocolVersion")
        version = asked if asked in LEGACY_VERSIONS and asked <= self.options.version else self.options.version
        exchange.answer(
            {
                "protocolVersion": version,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "fault", "version": "1"},
            }
        )

    def _discover(self, exchange: Exchange) -> None:
        self.journal.write("discover")
        if "exit_in_handshake" in self.options.faults:
            os._exit(3)
        if "ignore_discover" in self.options.faults:
            return
        if self.options.era == "legacy":
            exchange.error(-32601, "unknown method `server/discover`")
            return
        exchange.answer(
            {
                "supportedVersions": [MODERN],
                "capabilities": {"tools": {"listChanged": True}},
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "fault", "version": "1"}},
            }
        )

    def _list(self, exchange: Exchange) -> None:
        from tests.support.fault import tools

        if "endless_lists" in self.options.faults:
            page = int(exchange.params.get("cursor") or 0)
            tail = f'],"nextCursor":"{page + 1}"'
            definitions = [tools.definition(f"page{page}")]
        else:
            tail = "]"
            given = {definition["name"]: json.dumps(definition).encode() for definition in self.options.tools}
            definitions = [given.get(name) or tools.definition(name) for name in sorted(self.tools)]
        if exchange.modern:
            tail += ',"resultType":"complete","ttlMs":0,"cacheScope":"public"'
        exchange.answer_raw(b'{"tools":[' + b",".join(definitions) + tail.encode() + b"}")

    def _call(self, exchange: Exchange) -> None:
        name = exchange.params.get("name", "")
        self.journal.write("call", id=exchange.id, tool=name, session=exchange.session.name)
        tool = self.tools.get(name)
        if tool is None or not isinstance(exchange.args, dict):
            exchange.error(-32602, f"unknown tool `{name}`, or arguments that are no object")
            return
        exchange.session.running[exchange.id] = exchange
        self.run(exchange, tool)

    def run(self, exchange: Exchange, tool: Any) -> None:
        """Run one tool to its end; transports that must go on reading meanwhile do it in a thread."""
        try:
            tool(exchange)
        except OSError as error:
            self.journal.write("io_error", id=exchange.id, error=str(error))
        finally:
            exchange.session.running.pop(exchange.id, None)

    def broadcast(self, method: str) -> None:
        """A notification that belongs to no request, to every client that listens."""
        raise NotImplementedError
