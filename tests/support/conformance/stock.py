"""Programs that are ready to run: their modules are loaded once, and each start is a fork.

The harness makes a gateway start its backend dozens of times, and loading the SDK takes most of a second each time.
What is started is `fetch.py`; it has the program run with its own streams.
"""

from __future__ import annotations

import marshal
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tests.support.processes import LASTING
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
FETCH = [sys.executable, "-I", "-S", str(Path(__file__).with_name("fetch.py"))]


class Stock:
    """Stands from `with` to its end; each module has a `main` that reads `sys.argv`."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules

    def __enter__(self) -> Stock:
        self._folder = Path(tempfile.mkdtemp(prefix="tl", dir="/tmp"))
        self._socket = self._folder / "stock"
        command = [sys.executable, "-m", "tests.support.conformance.stock", str(self._socket), *self._modules]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        LASTING.add(self._process.pid)
        wait_until(self._is_open, "the stock is open", 60)
        return self

    def _is_open(self) -> bool:
        assert self._process.poll() is None, "the stock has closed"
        return self._socket.exists()

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        LASTING.discard(self._process.pid)
        shutil.rmtree(self._folder)

    def command(self, module: str, *arguments: str) -> list[str]:
        return [*FETCH, str(self._socket), module, *arguments]


# The process that has everything loaded -------------------------------------------------------------------------------


def keep(path: str, *names: str) -> None:
    modules = {name: import_module(name) for name in names}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.new")
        listening.listen(64)
        os.rename(f"{path}.new", path)
        while True:
            customer, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                os._exit(serve(customer, modules))
            customer.close()


def serve(customer: socket.socket, modules: dict[str, ModuleType]) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(customer, 4, 3)
    with customer.makefile("rb") as order:
        module, arguments, folder, environment = marshal.loads(order.read(int.from_bytes(size, "big")))
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    threading.Thread(target=end_with, args=(customer,), daemon=True).start()
    status = run(modules[module])
    customer.sendall(bytes([status]))
    return status


def end_with(customer: socket.socket) -> None:
    """Whoever had this program run was ended, so it ends too."""
    if not customer.recv(1):
        os._exit(1)


def run(module: ModuleType) -> int:
    try:
        module.main()
        sys.stdout.flush()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    keep(*sys.argv[1:])
