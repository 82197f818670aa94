"""Secrets are redacted from whatever a source reports, of any kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.router.fakes import RouterRig, problem_of, tools_snapshot

from trunkline.core.call import Call, Caller, Failure, RemoteError, Result
from trunkline.core.errors import SOURCE_LOST, Problem
from trunkline.core.events import LogEvent
from trunkline.core.source import Health
from trunkline.core.tool import Snapshot
from trunkline.router.status import ServerStatus, server_statuses

pytestmark = pytest.mark.law

SECRET = "s3cr3t-Value-4711"


def redact(text: str) -> str:
    return text.replace(SECRET, "***")


class Leaking(RouterRig):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.source = self.add("s", "t", redact=redact)
        self.notes: list[LogEvent] = []
        self.healths: list[Health] = []
        self.events.noted.append(self.notes.append)
        self.events.health.append(lambda _, health: self.healths.append(health))

    def status(self) -> ServerStatus:
        (status,) = server_statuses(self.router)
        return status

    def finish(self, outcome: Failure | RemoteError | Result) -> Call:
        call = self.call("s_t")
        self.source.held[-1].finish(outcome)
        return call


async def test_the_health_of_a_source_shows_none(tmp_path: Path) -> None:
    rig = Leaking(tmp_path)
    said = f"no login with {SECRET}"
    rig.sinks["s"].health(Health(state="down", reason=said, last_error=said, hint=said, stderr_tail=said))
    assert SECRET not in repr((rig.status(), rig.healths, problem_of(rig.call("s_t"))))
    assert rig.status().stderr_tail == "no login with ***"
    rig.router.registry.close()


async def test_a_call_that_failed_shows_none(tmp_path: Path) -> None:
    rig = Leaking(tmp_path)
    call = rig.finish(Failure(Problem(code=SOURCE_LOST, message=SECRET, hint=SECRET, stderr_tail=SECRET)))
    problem = problem_of(call)
    assert (problem.message, problem.hint, problem.stderr_tail, problem.code) == ("***", "***", "***", SOURCE_LOST)


async def test_what_a_server_answers_is_passed_on_byte_for_byte(tmp_path: Path) -> None:
    rig = Leaking(tmp_path)
    raw = b'{"content":[{"type":"text","text":"%b"}]}' % SECRET.encode()
    result, refusal = Result(raw), RemoteError(b'{"code":1,"message":"%b"}' % SECRET.encode())
    assert [rig.finish(outcome).outcome for outcome in (result, refusal)] == [result, refusal]


@pytest.mark.parametrize("session", [None, "one"])
async def test_what_a_server_says_of_itself_shows_none(tmp_path: Path, session: str | None) -> None:
    rig = Leaking(tmp_path)
    info = b'{"name":"%b","version":"1"}' % SECRET.encode()
    snapshot = Snapshot(
        tools=tools_snapshot("s", "t").tools, instructions=f"use {SECRET}", server_info=info, warnings=(SECRET,)
    )
    if session is None:
        rig.sinks["s"].publish(snapshot)
    else:
        rig.sinks["s"].publish_for(session, snapshot)
    offered = rig.router.views.of(Caller(session=session)).snapshot("s")
    assert offered is not None
    assert (offered.instructions, offered.server_info, offered.warnings) == ("use ***", b"{}", ("***",))
    rig.sinks["s"].note("warning", f"careful with {SECRET}")
    assert SECRET not in repr((rig.status(), rig.notes))
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
