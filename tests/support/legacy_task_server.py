"""A server of 2025-11-25 over stdio whose only tool must be run as a task; every copy of it gives the same ids."""

from __future__ import annotations

import json
import sys
from typing import Any

RELATED = "io.modelcontextprotocol/related-task"
TASKS = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
TOOL = {"name": "long", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}


class LegacyTaskServer:
    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Raises KeyError for what it does not know, and ValueError for an unknown task."""
        if method == "initialize":
            info = {"name": self.name, "version": "1"}
            capabilities = {"tools": {}, "tasks": TASKS}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        if method == "tools/list":
            return {"tools": [TOOL]}
        if method == "tools/call":
            task_id = f"task-{len(self.tasks) + 1}"
            self.tasks[task_id] = {"taskId": task_id, "status": "working", "ttl": params["task"]["ttl"]}
            return {"task": self.tasks[task_id]}
        return {} if method == "ping" else self.about(method, params)

    def about(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not method.startswith("tasks/"):
            raise KeyError(method)
        task = self.tasks.get(params["taskId"])
        if task is None:
            raise ValueError(params["taskId"])
        if method == "tasks/result":
            task["status"] = "completed"
            return {"content": [{"type": "text", "text": self.name}], "_meta": {RELATED: {"taskId": task["taskId"]}}}
        if method == "tasks/cancel":
            task["status"] = "cancelled"
        return task

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"result": self.answer(message["method"], message.get("params", {}))}
        except KeyError:
            return {"error": {"code": -32601, "message": "unknown method, or no task"}}
        except ValueError:
            return {"error": {"code": -32602, "message": "unknown task"}}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    server = LegacyTaskServer(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            say({"id": message["id"], **server.reply(message)})
        if message.get("method") == "tools/call":
            for task in server.tasks.values():
                say({"method": "notifications/tasks/status", "params": task})


if __name__ == "__main__":
    main()
