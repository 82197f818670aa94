"""For every test: a limit, its own random numbers, nothing left behind, no skip in CI, a fresh loop for coroutines."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import inspect
import logging
import os
import random
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest
from hypothesis import settings
from tests.support import left_behind
from tests.support.left_behind import Census, LeftBehind
from tests.support.needs import find_own_programs, missing
from tests.support.processes import become_subreaper
from tests.support.signals import give_children_default_signals
from tests.support.waiting import limit_of

IN_CI = os.environ.get("CI") == "true"
SEED = os.environ.get("TEST_SEED", "0")
ALWAYS_LAWS = ("property", "contract")
"""Folders whose tests are laws, all of them."""
STACKS = pytest.StashKey[TextIO]()
"""Where a worker writes what its threads do in a test that hangs."""
WITH_FIXTURES: set[str] = set()
"""Modules that made something for all of their tests."""


def pytest_configure(config: pytest.Config) -> None:
    become_subreaper()
    if not config.getoption("numprocesses", None):  # else workers do: they are to begin with what is ignored here
        give_children_default_signals()
    find_own_programs()
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):  # what is started behaves as it does for anybody
        os.environ.pop(name, None)
    # by itself it would assert how fast a test is, and in CI draw the same examples in every run
    settings.register_profile("suite", deadline=None, database=None, derandomize=False)
    settings.load_profile("suite")
    worker = getattr(config, "workerinput", {})
    if "stacks" in worker:
        config.stash[STACKS] = stacks = open(Path(worker["stacks"], worker["workerid"]), "w")  # noqa: SIM115
        config.add_cleanup(stacks.close)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("timeout")
        item.add_marker(pytest.mark.timeout(limit_of(marker.args[0] if marker else None)), append=False)
        if set(ALWAYS_LAWS).intersection(item.nodeid.partition("::")[0].split("/")):
            item.add_marker("law")
        for program in (program for marker in item.iter_markers("needs") for program in marker.args):
            if why := missing(program):
                item.add_marker(pytest.mark.skip(reason=why))


# Coroutine tests ------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """`async def` tests run under a deadline that lets them clean up, well before pytest-timeout ends the process."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}
    marker = pyfuncitem.get_closest_marker("timeout")
    limit = marker.args[0] if marker else limit_of(None)

    async def main() -> None:
        async with asyncio.timeout(limit * 0.8):
            await pyfuncitem.obj(**arguments)

    asyncio.run(main())
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """pytest-timeout ends the worker of a test that hangs, with all it printed: where it hangs is written before."""
    marker = item.get_closest_marker("timeout")
    if STACKS in item.config.stash and marker is not None:
        faulthandler.dump_traceback_later(marker.args[0] * 0.95, file=item.config.stash[STACKS])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The same random numbers in every run with this seed, whichever tests ran before."""
    random.seed(f"{SEED} {item.nodeid}")


# Leaks ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Processes, open files, threads and tasks are back to where they were within 5 seconds of the test's end, and no
    error went unseen."""
    unfinished: list[str] = []
    drop_garbage_of_before()
    before = Census()
    own = pytest.MonkeyPatch.context()  # not the test's, which would outlast this
    with own as patch, unseen_errors() as unseen:
        watch_tasks(patch, unfinished)
        yield
        gc.collect()
    if unfinished:
        raise LeftBehind(f"tasks without an owner were still running when the loop ended: {unfinished}")
    before.compare_with_now()
    assert not unseen, f"errors that only asyncio saw: {unseen}"


@pytest.fixture(autouse=True, scope="module")
def nothing_of_a_module_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same for what a module's own fixtures started, which is there before its tests and after them."""
    before = Census()
    yield
    if request.node.nodeid in WITH_FIXTURES:
        gc.unfreeze()
        gc.collect()
    before.compare_with_now()


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    if fixturedef.scope == "module" and fixturedef.argname != "nothing_of_a_module_is_left":
        WITH_FIXTURES.add(request.node.nodeid)


def drop_garbage_of_before() -> None:
    """Whatever is there now stays: the collection after the test, which finds what it dropped, need not walk it all.

    A whole walk takes a tenth of a second once all tests and libraries are loaded.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def unseen_errors() -> Iterator[list[str]]:
    """What callbacks raised, and tasks that nobody awaited: all that asyncio can do is log it."""
    reports: list[str] = []
    handler, logger = logging.Handler(logging.ERROR), logging.getLogger("asyncio")
    handler.emit = lambda record: reports.append(handler.format(record))
    logger.addHandler(handler)
    try:
        yield reports
    finally:
        logger.removeHandler(handler)


def watch_tasks(monkeypatch: pytest.MonkeyPatch, unfinished: list[str]) -> None:
    """`asyncio.run` cancels what is still running when its main coroutine returns: here that is a leak."""
    cancel_all = asyncio.runners._cancel_all_tasks

    def look_first(loop: asyncio.AbstractEventLoop) -> None:
        tasks = asyncio.all_tasks(loop)
        if tasks and sys.exc_info()[0] is None:
            _, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=left_behind.PATIENCE_S))
            unfinished.extend(repr(task) for task in pending)
        cancel_all(loop)

    monkeypatch.setattr(asyncio.runners, "_cancel_all_tasks", look_first)


# Reports --------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    if call.excinfo is not None and is_left_behind(call.excinfo.value):
        report.keywords["law"] = 1
    forbid_skip(report)


def is_left_behind(error: BaseException) -> bool:
    """Also where more than that went wrong at the end."""
    return isinstance(error, LeftBehind) or any(map(is_left_behind, getattr(error, "exceptions", ())))


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, None]:
    outcome = yield
    forbid_skip(outcome.get_result())


def forbid_skip(report: Any) -> None:
    """In CI everything a test needs is there: a skip means that something is not tested at all.

    Except what is marked `optional`: what that needs is the machine's to give, and cannot be installed everywhere.
    """
    if IN_CI and report.outcome == "skipped" and not hasattr(report, "wasxfail") and not is_optional(report):
        report.outcome = "failed"
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"skipped, which counts as a failure when CI=true: {why}"


def is_optional(report: Any) -> bool:
    return "optional" in getattr(report, "keywords", ())
