"""A server of 2026-07-28 that runs its tools as tasks, over stdio or HTTP, with ids that every copy of it gives alike.

    task_server.py NAME [PORT]

`long` makes a task that `tasks/update` completes, `ask` one that asks something first, `rude` one whether the client
knows tasks or not, and `hang_up` closes every subscription and completes the tasks behind their backs.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

META = "io.modelcontextprotocol/"
TASKS = META + "tasks"
CAPABILITIES = {"tools": {}, "extensions": {TASKS: {}}}
NOT_KEPT = {"ttlMs": 0, "cacheScope": "private"}
HINTS = {"annotations": {"readOnlyHint": True}}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}, **HINTS} for name in ("long", "ask", "rude", "hang_up")]
QUESTION = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who?", "requestedSchema": {}}}
NAMED = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
Send = Callable[[dict[str, Any]], None]


class Refusal(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({"data": data} if data is not None else {})


class Listener:
    """One open `subscriptions/listen`."""

    def __init__(self, request_id: Any, task_ids: set[str], send: Send, hang_up: Callable[[], None]) -> None:
        self.meta = {META + "subscriptionId": request_id}
        self.task_ids = task_ids
        self.send = send
        self.hang_up = hang_up

    def say(self, method: str, params: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": self.meta}})


class TaskServer:
    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: dict[str, dict[str, Any]] = {}
        self.listeners: dict[Any, Listener] = {}

    # -- requests -------------------------------------------------------------------------------------------------

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, **NOT_KEPT}
        if method == "tools/list":
            return {"tools": TOOLS, **NOT_KEPT}
        if method == "tools/call" and params["name"] in ("rude", "hang_up"):
            return self.make_task() if params["name"] == "rude" else self.hang_up()
        self.check_declared(params)
        if method == "tools/call":
            return self.make_task(asks=params["name"] == "ask")
        return self.about(method, params)

    def check_declared(self, params: dict[str, Any]) -> None:
        if TASKS not in params["_meta"][META + "clientCapabilities"].get("extensions", {}):
            raise Refusal(-32021, "declare tasks", {"requiredCapabilities": {"extensions": {TASKS: {}}}})

    def make_task(self, *, asks: bool = False) -> dict[str, Any]:
        task_id = f"task-{len(self.tasks) + 1}"
        task = self.tasks[task_id] = {"taskId": task_id, "status": "working", "ttlMs": None, "server": self.name}
        if asks:
            task |= {"status": "input_required", "inputRequests": {"who": QUESTION}}
        return {**task, "resultType": "task"}

    def about(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        task = self.tasks.get(params["taskId"])
        if task is None:
            raise Refusal(-32602, f"unknown task {params['taskId']}")
        if method == "tasks/get":
            return {**task, "pid": os.getpid()}
        if method == "tasks/cancel":
            self.change(task, status="cancelled")
        elif method == "tasks/update":
            task.pop("inputRequests", None)
            done = {"content": [], "structuredContent": params["inputResponses"]}
            self.change(task, status="completed", result=done)
        else:
            raise KeyError(method)
        return {}

    def change(self, task: dict[str, Any], **changes: Any) -> None:
        task |= changes
        for listener in list(self.listeners.values()):
            if task["taskId"] in listener.task_ids:
                listener.say("notifications/tasks", task)

    # -- subscriptions --------------------------------------------------------------------------------------------

    def listen(self, request_id: Any, params: dict[str, Any], send: Send, hang_up: Callable[[], None]) -> None:
        wanted = params["notifications"].get("taskIds", [])
        if wanted:
            self.check_declared(params)
        listener = Listener(request_id, {task_id for task_id in wanted if task_id in self.tasks}, send, hang_up)
        self.listeners[request_id] = listener
        honoured = {"taskIds": sorted(listener.task_ids)} if listener.task_ids else {}
        listener.say("notifications/subscriptions/acknowledged", {"notifications": honoured})
        for task_id in sorted(listener.task_ids):
            if "inputRequests" in self.tasks[task_id]:
                listener.say("notifications/tasks", self.tasks[task_id])

    def hang_up(self) -> dict[str, Any]:
        listeners, self.listeners = self.listeners, {}
        for task in self.tasks.values():
            self.change(task, status="completed", result={"content": []})
        for listener in listeners.values():
            listener.hang_up()
        return {"content": [], "structuredContent": {"closed": len(listeners)}}

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            result = self.answer(message["method"], message.get("params", {}))
            return reply | {"result": {"resultType": "complete", **result}}
        except Refusal as refusal:
            return reply | {"error": refusal.error}
        except KeyError:
            return reply | {"error": {"code": -32601, "message": "unknown method"}}


# -- stdio ------------------------------------------------------------------------------------------------------------


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def serve_stdio(server: TaskServer) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        number = message.get("id")
        if message["method"] == "notifications/cancelled":
            server.listeners.pop(message["params"]["requestId"], None)
        elif message["method"] == "subscriptions/listen":
            over = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
            try:
                server.listen(number, message["params"], say, lambda over=over: say(over))
            except Refusal as refusal:
                say({"jsonrpc": "2.0", "id": number, "error": refusal.error})
        elif number is not None:
            say(server.reply(message))


# -- HTTP -------------------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tasks: TaskServer
    lock = threading.Lock()

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            self.respond(202, b"")
        elif self.header("mcp-name") != message["params"].get(NAMED.get(message["method"], ""), ""):
            wrong = {"code": -32020, "message": "`Mcp-Name` differs from the body"}
            self.respond(400, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": wrong}).encode())
        elif message["method"] == "subscriptions/listen":
            self.listen(message)
        else:
            with self.lock:
                reply = self.tasks.reply(message)
            self.respond(400 if "error" in reply else 200, json.dumps(reply).encode())

    def header(self, name: str) -> str:
        value = self.headers.get(name, "")
        encoded = value.startswith("=?base64?")
        return base64.b64decode(value.removeprefix("=?base64?").removesuffix("?=")).decode() if encoded else value

    def respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def listen(self, message: dict[str, Any]) -> None:
        out: queue.Queue[dict[str, Any] | None] = queue.Queue()
        with self.lock:
            self.tasks.listen(message["id"], message["params"], out.put, lambda: out.put(None))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        while (event := out.get()) is not None:
            try:
                self.wfile.write(b"data: %b\n\n" % json.dumps(event).encode())
                self.wfile.flush()
            except OSError:
                return
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


def main() -> None:
    server = TaskServer(sys.argv[1])
    if len(sys.argv) == 2:
        serve_stdio(server)
        return
    Handler.tasks = server
    http = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    http.daemon_threads = True
    http.serve_forever()


if __name__ == "__main__":
    main()
