from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.runtime.process_setup import connection_limit

RAISED = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
from trunkline.runtime.process_setup import connection_limit, restore_open_file_limit, raise_open_file_limit
raise_open_file_limit()
raise_open_file_limit()
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
inherited = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)
restore_open_file_limit(child.pid)
print(resource.getrlimit(resource.RLIMIT_NOFILE), inherited, resource.prlimit(child.pid, resource.RLIMIT_NOFILE))
print(connection_limit())
child.communicate(b"\\n")
"""


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can set the limits of another process")
def test_the_limit_is_raised_and_restore_open_file_limit_children(tmp_path: Path) -> None:
    printed = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, text=True, check=True, cwd=tmp_path)
    limits, most = printed.stdout.splitlines()
    assert limits == "(300, 300) (300, 300) (100, 300)"
    assert int(most) == 225


def test_some_descriptors_are_always_left() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == resource.RLIM_INFINITY or 1 <= connection_limit() < soft
