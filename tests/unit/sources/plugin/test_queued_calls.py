"""Calls that wait for a plugin that is not connected."""

from __future__ import annotations

import gc
from pathlib import Path

from tests.support.plugin_rig import FaultyPlugin, housed, text
from tests.support.waiting import until

from trunkline.core.call import Call, Failure


async def test_one_that_is_given_up_is_not_kept_and_others_that_wait_are_sent(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path).entry()) as house:
        first, second = house.begin("echo", {"text": "1"}), house.begin("echo", {"text": "2"})
        first.cancel("nobody wants it any more")
        await until(lambda: second.done, "it is answered", 30)
        assert second.outcome is not None
        assert text(second.outcome) == "2"
        await house.call("crash")
        for _ in range(20):
            call = house.begin("echo", {"text": "given up here"})
            assert (call.done, call.executed) == (False, "no")
            call.cancel("nobody wants it any more")
            assert isinstance(call.outcome, Failure)
        del call
        gc.collect()
        kept = [thing for thing in gc.get_objects() if isinstance(thing, Call)]
        assert not any(b"given up here" in bytes(call.params) for call in kept)
