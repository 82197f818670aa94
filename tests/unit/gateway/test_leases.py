from __future__ import annotations

import asyncio

import pytest
from tests.unit.router.virtual_clock import ClockLoop, run_with_clock

from trunkline.config.sources import SourceSection
from trunkline.gateway.operations import ServiceLeases

SECTION = SourceSection()


def test_a_lease_ends_unless_it_is_renewed_or_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        ended: list[str] = []
        leases = ServiceLeases(ended.append)
        assert leases.hold("a", SECTION, 10)
        assert leases.hold("b", SECTION, 10)
        assert leases.hold("c", SECTION, 10)
        await asyncio.sleep(8)
        assert not leases.hold("b", SECTION, 10)
        assert leases.release("c") and not leases.release("c")
        await asyncio.sleep(5)
        assert (ended, list(leases.sections)) == (["a"], ["b"])
        await asyncio.sleep(6)
        assert (ended, list(leases.sections)) == (["a", "b"], [])

    run_with_clock(monkeypatch, scene())


def test_nothing_ends_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        ended: list[str] = []
        leases = ServiceLeases(ended.append)
        leases.hold("a", SECTION, 1)
        leases.close()
        await asyncio.sleep(5)
        assert (ended, dict(leases.sections)) == ([], {})

    run_with_clock(monkeypatch, scene())


def test_a_service_that_renewed_its_lease_while_we_were_stopped_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        ended: list[str] = []
        leases = ServiceLeases(ended.append)
        leases.hold("renewed", SECTION, 10)
        leases.hold("silent", SECTION, 10)
        await asyncio.sleep(8)
        loop.now += 300
        await asyncio.sleep(0.5)  # in which its request is read
        assert not leases.hold("renewed", SECTION, 10)
        await asyncio.sleep(5)
        assert (ended, list(leases.sections)) == (["silent"], ["renewed"])
        leases.close()

    run_with_clock(monkeypatch, scene())
