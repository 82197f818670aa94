"""Tests run as root in some places, and root may do what an ordinary user is refused."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_NOBODY = 65534


@contextlib.contextmanager
def an_ordinary_user() -> Iterator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
