"""Many cases in one test, for those that cost next to nothing beside what surrounds every test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

TestFunction = Callable[..., Any]


def every(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[TestFunction], TestFunction]:
    """As `pytest.mark.parametrize`, in one test: the case that fails is named, and each has a `tmp_path` of its own.

    Whatever else comes from fixtures is the same for all of them.
    """
    called = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [tuple(value) if len(called) > 1 else (value,) for value in values]
    assert rows, "no case is no test"
    cases = [dict(zip(called, row, strict=True)) for row in rows]

    def decorate(test: TestFunction) -> TestFunction:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def one_after_another(**given: Any) -> None:
            for number, of_it in enumerate(cases):
                with case(**of_it):
                    test(**_for_itself(given, number), **of_it)

        @functools.wraps(test)
        async def one_after_another_on_a_loop(**given: Any) -> None:
            for number, of_it in enumerate(cases):
                with case(**of_it):
                    await test(**_for_itself(given, number), **of_it)

        made: Any = one_after_another_on_a_loop if inspect.iscoroutinefunction(test) else one_after_another
        others = [parameter for name, parameter in signature.parameters.items() if name not in called]
        made.__signature__ = signature.replace(parameters=others)
        return made

    return decorate


@contextmanager
def case(**values: Any) -> Iterator[None]:
    """Whatever fails inside is told with these."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(f'{name}={value!r:.500}' for name, value in values.items())}")
        raise


def _for_itself(given: dict[str, Any], number: int) -> dict[str, Any]:
    if "tmp_path" not in given:
        return given
    folder = given["tmp_path"] / str(number)
    folder.mkdir()
    return {**given, "tmp_path": folder}
