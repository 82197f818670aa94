"""A small billing service: three tools over HTTP, for whoever shows the right token.

    BILLING_TOKEN=change-me python3 billing.py 8090

The standard library only. `GET /tools` lists what there is; `POST /tools/execute` does it.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INVOICES: dict[int, dict[str, Any]] = {}


def schema(**properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }


TOOLS = [
    {
        "name": "invoice",
        "description": "Write an invoice",
        "inputSchema": schema(customer="string", amount="number"),
    },
    {
        "name": "show_invoice",
        "description": "Show one invoice",
        "inputSchema": schema(number="integer"),
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "total",
        "description": "What all invoices come to",
        "inputSchema": schema(),
        "annotations": {"readOnlyHint": True},
    },
]


class Refused(Exception):
    """What the agent is told instead of a result."""


def execute(tool: str, args: dict[str, Any], session: str) -> Any:
    if tool == "invoice":
        number = len(INVOICES) + 1
        INVOICES[number] = {"number": number, "customer": args["customer"], "amount": args["amount"], "by": session}
        return {"number": number}
    if tool == "show_invoice":
        if args["number"] not in INVOICES:
            raise Refused(f"there is no invoice {args['number']}")
        return {key: value for key, value in INVOICES[args["number"]].items() if key != "by"}
    if tool == "total":
        return f"{sum(invoice['amount'] for invoice in INVOICES.values()):.2f}"
    raise Refused(f"there is no tool {tool}")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply(200, TOOLS) if self.path == "/tools" else self.reply(404, {"error": "not here"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {os.environ['BILLING_TOKEN']}":
            self.reply(401, {"error": "the token is not right"})
            return
        try:
            call = json.loads(body)
            output = execute(call["tool"], call["args"], call["sessionId"])
        except Refused as refusal:
            self.reply(400, {"error": str(refusal)})
        except (KeyError, TypeError, ValueError) as fault:
            self.reply(400, {"error": f"the arguments are not right: {fault!r}"})
        else:
            self.reply(200, {"output": output, "metadata": {"invoices": len(INVOICES)}})

    def reply(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called in the base class
        """Quiet."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8090
    print(f"billing is at http://127.0.0.1:{port}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
