"""The programs a run needs beside the peers: load generator, backend, and a place to build them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / ".bench"
PLUGIN_BACKEND = HERE / "plugin_backend.py"
MCP_PROXY_PINS = HERE / "pins" / "mcp-proxy.txt"


class Unavailable(Exception):
    """This peer cannot be had on this machine; the message says why."""


@dataclass(frozen=True)
class Programs:
    loadgen: list[str]
    backend: list[str]
    native: bool

    def is_backend(self, pid: int) -> bool:
        """Whether that process is one of our backends, whoever started it."""
        scripts = [str(PLUGIN_BACKEND).encode(), *(backend.encode() for backend in self.backend[1:])]
        try:
            if self.native and str(Path(f"/proc/{pid}/exe").readlink()) == self.backend[0]:
                return True
            return any(word in scripts for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2])
        except OSError:
            return False


def prepare() -> Programs:
    """Builds the C programs where there is a compiler; else takes the Python ones."""
    BUILD.mkdir(exist_ok=True)
    names = [os.environ["CC"]] if "CC" in os.environ else ["cc", "gcc", "clang"]
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler and all(_compile(compiler, name) for name in ("loadgen", "backend")):
        return Programs([str(BUILD / "loadgen")], [str(BUILD / "backend")], native=True)
    loadgen, backend = ([sys.executable, str(HERE / "fallback" / name)] for name in ("loadgen.py", "backend.py"))
    return Programs(loadgen, backend, native=False)


def _compile(compiler: str, name: str) -> bool:
    source, program = HERE / "native" / f"{name}.c", BUILD / name
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return True
    command = [compiler, "-O2", "-o", str(program), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        print(f"{source.name} does not compile here, taking the Python one:\n{built.stderr}", file=sys.stderr)
    return built.returncode == 0


def mcp_proxy() -> Path:
    """`mcp-proxy` in an environment of its own: its dependencies exclude those of FastMCP."""
    home = BUILD / "mcp-proxy"
    program, stamp = home / "bin" / "mcp-proxy", home / ".pins"
    pins = MCP_PROXY_PINS.read_text()
    if program.exists() and stamp.exists() and stamp.read_text() == pins:
        return program
    print("setting up mcp-proxy …", flush=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    install = [*pip, "--require-hashes", "-r", str(MCP_PROXY_PINS)]
    try:
        for command in ([sys.executable, "-m", "venv", "--clear", str(home)], install):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except subprocess.CalledProcessError as failure:
        lines = failure.stderr.strip().splitlines() or ["no reason given"]
        raise Unavailable(f"mcp-proxy cannot be installed: {lines[-1]}") from failure
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise Unavailable(f"mcp-proxy cannot be installed: {failure}") from failure
    stamp.write_text(pins)
    return program
