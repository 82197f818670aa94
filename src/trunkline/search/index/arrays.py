"""numpy, and the types of arrays. Nothing else imports numpy, so that it always starts with a single thread.

A gateway serves many calls on few cores: its matrices are not worth a pool of threads that spin for more work. Set the
variable before the start for another number.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]
Flags = NDArray[np.bool_]

__all__ = ["Flags", "Floats", "Integers", "np"]
