"""A server of 2026-07-28 over stdio whose only tool runs as a task, with ids that every copy of it gives alike."""

from __future__ import annotations

import json
import sys
from typing import Any

META = "io.modelcontextprotocol/"
TASKS = META + "tasks"
CAPABILITIES = {"tools": {}, "extensions": {TASKS: {}}}
NOT_KEPT = {"ttlMs": 0, "cacheScope": "private"}
TOOL = {"name": "long", "inputSchema": {"type": "object"}}


class Refusal(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({"data": data} if data is not None else {})


class TaskServer:
    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "server/discover":
            return {
                "supportedVersions": ["2026-07-28"],
                "capabilities": CAPABILITIES,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        if method == "tools/list":
            return {"tools": [TOOL], **NOT_KEPT}
        declared = params["_meta"][META + "clientCapabilities"].get("extensions", {})
        if TASKS not in declared:
            raise Refusal(-32021, "declare tasks", {"requiredCapabilities": {"extensions": {TASKS: {}}}})
        if method == "tools/call":
            task_id = f"task-{len(self.tasks) + 1}"
            self.tasks[task_id] = {"taskId": task_id, "status": "working", "ttlMs": None}
            return self.tasks[task_id] | {"resultType": "task"}
        return self.about(method, params)

    def about(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        task = self.tasks.get(params["taskId"])
        if task is None:
            raise Refusal(-32602, f"unknown task {params['taskId']}")
        if method == "tasks/get":
            return task | {"server": self.name}
        if method == "tasks/cancel":
            task["status"] = "cancelled"
        elif method == "tasks/update":
            task["status"] = "completed"
            task["result"] = {"content": [], "structuredContent": params["inputResponses"]}
        return {}


def main() -> None:
    server = TaskServer(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = {"resultType": "complete", **server.answer(message["method"], message.get("params", {}))}
        except Refusal as refusal:
            reply["error"] = refusal.error
        except KeyError:
            reply["error"] = {"code": -32601, "message": "unknown method"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
