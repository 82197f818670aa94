from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import contextmanager, suppress

import pytest
import uvloop
from tests.support.cases import case
from tests.support.child_trees import children_of, marked, output_of, run_on
from tests.support.processes import descendants, open_files
from tests.support.waiting import until

from trunkline.core.errors import SOURCE_START_FAILED, GatewayError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the messages for these errors, on Linux")


def not_executable(folder):
    (folder / "plain").write_text("echo hi")
    return [str(folder / "plain")]


def without_interpreter(folder):
    (folder / "script").write_text("#!/no/such/interpreter\n")
    (folder / "script").chmod(0o755)
    return [str(folder / "script")]


def without_first_line(folder):
    (folder / "script").write_text("\x00\x01")
    (folder / "script").chmod(0o755)
    return [str(folder / "script")]


STARTS = [
    (lambda folder: ["no-such-program", "--flag"], "command not found: `no-such-program`"),
    (lambda folder: ["/no/such/program"], "command not found: `/no/such/program`"),
    (lambda folder: [str(folder)], "permission denied"),
    (not_executable, "permission denied"),
    (without_interpreter, "the interpreter it names is not"),
    (without_first_line, "not a program this system can run"),
    (lambda folder: ["true", "x" * 200_000], "too long"),
    (lambda folder: ["true", "a\0b"], "NUL"),
    (lambda folder: ["true", "\ud800"], "cannot encode"),
    (lambda folder: [], "no command given"),
    (lambda folder: [""], "no command given"),
]


def test_what_cannot_be_started_is_said_precisely(tmp_path):
    async def main():
        async with children_of() as children:
            for make, said in STARTS:
                with case(said=said):
                    with pytest.raises(GatewayError) as caught:
                        await children.spawn(make(tmp_path), env=marked(""), cwd=None, label="files")
                    problem = caught.value.problem
                    assert problem.code is SOURCE_START_FAILED
                    assert said in problem.message
                    assert (problem.where, problem.source, problem.executed) == ("files", "files", "no")
                    assert await output_of(children, ["echo", "still works"]) == "still works\n"

    asyncio.run(main())


def test_a_missing_working_directory_and_an_impossible_name_in_the_environment_are_refused():
    async def main():
        async with children_of() as children:
            with pytest.raises(GatewayError, match="`/no/such/folder`: No such file"):
                await children.spawn(["true"], env=marked(""), cwd="/no/such/folder", label="files")
            for name in ("", "A=B", "A\0B"):
                with case(name=name), pytest.raises(GatewayError):
                    await children.spawn(["true"], env={name: "x"}, cwd=None, label="files")

    asyncio.run(main())


@pytest.mark.law
def test_failed_starts_leave_no_descriptor_and_no_process():
    async def main():
        async with children_of() as children:
            await output_of(children, ["true"])
            files = len(open_files())
            for _ in range(20):
                with pytest.raises(GatewayError):
                    await children.spawn(["no-such-program"], env=marked(""), cwd=None, label="files")
            assert len(open_files()) == files
            await until(lambda: not descendants(children.supervisor_pid), "the failed children are reaped")

    run_on(uvloop.new_event_loop, main())


@contextmanager
def few_descriptors_left(count: int):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_files()) + 20, limits[1]))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_no_free_descriptor_is_an_error_and_passes_when_there_are_some_again():
    async def main():
        async with children_of() as children:
            await output_of(children, ["true"])
            with few_descriptors_left(5), pytest.raises(GatewayError, match="ulimit -n"):
                await children.spawn(["true"], env=marked(""), cwd=None, label="files")
            assert await output_of(children, ["echo", "again"]) == "again\n"

    asyncio.run(main())


def test_no_free_descriptor_in_the_supervisor_is_an_error_and_passes_too():
    async def main():
        async with children_of() as children:
            await output_of(children, ["true"])
            limits = resource.prlimit(children.supervisor_pid, resource.RLIMIT_NOFILE)
            resource.prlimit(children.supervisor_pid, resource.RLIMIT_NOFILE, (8, limits[1]))
            with pytest.raises(GatewayError, match="ulimit -n"):
                await children.spawn(["true"], env=marked(""), cwd=None, label="files")
            resource.prlimit(children.supervisor_pid, resource.RLIMIT_NOFILE, limits)
            assert await output_of(children, ["echo", "again"]) == "again\n"

    asyncio.run(main())
