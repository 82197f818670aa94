"""The gateway under test, as a program: a configuration, a process, its log, and what it reports about itself."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.client import HttpClient, ModernClient
from tests.support.http_wire import fetch
from tests.support.ports import free_port
from tests.support.processes import Process, descendants
from tests.support.stdio_client import StdioClient
from tests.support.trust import trust
from tests.support.waiting import at_most, wait_until

TRUNKLINE = str(Path(sys.executable).with_name("trunkline"))
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")


def write_config(folder: Path, *sources: dict[str, Any], **gateway: Any) -> Path:
    """A configuration file in the folder, which is its state directory's parent as well, and the home of a user who
    trusts it: commands that are run there find it.

    Without the gateway's own tools, unless a test asks for them: lists are compared with what servers offer.
    """
    merged: dict[str, Any] = {}
    for source in sources:
        merged |= source
    settings: dict[str, Any] = {"state_dir": str(folder / "state"), "meta_tools": False, **gateway}
    path = folder / "trunkline.json"
    path.write_text(json.dumps({"gateway": settings, "sources": merged}, indent=2))
    trust(path, {"HOME": str(folder)})
    return path


class Gateway:
    """`trunkline up` from `with` to `with`'s end: ready on entry, gone without a trace on exit.

    Its log may not hold a traceback, whatever the test did to it.
    """

    _program: tuple[str, ...] = (TRUNKLINE,)

    def __init__(
        self,
        folder: Path,
        *sources: dict[str, Any],
        prelude: str = "",
        program: tuple[str, ...] = (TRUNKLINE,),
        **gateway: Any,
    ) -> None:
        self.port = free_port()
        self.config = write_config(folder, *sources, listen=f"127.0.0.1:{self.port}", **gateway)
        self.log_path = folder / "gateway.log"
        self._prelude = prelude
        self._program = program
        self.process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def start(self) -> Gateway:
        command = [*self._program, "up", "-c", str(self.config)]
        if self._prelude:
            command = ["sh", "-c", f'{self._prelude}; exec "$@"', "sh", *command]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until(self._answers, "the gateway answers /healthz", 30)
        except BaseException:
            print(self.log)
            self.kill()
            raise
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"the gateway ended with {self.process.returncode}:\n{self.log}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=at_most(5)) as reply:
                return reply.status == 200
        except OSError:  # refused, reset, or too slow for now
            return False

    def terminate(self, seconds: float = 60) -> int:
        """SIGTERM, and the exit status it led to."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(at_most(seconds))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def descendants(self) -> list[Process]:
        return descendants(self.process.pid)

    def stop(self) -> None:
        """End it in order, and be strict about how it went."""
        if self.process.poll() is None:
            assert self.terminate() == 0
        assert "Traceback (most recent call last)" not in self.log
        assert "was never retrieved" not in self.log

    def __enter__(self) -> Gateway:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.stop()
        except BaseException:
            print(self.log[-20_000:])
            raise
        finally:
            if error is not None:
                print(self.log[-20_000:])
            if self.process.poll() is None:
                self.kill()

    def client(self, **keys: Any) -> HttpClient:
        return HttpClient(self.port, **keys)

    def modern(self, **keys: Any) -> ModernClient:
        return ModernClient(self.port, **keys)

    async def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name and labels."""
        reply = await fetch(self.port, "GET", "/metrics")
        assert reply.status == 200
        samples: dict[str, float] = {}
        for line in reply.body.decode().splitlines():
            found = _SAMPLE.match(line)
            if found:
                samples[f"{found[1]}{{{found[2] or ''}}}"] = float(found[3])
        return samples

    async def counted(self, counter: str, source: str) -> float:
        """How often something happened with one source."""
        samples = await self.metrics()
        return samples.get(f'trunkline_{counter}_total{{source="{source}"}}', 0)


def stdio_gateway(folder: Path, *sources: dict[str, Any], **gateway: Any) -> StdioClient:
    """A client of `trunkline stdio` with this configuration, whatever else runs in the folder."""
    config = write_config(folder, *sources, **gateway)
    return StdioClient([TRUNKLINE, "stdio", "--alone", "-c", str(config)], folder / "gateway.log")
