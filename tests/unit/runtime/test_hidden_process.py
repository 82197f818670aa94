"""What a process does to be hidden, and what must not change for itself and for the programs it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is hidden")
SECRETS = {"A_TOKEN": "canary-1", "ODD": "a=b\nc", "EMPTY": "", "BYTES": "\udcff", "TRUNKLINE_CHILD": "run.1"}
SHOWN = "open('/proc/self/environ', 'rb').read()"


def run(script: str) -> str:
    """The output of a program that has these variables, and no others."""
    prelude = "import ctypes, os, subprocess\nfrom trunkline.runtime import processes\n"
    done = subprocess.run([sys.executable, "-c", prelude + script], env=SECRETS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_block_of_the_first_variables_is_emptied_but_for_our_own_tag():
    script = f"before = {SHOWN}; processes.clear_environment_block(); after = {SHOWN}\n"
    assert run(script + "print(b'canary-1' in before, len(before) == len(after), after.strip(bytes(1)))") == (
        "True True b'TRUNKLINE_CHILD=run.1'"
    )


def test_the_variables_themselves_stay_for_us_for_libraries_and_for_programs():
    script = f"""
wanted = {SECRETS!r}
processes.clear_environment_block()
processes.clear_environment_block()
assert wanted.items() <= dict(os.environ).items(), os.environ
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
assert [getenv(os.fsencode(name)) for name in wanted] == [os.fsencode(value) for value in wanted.values()]
shown = subprocess.run(["/usr/bin/env", "-0"], capture_output=True).stdout.split(bytes(1))
assert {{os.fsencode(f"{{name}}={{value}}") for name, value in wanted.items()}} <= set(shown), shown
print("done")
"""
    assert run(script) == "done"


def test_hidden_processes_still_read_what_they_need_of_themselves_and_start_others_that_are_not_hidden():
    script = """
processes.hide_from_other_processes()
from trunkline.telemetry.metrics import process_metrics
assert len(list(process_metrics())) == 5
fd = os.open("/", os.O_RDONLY)
assert os.readlink(f"/proc/self/fd/{fd}") == "/"
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)
subprocess.run([__import__("sys").executable, "-c", "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"])
"""
    assert run(script).split() == ["0", "1"]
