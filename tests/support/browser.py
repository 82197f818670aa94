"""A headless Chromium, as `make` unpacked it. A page reports by itself what it found out."""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until

_FOLDER = Path(__file__).parents[2] / "tools" / "browser" / "program"
PROGRAM = str(_FOLDER / "chromium")
_FLAGS = ("--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


def environment() -> dict[str, str]:
    """With the libraries that came with it, where the system has none."""
    found = ctypes.util.find_library("nss3") is not None
    return dict(os.environ) if found else {**os.environ, "LD_LIBRARY_PATH": str(_FOLDER / "lib")}


@contextlib.contextmanager
def visiting(url: str, folder: Path) -> Iterator[None]:
    """The page is open meanwhile, in a browser that has never been anywhere."""
    command = [PROGRAM, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "--remote-debugging-port=0", url]
    with (folder / "browser.log").open("wb") as log:
        browser = subprocess.Popen(command, stdout=log, stderr=log, env=environment(), start_new_session=True)
    try:
        yield
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()


class Site:
    """A site of somebody's, on a port of this machine: it has one page, and hears what that posts to `/told`."""

    def __init__(self, page: str) -> None:
        told: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = page.encode() if self.path == "/" else b""
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                told.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.told = told
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def heard(self) -> str:
        """What the page told first."""
        return wait_until(lambda: self.told, "the page has told what it found", 60)[0]

    def __enter__(self) -> Site:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
