"""Finished calls and a log to write them to, for the tests of this folder."""

from __future__ import annotations

import json
from pathlib import Path

from trunkline.core.call import Call, Caller, Failure, Outcome, Result
from trunkline.core.errors import Code, Problem
from trunkline.core.events import Events
from trunkline.telemetry.call_log import CallLog

CALLER = Caller(principal="local", session="0123456789abcdef", client="claude-code")


def finished(outcome: Outcome, *, source="github", tool="create_issue", method="tools/call", caller=CALLER) -> Call:
    params = b'{"name":"create_issue","arguments":{"title":"argument-canary"}}'
    call = Call(method, params, lambda request: None, caller=caller, reply=lambda call: None)
    call.source, call.tool = source, tool
    call.finish(outcome)
    return call


def ok(**names) -> Call:
    return finished(Result(b'{"content":"result-canary"}'), **names)


def failed(code: Code, executed="unknown", **names) -> Call:
    problem = Problem(code=code, message="message-canary", phase="sent", executed=executed)
    return finished(Failure(problem), **names)


class LogFile:
    """A call log that writes into a file; leaving the block closes the log."""

    def __init__(self, path: Path, **options) -> None:
        self.path = path
        self.events = Events()
        self._options = {"format": "json", **options}

    def __enter__(self) -> LogFile:
        self._file = self.path.open("wb")
        self.log = CallLog(stream_fd=self._file.fileno(), **self._options)
        self.lines = self.log.attach(self.events)
        return self

    def __exit__(self, *exc: object) -> None:
        self.log.close()
        self._file.close()

    @property
    def raw(self) -> bytes:
        return self.path.read_bytes()

    @property
    def text_lines(self) -> list[str]:
        lines = self.raw.split(b"\n")
        assert lines.pop() == b"", "the last line is not finished"
        return [line.decode() for line in lines]

    @property
    def records(self) -> list[dict]:
        return [json.loads(line) for line in self.text_lines]
