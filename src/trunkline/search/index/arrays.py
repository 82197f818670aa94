"""The one place that imports numpy, so that it starts the same way everywhere: with a single thread for its algebra.

A gateway serves many calls on few cores: matrices are not worth a pool of threads that spin for more work. Who wants
another number sets the variable before the start.
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
