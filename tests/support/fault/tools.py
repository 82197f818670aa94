"""Tools of a fault server that answer properly, if late, often or after damage elsewhere. By name:

echo, wire, verbatim, nonce, sleep, gate, hang, late, counter, pid, env, blob, fail, refuse, progress, progress_forever,
notes, grow, fancy, spawn, crash, deaf, stderr_flood. Those that ask their client something are in asking.py, and what
breaks the protocol is in protocol_violations.py.
"""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Callable
from typing import Any

from tests.support.fault import asking, protocol_violations
from tests.support.fault.rpc import Exchange

Tool = Callable[[Exchange], None]

FANCY = (
    b'{"name":"fancy","title":"F\\u00e4ncy \xe2\x9c\xa8","description":"every field a server may send",'
    b'"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",'
    b'"properties":{"z":{"$ref":"#/$defs/z"},"a":{"type":"integer","maximum":123456789012345678901234567890}},'
    b'"$defs":{"z":{"$anchor":"z","const":1.10}}},"outputSchema":{"type":"object"},'
    b'"annotations":{"readOnlyHint":true,"x-vendor":1e5},"icons":[{"src":"data:image/png;base64,AA=="}],'
    b'"_meta":{"vendor/key":null},"x-unknown":{"deep":[1,2.50,-0.0]}}'
)
"""A definition with unusual spelling throughout: what a client is shown can be compared byte for byte."""


def table() -> dict[str, Tool]:
    own: tuple[Tool, ...] = (
        echo,
        wire,
        verbatim,
        nonce,
        sleep,
        gate,
        hang,
        late,
        counter,
        pid,
        env,
        blob,
        fail,
        refuse,
        progress,
        progress_forever,
        notes,
        grow,
        fancy,
        spawn,
        crash,
        deaf,
        stderr_flood,
    )
    return {tool.__name__: tool for tool in own} | asking.table() | protocol_violations.table()


def definition(name: str) -> bytes:
    if name == "fancy":
        return FANCY
    return json.dumps({"name": name, "description": f"fault: {name}", "inputSchema": {"type": "object"}}).encode()


INLINE = frozenset({"echo", "wire", "verbatim", "nonce", "counter", "pid", "fancy", "deaf"})
"""Tools that never wait: a transport may run them without a thread."""


def echo(exchange: Exchange) -> None:
    exchange.text(json.dumps(exchange.args), **exchange.args)


def wire(exchange: Exchange) -> None:
    """The request exactly as it arrived."""
    exchange.text(base64.b64encode(exchange.raw).decode())


def verbatim(exchange: Exchange) -> None:
    """`result`, the base64 of any bytes, is sent as the result without being looked at."""
    if exchange.args.get("progress_first"):
        exchange.progress(1)
    exchange.answer_raw(base64.b64decode(exchange.args["result"]))


def nonce(exchange: Exchange) -> None:
    """Runs once, for the record: `start`, a `delay`, `done`, then the nonce comes back."""
    given = exchange.args["nonce"]
    exchange.server.ledger.note("start", given)

    def finish() -> None:
        exchange.server.ledger.note("done", given)
        exchange.text(given, nonce=given)

    delay = exchange.args.get("delay", 0)
    if delay:
        exchange.after(delay, finish)
    else:
        finish()


def sleep(exchange: Exchange) -> None:
    """Well behaved: no answer once it was cancelled."""
    if not exchange.pause(exchange.args.get("seconds", 1)):
        exchange.text("slept")


def gate(exchange: Exchange) -> None:
    """Like `sleep`, until the file `path` is there."""
    while not os.path.exists(exchange.args["path"]):
        if exchange.pause(0.02):
            return
    exchange.text("let through")


def hang(exchange: Exchange) -> None:
    while not exchange.pause(60):
        pass


