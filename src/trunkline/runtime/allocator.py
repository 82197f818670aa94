"""Large buffers stay with the process: giving each back to the kernel costs more than everything else in a big call.

A result of 1 MB passes through three buffers of that size. By default glibc returns such memory at once and the kernel
clears fresh pages for the next one, which more than doubles the CPU time of the call.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGEST_BUFFER_BYTES: Final = 32 * 1024 * 1024
_KEPT_BYTES: Final = 64 * 1024 * 1024


def keep_large_buffers() -> bool:
    """Tell glibc to reuse what it has. False where there is no glibc: everything works, large results cost more."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_BUFFER_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
