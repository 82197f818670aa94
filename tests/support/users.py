"""Runs programs as an ordinary user where the tests run as root."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import at_most

_NOBODY = 65534
_ORDINARY = 60000 + os.getpid() % 5000
"""A user of whom nothing else runs here."""
_NEEDED = (Path(sys.base_prefix), Path(sys.prefix), Path(__file__).parents[2])


@contextlib.contextmanager
def an_ordinary_user() -> Iterator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@contextlib.contextmanager
def home_of_an_ordinary_user() -> Iterator[Path]:
    """A folder of its own, which it can reach."""
    home = Path(tempfile.mkdtemp(prefix="trunkline-user-"))
    try:
        give_to_ordinary_user(home)
        yield home
    finally:
        shutil.rmtree(home)


def give_to_ordinary_user(folder: Path) -> None:
    """With all that is in it."""
    for path in (folder, *folder.rglob("*")) if os.geteuid() == 0 else ():
        os.chown(path, _ORDINARY, _ORDINARY)


def becoming_an_ordinary_user(home: Path) -> str:
    """What a shell has to do so that it runs `"$@"` as such a user (as itself, where that is one)."""
    if os.geteuid():
        return f"export HOME={shlex.quote(str(home))}"
    command = ["setpriv", f"--reuid={_ORDINARY}", f"--regid={_ORDINARY}", "--clear-groups"]
    command += ["--inh-caps=-all", "--bounding-set=-all"]
    if opening := _opening():
        command = ["unshare", "--mount", "sh", "-c", f'set -e; {opening}; exec "$@"', "sh", *command]
    return f'export HOME={shlex.quote(str(home))}; set -- {shlex.join(command)} "$@"'


def no_ordinary_user() -> str:
    """Why nothing of ours can run as one here, or nothing."""
    script = f'{becoming_an_ordinary_user(Path("/"))}; exec "$@"'
    probe = ["sh", "-c", script, "sh", sys.executable, "-c", "import trunkline"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=at_most(30))
    return "" if done.returncode == 0 else f"root cannot run this as another user: {done.stderr.strip()[-300:]}"


def _opening() -> str:
    """Root's home is closed to others, and the interpreter may be there: put empty folders in place of the closed ones,
    and what is needed into them. For root in a mount namespace of its own."""
    above = {folder: [parent for parent in folder.parents if _is_closed(parent)] for folder in _NEEDED}
    closed = {folder: parents[-1] for folder, parents in above.items() if parents}
    steps = [f"exec {number}<{shlex.quote(str(folder))}" for number, folder in enumerate(closed, 3)]
    steps += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(top))}" for top in dict.fromkeys(closed.values())]
    for number, folder in enumerate(closed, 3):
        place = shlex.quote(str(folder))
        steps += [f"mkdir -p {place}", f"mount --no-canonicalize --bind /proc/self/fd/{number} {place}"]
        steps += [f"exec {number}<&-"]
    return "; ".join(steps)


def _is_closed(folder: Path) -> bool:
    return not folder.stat().st_mode & 0o001
