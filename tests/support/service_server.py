"""A service in a process of its own, good or misbehaving: `python -I -S service_server.py '{"port": 8090}'`.

What goes wrong is chosen by the name of the tool; `faults` in the options are those of its list of tools. It writes
down every request with its headers. The standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import zlib
from os.path import abspath, dirname
from typing import Any

sys.path.insert(0, dirname(dirname(dirname(abspath(__file__)))))

from tests.support.fault.http_connection import REASONS, Connection, Request
from tests.support.fault.journal import Journal

REASONS |= {403: "Forbidden", 418: "I'm a teapot", 500: "Internal Server Error", 503: "Service Unavailable"}
JSON = "application/json"
MIB = 1024 * 1024


def definition(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"name": name, "description": f"Does {name}", "inputSchema": schema}


TOOLS = [definition("echo", text="string"), definition("fail"), definition("sleep", seconds="number")]
TOOLS += [
    definition("gate", path="string"),
    definition("reflect"),
    definition("status", code="integer"),
    definition("answer", body="string"),
]
TOOLS += [definition(name) for name in ("hang", "rst", "fin", "half", "slow_body", "huge", "deep", "bad_utf8", "nan")]
TOOLS += [definition(name) for name in ("gzip_bomb", "redirect", "leak", "sliced", "empty")]


class Service:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.faults = options.get("faults", [])
        self.journal = Journal(options["journal"])

    def serve(self) -> None:
        with socket.create_server(("127.0.0.1", self.options["port"])) as listener:
            self.journal.write("start")
            with open(self.options["port_file"], "w") as file:
                file.write("up")
            while True:
                accepted, _ = listener.accept()
                sliced = bool(self.options.get("sliced"))
                connection = Connection(accepted, one_byte_at_a_time=sliced)
                threading.Thread(target=self.attend, args=[connection], daemon=True).start()

    def attend(self, connection: Connection) -> None:
        try:
            while (request := connection.read_request()) is not None:
                self.journal.write(
                    "request", method=request.method, target=request.target, headers=request.headers,
                    body=request.body.decode("utf-8", "replace"),
                )  # fmt: skip
                if request.method == "GET":
                    self.list_tools(connection)
                else:
                    self.execute(connection, request)
        except OSError:
            return
        finally:
            connection.close()

    def list_tools(self, connection: Connection) -> None:
        if "mute" in self.faults:
            connection.wait_closed(60)
        elif "no_list" in self.faults:
            connection.respond(404, b"{}", JSON)
        elif "list_500" in self.faults:
            connection.respond(500, f"out of order, {self.options['token']}".encode(), "text/plain")
        elif "bad_list" in self.faults:
            connection.respond(200, b'{"tools": 7}', JSON)
        else:
            connection.respond(200, json.dumps({"tools": self.options.get("tools", TOOLS)}).encode(), JSON)

    def execute(self, connection: Connection, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {self.options['token']}" and not self.options.get("any"):
            return connection.respond(401, b'{"error": "who are you?"}', JSON)
        call = json.loads(request.body)
        self.journal.write("call", tool=call["tool"], session=call["sessionId"], args=call["args"])
        tool = getattr(self, f"do_{call['tool']}", None)
        if tool is None:
            return connection.respond(404, b"no such tool", "text/plain")
        return tool(connection, call["args"])

    def give(self, connection: Connection, output: Any, **more: Any) -> None:
        connection.respond(200, json.dumps({"output": output, **more}).encode(), JSON)

    # -- good -----------------------------------------------------------------------------------------------------

    def do_echo(self, connection: Connection, args: dict[str, Any]) -> None:
        self.give(connection, args["text"] if set(args) == {"text"} else args)

    def do_reflect(self, connection: Connection, args: dict[str, Any]) -> None:
        self.give(connection, {"args": args, "n": [1, 2.50]}, metadata={"took": 3})

    def do_fail(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.respond(500, b"it broke \x1b[31mhere", "text/plain")

    def do_sleep(self, connection: Connection, args: dict[str, Any]) -> None:
        if connection.wait_closed(args["seconds"]):
            self.journal.write("cancelled")
        else:
            self.give(connection, "slept")

    def do_gate(self, connection: Connection, args: dict[str, Any]) -> None:
        """Answers once the file `path` is there."""
        while not os.path.exists(args["path"]):
            if connection.wait_closed(0.02):
                return self.journal.write("cancelled")
        return self.give(connection, "let through")

    # -- bad ------------------------------------------------------------------------------------------------------

    def do_hang(self, connection: Connection, args: dict[str, Any]) -> None:
        self.do_sleep(connection, {"seconds": 600})

    def do_status(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.respond(args["code"], b"the body of the status", "text/plain")

    def do_answer(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.respond(200, args["body"].encode("utf-8", "surrogateescape"), JSON)

    def do_empty(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.respond(200, b"", JSON)

    def do_leak(self, connection: Connection, args: dict[str, Any]) -> None:
        token = self.options["token"]
        split = "\0".join(token)
        leaked = f"your token is {token} or {split} " + "x" * 10_000
        connection.respond(500, leaked.encode(), "text/plain")

    def do_redirect(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.respond(307, b"", JSON, {"Location": self.options["redirect_to"]})

    def do_rst(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.reset()

    def do_fin(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.close()

    def do_half(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.write(connection.head(200, JSON, {"Content-Length": "1000"}) + b'{"output": "ha')
        connection.close()

    def do_slow_body(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.write(connection.head(200, JSON, {"Content-Length": "100000"}))
        for _ in range(1000):
            connection.write(b" ")
            time.sleep(0.05)

    def do_huge(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.respond(200, b'{"output": "%b"}' % (b"x" * (17 * MIB)), JSON)

    def do_gzip_bomb(self, connection: Connection, args: dict[str, Any]) -> None:
        squeezed = zlib.compressobj(9, zlib.DEFLATED, 31)
        body = b"".join([squeezed.compress(b" " * MIB) for _ in range(64)]) + squeezed.flush()
        connection.respond(200, body, JSON, {"Content-Encoding": "gzip"})

    def do_deep(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.respond(200, b'{"output": %b1%b}' % (b"[" * 100_000, b"]" * 100_000), JSON)

    def do_bad_utf8(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.respond(200, b'{"output": "\xff"}', JSON)

    def do_nan(self, connection: Connection, args: dict[str, Any]) -> None:
        connection.respond(200, b'{"output": NaN}', JSON)


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    assert os.path.isabs(options["journal"])
    Service(options).serve()
