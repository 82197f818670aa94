from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.runtime.own_process import most_connections

RAISED = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
from trunkline.runtime.own_process import most_connections, put_back_for, raise_limit
raise_limit()
raise_limit()
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
inherited = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)
put_back_for(child.pid)
print(resource.getrlimit(resource.RLIMIT_NOFILE), inherited, resource.prlimit(child.pid, resource.RLIMIT_NOFILE))
print(most_connections())
child.communicate(b"\\n")
"""


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can set the limits of another process")
def test_the_limit_is_raised_and_put_back_for_children(tmp_path: Path) -> None:
    printed = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, text=True, check=True, cwd=tmp_path)
    limits, most = printed.stdout.splitlines()
    assert limits == "(300, 300) (300, 300) (100, 300)"
    assert int(most) == 225


def test_some_descriptors_are_always_left() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == resource.RLIM_INFINITY or 1 <= most_connections() < soft
