"""Calls that wait for a plugin, in a real one that never comes up."""

from __future__ import annotations

import gc
from pathlib import Path

from tests.support.plugin_rig import FaultyPlugin, housed, text
from tests.support.waiting import until

from trunkline.core.call import Call, Failure


async def test_one_that_is_given_up_is_not_kept(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path, handshake="").entry(start_timeout=60)) as house:
        for _ in range(20):
            call = house.begin("echo", {"text": "given up here"})
            assert call.executed == "no"
            call.cancel("nobody wants it any more")
            assert isinstance(call.outcome, Failure)
            del call

        def gone() -> bool:
            gc.collect()
            return not any(
                isinstance(thing, Call) and b"given up here" in bytes(thing.params) for thing in gc.get_objects()
            )

        await until(gone, "nothing holds them", 10)


async def test_one_that_waits_while_another_is_given_up_is_sent(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path).entry()) as house:
        first, second = house.begin("echo", {"text": "1"}), house.begin("echo", {"text": "2"})
        first.cancel("nobody wants it any more")
        await until(lambda: second.done, "it is answered", 30)
        assert second.outcome is not None
        assert text(second.outcome) == "2"