def late(exchange: Exchange) -> None:
    """Ignores that it was cancelled and answers all the same, `after` seconds later."""
    exchange.pause(exchange.args.get("seconds", 60))
    exchange.cancelled.clear()
    exchange.pause(exchange.args.get("after", 0))
    exchange.text("late")


def counter(exchange: Exchange) -> None:
    """State per process over stdio, per session over HTTP."""
    exchange.session.counter += exchange.args.get("add", 0)
    exchange.text(str(exchange.session.counter), count=exchange.session.counter)


def pid(exchange: Exchange) -> None:
    exchange.text(str(os.getpid()), pid=os.getpid(), session=exchange.session.name)


def env(exchange: Exchange) -> None:
    exchange.text("environment", **dict(os.environ))


def blob(exchange: Exchange) -> None:
    """A proper answer of at least `bytes` bytes."""
    exchange.text("x" * int(exchange.args["bytes"]))


def fail(exchange: Exchange) -> None:
    exchange.answer({"content": [{"type": "text", "text": "the tool failed"}], "isError": True})


def refuse(exchange: Exchange) -> None:
    """A JSON-RPC error of the server's own."""
    exchange.error(-32050, "refused by the tool", {"why": ["because", 1.5]})


def progress(exchange: Exchange) -> None:
    for step in range(1, int(exchange.args.get("steps", 3)) + 1):
        exchange.progress(step, total=10, message=f"step {step}")
        if exchange.pause(exchange.args.get("interval", 0.05)):
            return
    exchange.text("done")


def progress_forever(exchange: Exchange) -> None:
    step = 0
    while not exchange.pause(exchange.args.get("interval", 0.1)):
        step += 1
        exchange.progress(step)


def notes(exchange: Exchange) -> None:
    """Notifications that nobody asked for, between the request and its answer."""
    exchange.notify("notifications/message", {"level": "info", "data": "between"})
    exchange.notify("notifications/nobody/knows", {"x": 1})
    exchange.notify("notifications/progress", {"progressToken": "never-given", "progress": 1})
    exchange.text("noted")


def grow(exchange: Exchange) -> None:
    """One tool more (`name`), one less (`lose`), and a word about it."""
    name: Any = exchange.args.get("name")
    if name:
        exchange.server.tools[name] = echo
    exchange.server.tools.pop(exchange.args.get("lose", ""), None)
    exchange.server.broadcast("notifications/tools/list_changed")
    exchange.text("grown")


def fancy(exchange: Exchange) -> None:
    exchange.text("fancy")


def spawn(exchange: Exchange) -> None:
    """A child that outlives its parent if it can."""
    child = spawn_child(setsid=bool(exchange.args.get("setsid")))
    exchange.server.journal.write("spawned", child=child)
    exchange.text(str(child), pid=child)


def spawn_child(*, setsid: bool) -> int:
    stubborn = ["sh", "-c", "trap '' TERM HUP INT; sleep 1000; sleep 1000"]
    command = stubborn if setsid else ["sleep", "1000"]
    if setsid:
        return os.posix_spawnp(command[0], command, os.environ, setsid=True)
    return os.posix_spawnp(command[0], command, os.environ)


def crash(exchange: Exchange) -> None:
    """The process ends: `when` before or after the work was done, or in the middle of it."""
    when = exchange.args.get("when", "before")
    ledger, given = exchange.server.ledger, exchange.args.get("nonce", "")
    if when != "before":
        ledger.note("start", given)
    if when == "after":
        ledger.note("done", given)
    exchange.server.journal.write("crash")
    if exchange.args.get("quietly"):
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def deaf(exchange: Exchange) -> None:
    """Answers this once, then reads no more."""
    exchange.text("deaf now")
    exchange.server.deaf = True


def stderr_flood(exchange: Exchange) -> None:
    flood_stderr()
    exchange.text("flooded")


def flood_stderr() -> None:
    line = b"noise " * 170 + b"\n"
    for _ in range(10 * 1024):
        os.write(2, line)
