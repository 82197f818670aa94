from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.router.fakes import RouterRig, problem_of
from tests.unit.router.virtual_clock import ClockLoop, run_with_clock

from trunkline.core.errors import DEADLINE
from trunkline.core.server_request import ServerRequest
from trunkline.protocol.mcp.methods import ROOTS_LIST


def test_the_clock_rests_while_the_client_thinks_and_then_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        rig = RouterRig(tmp_path, call_s=10_000.0)
        rig.add("s", "t", timeout_s=60.0)
        call = rig.call("s_t")
        await asyncio.sleep(59)
        server_request = ServerRequest("s", ROOTS_LIST, b"{}", lambda ending, raw: None, (call,))
        await asyncio.sleep(300)
        server_request.answer(b"{}")
        await asyncio.sleep(59)
        assert not call.done
        await asyncio.sleep(2)
        assert problem_of(call).code is DEADLINE
        rig.router.registry.close()

    run_with_clock(monkeypatch, main())


def test_the_longest_time_of_a_call_does_not_count_what_its_client_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        rig = RouterRig(tmp_path, call_s=100.0)
        rig.add("s", "t", timeout_s=60.0)
        call = rig.call("s_t")
        for _ in range(2):
            await asyncio.sleep(20)
            both = [ServerRequest("s", ROOTS_LIST, b"{}", lambda ending, raw: None, (call,)) for _ in range(2)]
            await asyncio.sleep(300)
            both[0].answer(b"{}")
            await asyncio.sleep(300)
            both[1].answer(b"{}")
        await asyncio.sleep(55)
        assert not call.done
        await asyncio.sleep(65)
        assert problem_of(call).code is DEADLINE
        rig.router.registry.close()

    run_with_clock(monkeypatch, main())


def test_after_a_stop_a_call_has_a_moment_in_which_its_answer_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        rig = RouterRig(tmp_path, call_s=10_000.0)
        rig.add("s", "t", timeout_s=60.0)
        call = rig.call("s_t")
        await asyncio.sleep(59)
        loop.now += 300  # the process was stopped
        await asyncio.sleep(0.5)
        assert not call.done
        await asyncio.sleep(1)
        assert problem_of(call).code is DEADLINE
        rig.router.registry.close()

    run_with_clock(monkeypatch, main())
