"""An MCP server over stdio that looks into the processes above it, and takes more than its share of the machine.

prying_server.py MARK
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17
_KEPT: list[Any] = []


def look(arguments: dict[str, Any]) -> dict[str, Any]:
    """What can be read of the supervisor and of the gateway, and of this process itself."""
    supervisor = os.getppid()
    gateway = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
    return {name: _readable(pid) for name, pid in (("supervisor", supervisor), ("gateway", gateway))} | {
        "own": "CANARY_OF_SERVER" in Path("/proc/self/environ").read_text()
    }


def _readable(pid: int) -> list[str]:
    found: list[str] = []
    for name in ("environ", "mem", "maps", "fd", "cwd"):
        try:
            path = Path(f"/proc/{pid}/{name}")
            os.listdir(path) if name in ("fd", "cwd") else os.close(os.open(path, os.O_RDONLY))
        except OSError:
            continue
        found.append(name)
    libc = ctypes.CDLL(None)
    if libc.ptrace(_PTRACE_ATTACH, pid, None, None) == 0:
        os.waitpid(pid, 0)
        libc.ptrace(_PTRACE_DETACH, pid, None, None)
        found.append("ptrace")
    return found


def eat(arguments: dict[str, Any]) -> str:
    _KEPT.append(os.urandom(1 << 20) * arguments["mb"])
    return _rest(arguments)


def spread(arguments: dict[str, Any]) -> str:
    """Processes, each in a session of its own that does not end with this one."""
    for _ in range(arguments["processes"]):
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
    return _rest(arguments)


def share(arguments: dict[str, Any]) -> str:
    """The same memory in many processes, all of which touch all of it."""
    memory = mmap.mmap(-1, arguments["mb"] << 20)
    memory.write(os.urandom(1 << 20) * arguments["mb"])
    _KEPT.append(memory)
    touched, tell = os.pipe()
    for _ in range(arguments["processes"]):
        if os.fork() == 0:
            sum(memory[:: mmap.PAGESIZE])
            os.write(tell, b".")
            time.sleep(600)
            os._exit(0)
    for _ in range(arguments["processes"]):
        os.read(touched, 1)
    return _rest(arguments)


def hide(arguments: dict[str, Any]) -> str:
    """Daemons that hide whose they are."""
    program = [sys.executable, str(Path(__file__).with_name("daemons.py")), sys.argv[1]]
    asked = [str(arguments[name]) for name in ("how", "count", "mb")]
    subprocess.run([*program, *asked], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return _rest(arguments)


def _rest(arguments: dict[str, Any]) -> str:
    time.sleep(arguments.get("then_s", 0))
    return str(os.getpid())


_TOOLS = {tool.__name__: tool for tool in (look, eat, spread, share, hide)}


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "prying", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in _TOOLS]}
    if method == "tools/call":
        answer = _TOOLS[params["name"]](params.get("arguments") or {})
        return {"content": [{"type": "text", "text": answer if isinstance(answer, str) else json.dumps(answer)}]}
    return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        known = message["method"] in ("initialize", "ping", "tools/list", "tools/call")
        outcome: dict[str, Any] = {"error": {"code": -32601, "message": "unknown"}}
        if known:
            outcome = {"result": _answer(message["method"], message.get("params") or {})}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
