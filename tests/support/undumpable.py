"""Runs a program of ours as a process that no other process of its user may look into, nor into its supervisor.

    undumpable.py PROGRAM ARGUMENT…

Root could look into anything, so it gives up its capabilities first, but for one: without it root could not be root in
a sandbox either.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
from pathlib import Path

SUPERVISOR = Path(__file__).parents[2] / "src" / "trunkline" / "runtime" / "supervisor.py"
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_CAP_SETFCAP = 31
_CAPABILITIES_VERSION = 0x20080522
_MOST_CAPABILITIES = 64


def close_to_others() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        for capability in range(_MOST_CAPABILITIES):
            if capability != _CAP_SETFCAP:  # a program that root starts would have them again
                libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        header, one = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), 1 << _CAP_SETFCAP
        kept = (ctypes.c_uint32 * 6)(one, one)  # effective and permitted
        assert libc.capset(header, kept) == 0, os.strerror(ctypes.get_errno())
    assert libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0


def main() -> None:
    close_to_others()
    if sys.argv[1].isdigit():  # in the place of the supervisor's own program
        runpy.run_path(str(SUPERVISOR), run_name="__main__")
        return
    from trunkline.runtime import supervisor_client

    supervisor_client._PROGRAM = __file__
    sys.argv.pop(0)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
