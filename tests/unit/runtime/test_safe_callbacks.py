from __future__ import annotations

import asyncio

import pytest
from tests.support.bugs import Bug, broken, reported_bugs

from trunkline.runtime.safe_callbacks import call_safely


async def test_whoever_is_contained_is_told_of_and_what_comes_next_goes_on() -> None:
    bugs = reported_bugs()
    done: list[str] = []
    assert not call_safely("the first", broken)
    assert call_safely("the second", done.append, "second")
    assert done == ["second"]
    assert [type(error) for error in bugs] == [Bug]


async def test_what_is_no_bug_is_not_contained() -> None:
    def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        call_safely("it", cancelled)
