"""Many cases in one test, where they share what is expensive or each costs next to nothing."""

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
