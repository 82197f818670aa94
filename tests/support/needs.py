"""System programs that tests need: `pytest.mark.needs("git")`. A skip says how to install what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.support import browser
from tests.support.waiting import at_most

OWN_PROGRAMS = Path(__file__).parents[2] / "tools" / "programs" / "usr" / "bin"
"""What `make` unpacked for the tests, without changing the system."""
_SANDBOX = ["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
PROGRAMS = {
    "bash": (["bash", "--version"], "apt-get install bash"),
    "bwrap": (_SANDBOX, "make test-deps, and a system that lets users have namespaces"),
    "chromium": ([browser.PROGRAM, "--version"], "make tools/browser/program/.installed"),
    "git": (["git", "--version"], "apt-get install git"),
    "make": (["make", "--version"], "apt-get install make"),
    "perl": (["perl", "-MSocket", "-e", "1"], "apt-get install perl"),
}
"""How each shows that it works, and what to do where it does not."""


def find_own_programs() -> None:
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(OWN_PROGRAMS)])


@cache
def missing(program: str) -> str:
    """Why tests that need it are left out, or nothing."""
    probe, remedy = PROGRAMS[program]
    if shutil.which(probe[0]) is None:
        return f"`{program}` is not installed: {remedy}"
    try:
        env = browser.environment()
        done = subprocess.run(probe, capture_output=True, text=True, timeout=at_most(30), env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"`{program}` does not work here ({error}): {remedy}"
    return "" if done.returncode == 0 else f"`{program}` does not work here ({done.stderr.strip()}): {remedy}"
