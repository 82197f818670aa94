"""The soak test: a gateway with servers of every kind under mixed load, and checks that it held.

    python -m tests.support.soak --minutes 30

Clients of both eras call tools all the time. Meanwhile servers are killed, the configuration is changed and read again,
sessions are opened and abandoned, and some clients hang up in the middle of a call. Every call has a nonce, which the
servers write down before they run it and when they are done. At the end the books must balance, the descriptors must be
those of the beginning, and memory must be level: what was missed is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.answers import Answer
from tests.support.client import HttpClient, call_params, encode
from tests.support.fault.journal import Ledger
from tests.support.gateway import Gateway
from tests.support.ports import free_port
from tests.support.processes import PROC, Process, become_subreaper
from tests.support.servers import FAULT_SERVER, HttpFaults, Records, StdioFaults, kill
from tests.support.waiting import at_most, until

EXPECTED = frozenset({"TL201", "TL203", "TL206", "TL301", "TL305", "TL306"})
"""Codes with which a call may fail while servers are killed: down, not started, no room for one more process, an app
that is away, too late, lost."""
LEVEL_MIB_PER_HOUR = 4.0
SHORTEST_FOR_SLOPE_S = 600.0
"""A slope over less than this (the second half) says more of the first minutes than of the hours to come."""
SPARE_DESCRIPTORS = 4
"""Kept connections to an HTTP server come and go; a leak would show as one or more for each crash or session."""
UNANSWERED_S = 120.0
LEGACY_CLIENTS, MODERN_CLIENTS = 6, 4
MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Plan:
    seconds: float
    calls_per_s: float = 50.0
    kill_every_s: float = 3.0
    reload_every_s: float = 60.0
    abandon_every_s: float = 1.5
    sample_every_s: float = 2.0
    session_idle_s: float = 15.0
    seed: int = 1


class Sample(NamedTuple):
    at_s: float
    rss_mib: float
    descriptors: int
    threads: int
    supervisor_rss_mib: float
    processes: int


@dataclass
class Book:
    """What clients were told, and what was done to them and to the servers."""

    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    left: set[str] = field(default_factory=set[str])
    """Nonces of calls that nobody waited for."""
    lost: list[str] = field(default_factory=list[str])
    done: Counter[str] = field(default_factory=Counter[str])
    samples: list[Sample] = field(default_factory=list[Sample])
    before: Sample | None = None
    after: Sample | None = None

    @property
    def refused(self) -> Counter[str]:
        """Codes, by the server and by whether the tool may have run."""
        failed = (answer.error.get("data") or {} for answer in self.answers.values() if answer.failed)
        return Counter(f"{data.get('code')} {data.get('source')} executed={data.get('executed')}" for data in failed)


# The servers ----------------------------------------------------------------------------------------------------------


class AppProcess(Records):
    """A program of its own that dials in as `Board`."""

    name = "Board"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self.name)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def entry(self) -> dict[str, dict[str, Any]]:
        return {"apps": {"kind": "app", "listen": f"127.0.0.1:{self.port}", "grace": 60}}

    def restart(self) -> None:
        self.stop()
        command = [sys.executable, "-m", "tests.support.soak", "--be-the-app", str(self.port), str(self.ledger)]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=root)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


async def be_the_app(port: int, ledger_path: str) -> None:
    from trunkline.client import App

    app, ledger = App(AppProcess.name, gateway=f"127.0.0.1:{port}", credential="soak"), Ledger(ledger_path)

    @app.tool
    async def nonce(nonce: str, delay: float = 0) -> str:
        ledger.note("start", nonce)
        await asyncio.sleep(delay)
        ledger.note("done", nonce)
        return nonce

    await app.run()


class Servers:
    """One of every kind. They keep ledgers but no journals, which would grow by every message."""

    def __init__(self, folder: Path) -> None:
        self.own = StdioFaults(folder, "own", journal="")
        self.shared = StdioFaults(folder, "shared", journal="")
        self.both = StdioFaults(folder, "both", journal="", era="both")
        self.restless = StdioFaults(folder, "restless", journal="")
        self.far = HttpFaults(folder, "far", journal="")
        self.app = AppProcess(folder)
        self.all: list[Records] = [self.own, self.shared, self.both, self.restless, self.far, self.app]
        self.names = ["own", "shared", "both", "restless", "far", AppProcess.name]

    def entries(self, reloads: int) -> dict[str, Any]:
        """The configuration after so many reloads: one server changes each time, one comes and goes."""
        changing = self.restless.entry(env={"NUMBER": str(reloads)}, timeout=30 + reloads % 7)
        entries = self.own.entry() | self.shared.entry(sessions="shared") | self.both.entry() | changing
        entries |= self.far.entry() | self.app.entry()
        return entries | ({"added": {**self.own.entry()["own"]}} if reloads % 2 else {})

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self.far:
            self.app.restart()
            try:
                yield
            finally:
                self.app.stop()


# The load -------------------------------------------------------------------------------------------------------------


class Soak:
    def __init__(self, plan: Plan, folder: Path, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.book = Book()
        self.servers = Servers(folder)
        idle_s = at_most(plan.session_idle_s)
        limits = {"session_idle": idle_s, "source_session_idle": idle_s, "sessions_per_source": 64}
        entries = self.servers.entries(0)
        self.gateway = Gateway(folder, entries, limits=limits, log={"level": "warning", "format": "json"})
        self._say = say
        self._rng = random.Random(plan.seed)
        self._began = time.monotonic()
        self._over = asyncio.Event()
        self._nonces = iter(range(1 << 60))

    async def run(self) -> Book:
        with self.servers.running(), self.gateway:
            await self._all_answer()
            self.book.before = await self._quiet(30)
            self._began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for work in self._works():
                    group.create_task(work)
                await asyncio.sleep(self.plan.seconds)
                self._over.set()
            if self.book.done["reloads"] % 2:
                await self._reload()  # the server that comes and goes is away, as at the beginning
            await self._all_answer()
            self.book.after = await self._quiet(90)
        return self.book

    def _works(self) -> list[Any]:
        plan, clients = self.plan, [self.gateway.client() for _ in range(LEGACY_CLIENTS)]
        clients += [self.gateway.modern() for _ in range(MODERN_CLIENTS)]
        return [
            *(self._call_all_the_time(client) for client in clients),
            self._every(plan.kill_every_s, self._kill_something),
            self._every(plan.reload_every_s, self._reload),
            self._every(plan.abandon_every_s, self._come_and_go),
            self._every(plan.sample_every_s, self._take_sample),
        ]

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as group:
            while not await self._over_within(seconds):
                group.create_task(_awaited(work()))

    async def _over_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)
        return self._over.is_set()

    async def _call_all_the_time(self, client: HttpClient) -> None:
        pause_s = (LEGACY_CLIENTS + MODERN_CLIENTS) / self.plan.calls_per_s
        async with client, asyncio.TaskGroup() as group:
            while not await self._over_within(self._rng.expovariate(1 / pause_s)):
                group.create_task(self._call(client))

    async def _call(self, client: HttpClient, server: str = "") -> None:
        """One call, which is answered within its time, whatever happens to its server."""
        tool, arguments = self._next_call(server)
        nonce = arguments["nonce"]
        try:
            async with asyncio.timeout(at_most(UNANSWERED_S)):
                self.book.answers[nonce] = await client.call(tool, arguments)
        except (OSError, EOFError, TimeoutError, AssertionError) as error:
            self.book.lost.append(f"{tool} {nonce}: {error!r}")

    def _next_call(self, server: str) -> tuple[str, dict[str, Any]]:
        name = server or self._rng.choice(self.servers.names)
        delay = self._rng.choice([0, 0, 0.01, 0.05, 0.2])
        return f"{name}_nonce", {"nonce": f"n{next(self._nonces)}", "delay": delay}

    async def _come_and_go(self) -> None:
        """A session that is used a little. Some clients say goodbye, most just go, some in the middle of a call."""
        way = self._rng.choice(["goodbye", "just gone", "mid-call", "listening"])
        client = self.gateway.client()
        try:
            async with asyncio.timeout(at_most(UNANSWERED_S)):
                await client.open()
                for server in ("own", "shared", "both"):
                    await self._call(client, server)
                await self._go(client, way)
        except (OSError, EOFError, TimeoutError, AssertionError) as error:
            self.book.lost.append(f"a session ({way}): {error!r}")
        self.book.done["sessions"] += 1
        self.book.done[f"sessions: {way}"] += 1

    async def _go(self, client: HttpClient, way: str) -> None:
        if way == "goodbye":
            await client.delete()
        elif way == "mid-call":
            tool, arguments = self._next_call("")
            self.book.left.add(arguments["nonce"])
            message = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": call_params(tool, arguments, None)}
            async with client.start_post(encode(message)):
                await asyncio.sleep(self._rng.choice([0, 0.02]))
        elif way == "listening":
            async with client.listen():
                await asyncio.sleep(0.1)
        await client.close()

    # -- what is done to the servers and to the gateway -----------------------------------------------------------

    async def _kill_something(self) -> None:
        chosen = self._rng.random()
        if chosen < 0.1:
            await asyncio.to_thread(self.servers.far.restart)
            self.book.done["kills: http"] += 1
        elif chosen < 0.2:
            await asyncio.to_thread(self.servers.app.restart)
            self.book.done["kills: app"] += 1
        else:
            processes = await asyncio.to_thread(self._server_processes)
            if processes:
                kill(self._rng.choice(processes).pid)
                self.book.done["kills: stdio"] += 1

    def _server_processes(self) -> list[Process]:
        return [process for process in self.gateway.descendants() if FAULT_SERVER in process.command]

    async def _reload(self) -> None:
        self.book.done["reloads"] += 1
        document = json.loads(self.gateway.config.read_text())
        document["sources"] = self.servers.entries(self.book.done["reloads"])
        scratch = self.gateway.config.with_suffix(".new")
        scratch.write_text(json.dumps(document))
        scratch.replace(self.gateway.config)
        self.gateway.process.send_signal(signal.SIGHUP)

    # -- what is seen of it ---------------------------------------------------------------------------------------

    async def _all_answer(self) -> None:
        """Every server answers, so that what is measured before and after is the same."""
        async with self.gateway.modern() as client:
            for name in self.servers.names:

                async def works(name: str = name) -> bool:
                    return not (await client.call(f"{name}_nonce", {"nonce": f"{name}{next(self._nonces)}"})).failed

                await until(works, f"{name} answers", 60)

    async def _quiet(self, seconds: float) -> Sample:
        """Once all sessions are over and nothing has been opened or closed for a second; if that never happens, in the
        end."""
        most = 1 << 30 if self.book.before is None else self.book.before.descriptors + SPARE_DESCRIPTORS
        deadline = time.monotonic() + at_most(seconds)
        sample = await self._sample()
        while time.monotonic() < deadline:
            await asyncio.sleep(1)
            before, sample = sample, await self._sample()
            level = (before.descriptors, before.processes) == (sample.descriptors, sample.processes)
            if level and sample.descriptors <= most:
                break
        return sample

    async def _take_sample(self) -> None:
        sample = await self._sample()
        self.book.samples.append(sample)
        if len(self.book.samples) % 30 == 0:
            done = f"{len(self.book.answers)} answers, {len(self.book.lost)} lost, {dict(self.book.refused)}"
            self._say(f"{sample.at_s:7.0f} s  {sample.rss_mib:7.2f} MiB  {sample.descriptors} descriptors  {done}")

    async def _sample(self) -> Sample:
        metrics = await self.gateway.metrics()
        processes = await asyncio.to_thread(self.gateway.descendants)
        supervisor = next((one for one in processes if "supervisor" in one.command), None)
        return Sample(
            at_s=time.monotonic() - self._began,
            rss_mib=metrics["process_resident_memory_bytes{}"] / MIB,
            descriptors=int(metrics["process_open_fds{}"]),
            threads=_status(self.gateway.process.pid, "Threads"),
            supervisor_rss_mib=0.0 if supervisor is None else _status(supervisor.pid, "VmRSS") / 1024,
            processes=len(processes),
        )


async def _awaited(work: Awaitable[None]) -> None:
    await work


def _status(pid: int, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0


# What came of it ------------------------------------------------------------------------------------------------------


def slope_per_hour(samples: list[Sample], of: Callable[[Sample], float]) -> float:
    """The slope of the second half, by least squares."""
    half = [sample for sample in samples if sample.at_s >= samples[-1].at_s / 2] if samples else []
    if len(half) < 2:
        return 0.0
    return statistics.linear_regression([sample.at_s / 3600 for sample in half], [of(sample) for sample in half]).slope


def missed(soak: Soak) -> list[str]:
    """Every bar that was missed, in words. An empty list is a soak that held."""
    book, faults = soak.book, _wrong_in_the_books(soak)
    faults += [f"lost: {call}" for call in book.lost]
    faults += [f"not to be expected: {refusal}" for refusal in book.refused if refusal.split()[0] not in EXPECTED]
    assert book.before is not None
    assert book.after is not None
    more = book.after.descriptors - book.before.descriptors
    if more > SPARE_DESCRIPTORS:
        faults.append(f"{more} descriptors more than at the beginning")
    slope = slope_per_hour(book.samples, lambda sample: sample.rss_mib)
    if soak.plan.seconds / 2 >= SHORTEST_FOR_SLOPE_S and slope > LEVEL_MIB_PER_HOUR:
        faults.append(f"memory grows by {slope:.1f} MiB/h in the second half")
    succeeded = sum(not answer.failed for answer in book.answers.values())
    if succeeded < 0.5 * len(book.answers):
        faults.append(f"only {succeeded} of {len(book.answers)} calls succeeded: this shows little")
    return faults


def _wrong_in_the_books(soak: Soak) -> list[str]:
    book, faults = soak.book, list[str]()
    steps = Counter(step for server in soak.servers.all for step in server.steps())
    faults += [f"doubled: {nonce} ran {n} times" for (step, nonce), n in steps.items() if step == "start" and n > 1]
    for nonce, answer in book.answers.items():
        ran = (steps["start", nonce], steps["done", nonce])
        if not answer.failed and (answer.text != nonce or ran != (1, 1)):
            faults.append(f"untrue: {nonce} was answered with {answer.raw[:200]!r}, and ran {ran}")
        elif answer.failed and answer.executed not in ("no", "unknown"):
            faults.append(f"untrue: {nonce} failed with {answer.raw[:200]!r}")
        elif answer.failed and answer.executed == "no" and ran[0]:
            faults.append(f"untrue: {nonce} ran although {answer.raw[:200]!r}")
    return faults


def summary(soak: Soak) -> str:
    book = soak.book
    failed = sum(book.refused.values())
    lines = [f"{len(book.answers)} calls answered, {failed} of them refused or failed: {dict(book.refused)}"]
    lines.append(f"{len(book.lost)} lost, {len(book.left)} left by their clients; {dict(book.done)}")
    for what, sample in (("before", book.before), ("after", book.after)):
        if sample is not None:
            lines.append(f"quiet {what}: {_shown(sample)}")
    if book.samples:
        slopes = {
            "MiB/h": lambda sample: sample.rss_mib,
            "MiB/h of the supervisor": lambda sample: sample.supervisor_rss_mib,
            "descriptors/h": lambda sample: sample.descriptors,
            "threads/h": lambda sample: sample.threads,
        }
        half = book.samples[len(book.samples) // 2 :]
        lines.append(f"at half: {_shown(half[0])}; at the end: {_shown(half[-1])}")
        shown = (f"{slope_per_hour(book.samples, of):+.2f} {unit}" for unit, of in slopes.items())
        lines.append(f"slopes of the second half: {', '.join(shown)}")
    return "\n".join(lines)


def _shown(sample: Sample) -> str:
    gateway = f"{sample.rss_mib:.2f} MiB, {sample.descriptors} descriptors, {sample.threads} threads"
    return f"{gateway}, supervisor {sample.supervisor_rss_mib:.2f} MiB, {sample.processes} processes"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=50.0, help="calls per second (50)")
    parser.add_argument("--kill-every", type=float, default=3.0, help="seconds between kills (3)")
    parser.add_argument("--reload-every", type=float, default=60.0, help="seconds between reloads (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=Path, help="where to write what was measured, as tab-separated values")
    options = parser.parse_args()
    plan = Plan(
        seconds=options.minutes * 60,
        calls_per_s=options.rate,
        kill_every_s=options.kill_every,
        reload_every_s=options.reload_every,
        seed=options.seed,
    )
    become_subreaper()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whatever ends it, what it started ends too
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak, faults = asyncio.run(_soaked(plan, Path(folder)))
    if options.samples:
        rows = [Sample._fields, *soak.book.samples]
        options.samples.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    print(summary(soak))
    for fault in faults[:50]:
        print(f"MISSED: {fault}")
    print("it held" if not faults else f"{len(faults)} faults")
    return bool(faults)


async def _soaked(plan: Plan, folder: Path) -> tuple[Soak, list[str]]:
    soak = Soak(plan, folder, lambda line: print(line, flush=True))
    await soak.run()
    return soak, missed(soak)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--be-the-app"]:
        asyncio.run(be_the_app(int(sys.argv[2]), sys.argv[3]))
    else:
        sys.exit(main())
