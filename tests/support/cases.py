"""Many cases in one test, for cases that share something expensive or cost next to nothing each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def case(**values: Any) -> Iterator[None]:
    """Whatever fails inside is told with these."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(f'{name}={value!r:.500}' for name, value in values.items())}")
        raise
