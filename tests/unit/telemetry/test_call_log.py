"""The call log as an operator reads it: what is in a line, what never is, and what a hostile name can do to it."""

from __future__ import annotations

import json
import os
import re
import tty
from pathlib import Path

import pytest
from tests.unit.telemetry.retained_memory import texts_held
from tests.unit.telemetry.sample_calls import CALLER, LogFile, failed, finished, ok

from trunkline.core.call import Cached, Caller, NeedsInput, RemoteError
from trunkline.core.errors import DEADLINE, INTERNAL, SOURCE_DOWN
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.telemetry.call_log import CallLog, LogFormat
from trunkline.telemetry.redaction import Redactor

HOSTILE_NAMES = [
    "two\nlines",
    "carriage\rreturn",
    "clear\x1b[2Jscreen",
    "c1\x9b2Jsequence",
    "bidi\u202eoverride",
    "line\u2028separator",
    "tag\U000e0041character",
    "lone\udc80surrogate",
    "nul\x00and\x7fdelete",
    'quote"and\\backslash',
    "percent%s%d",
]


def test_a_successful_call_is_one_json_line_with_every_promised_field(tmp_path):
    with LogFile(tmp_path / "log") as log:
        log.events.call_ended(ok(), 0.0123456)
    [record] = log.records
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record.pop("ts"))
    assert record == {
        "level": "info",
        "event": "call",
        "source": "github",
        "tool": "create_issue",
        "method": "tools/call",
        "outcome": "ok",
        "ms": 12.346,
        "caller": "local",
        "session": "01234567",
        "client": "claude-code",
    }


def test_a_failed_call_is_a_warning_with_its_code_and_whether_the_tool_may_have_run(tmp_path):
    with LogFile(tmp_path / "log") as log:
        log.events.call_ended(failed(DEADLINE, executed="unknown"), 60.0)
        log.events.call_ended(failed(DEADLINE, executed="no"), 60.0)
    first, second = log.records
    assert (first["level"], first["outcome"], first["code"]) == ("warning", "TL305", "TL305")
    assert (first["executed"], second["executed"]) == ("unknown", "no")


def test_each_way_to_end_has_its_word_and_level(tmp_path):
    with LogFile(tmp_path / "log") as log:
        log.events.call_ended(finished(RemoteError(b'{"code":-1,"message":"message-canary"}')), 0.1)
        log.events.call_ended(finished(NeedsInput(b"{}")), 0.1)
        log.events.call_ended(finished(Cached(b"{}")), 0.1)
        log.events.call_ended(failed(INTERNAL), 0.1)
    ends = [(record["outcome"], record["level"]) for record in log.records]
    assert ends == [("error", "warning"), ("input_required", "info"), ("cached", "info"), ("TL900", "error")]


@pytest.mark.law
@pytest.mark.parametrize("form", ["json", "human"])
def test_arguments_results_and_error_texts_are_never_logged(tmp_path, form):
    with LogFile(tmp_path / "log", format=form) as log:
        log.events.call_ended(ok(), 0.1)
        log.events.call_ended(failed(SOURCE_DOWN), 0.1)
        log.events.call_ended(finished(RemoteError(b'{"message":"message-canary"}')), 0.1)
    assert len(log.text_lines) == 3
    assert b"canary" not in log.raw
    assert CALLER.session is not None and CALLER.session.encode() not in log.raw


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("form", ["json", "human"])
def test_a_hostile_name_stays_on_one_line_without_control_characters(tmp_path, form, name):
    caller = Caller(principal=name, session=name, client=name)
    with LogFile(tmp_path / "log", format=form) as log:
        log.events.call_ended(ok(source=name, tool=name, method=name, caller=caller), 0.1)
        log.events.health_changed(name, Health(state="down", reason=name, last_error=f"{name}!", stderr_tail=name))
        log.events.note("info", "refused", name, peer=name)
    assert len(log.text_lines) == 3
    assert all(line.isprintable() for line in log.text_lines)
    if form == "json":
        assert log.records[0]["tool"] == name


def test_a_name_of_any_length_gives_a_short_line_and_is_not_kept(tmp_path):
    with LogFile(tmp_path / "log") as log:
        for number in range(3):
            log.events.call_ended(ok(tool=f"{number}" * 1_000_000), 0.1)
    assert all(len(line) < 1000 for line in log.text_lines)
    assert max(map(len, texts_held(log.lines))) < 100_000


def test_ever_new_names_do_not_fill_memory(tmp_path):
    with LogFile(tmp_path / "log") as log:
        for number in range(6000):
            log.events.call_ended(ok(tool=f"tool{number}", caller=Caller(client=f"client{number}")), 0.1)
    held = " ".join(texts_held(log.lines))
    for name in ("tool", "client"):
        assert len(set(re.findall(rf"\b{name}\d+", held))) < 5000
    assert len(log.text_lines) == 6000


def test_only_what_reaches_the_level_is_logged(tmp_path):
    with LogFile(tmp_path / "log", level="warning") as log:
        log.events.call_ended(ok(), 0.1)
        log.events.call_ended(failed(DEADLINE), 0.1)
        log.events.note("info", "started", "not this one")
        log.events.note("error", "stopped", "but this one")
        log.events.health_changed("github", Health(state="ready"))
        log.events.health_changed("github", Health(state="down"))
    assert [record["event"] for record in log.records] == ["call", "stopped", "health"]


def test_a_change_of_health_says_what_why_and_what_the_server_wrote_last(tmp_path):
    down = Health(state="down", reason="exited with status 1", restarts=3, last_error="EOF", stderr_tail="boom\nbang")
    with LogFile(tmp_path / "log") as log:
        log.events.health_changed("github", Health(state="ready", stderr_tail="chatter"))
        log.events.health_changed("github", down)
    ready, record = log.records
    assert (ready["level"], "stderr" in ready) == ("info", False)
    assert record["level"] == "warning"
    assert record["message"] == "github is down: exited with status 1"
    assert (record["source"], record["state"], record["restarts"]) == ("github", "down", 3)
    assert (record["last_error"], record["stderr"]) == ("EOF", "boom\nbang")


def test_a_change_of_health_says_what_to_do_unless_that_repeats_what_the_server_wrote(tmp_path):
    with LogFile(tmp_path / "log") as log:
        log.events.health_changed("github", Health(state="auth_required", hint="log in", stderr_tail="old"))
        log.events.health_changed("github", Health(state="down", hint="it wrote: boom", stderr_tail="boom"))
    assert [record.get("hint") for record in log.records] == ["log in", None]


def test_a_server_that_is_ready_with_something_left_to_do_is_a_warning_of_one_line(tmp_path):
    with LogFile(tmp_path / "log") as log:
        log.events.health_changed("local", Health(state="ready", reason="3 apps"))
        log.events.health_changed("local", Health(state="ready", reason="no sandbox", hint="install one"))
    assert [(record["level"], record["message"]) for record in log.records] == [
        ("info", "local is ready: 3 apps"),
        ("warning", "local is ready: no sandbox"),
    ]
    assert log.records[1]["hint"] == "install one"


def test_a_note_keeps_the_types_of_its_fields(tmp_path):
    with LogFile(tmp_path / "log") as log:
        log.events.note(
            "info", "started", "ready", port=4747, tls=False, rate=0.5, odd=float("nan"), none=None, path=("a",)
        )
    [record] = log.records
    fields = {key: record[key] for key in ("port", "tls", "rate", "odd", "none", "path")}
    assert fields == {"port": 4747, "tls": False, "rate": 0.5, "odd": "nan", "none": None, "path": "('a',)"}


@pytest.mark.law
@pytest.mark.parametrize("form", ["json", "human"])
def test_planted_secrets_reach_no_line(tmp_path, form):
    secrets = [f"canary-{number}-s3cr3t" for number in range(30)]
    with LogFile(tmp_path / "log", format=form, redactor=Redactor(secrets)) as log:
        for secret in secrets:
            log.events.call_ended(ok(tool=secret, caller=Caller(principal=secret, client=f"x {secret}")), 0.1)
            log.events.note("warning", "refused", f"with {secret}", header=f"Bearer {secret}", value=secret)
            health = Health(state="down", reason=secret, last_error=f"- {secret}", stderr_tail="." * 3000 + secret)
            log.events.health_changed("github", health)
    assert len(log.text_lines) == 90
    assert b"s3cr3t" not in log.raw
    assert b"***" in log.raw


def test_the_human_form_reads_like_a_sentence(tmp_path):
    with LogFile(tmp_path / "log", format="human") as log:
        log.events.call_ended(ok(), 0.0123456)
        log.events.call_ended(failed(DEADLINE), 60)
        log.events.call_ended(ok(tool="", method="resources/read"), 0.001)
        log.events.note("info", "listening", "on 127.0.0.1:4747", tls=False, why="no certificate")
    lines = [re.sub(r"^\d\d:\d\d:\d\d\.\d{3} ", "", line) for line in log.text_lines]
    who = "caller=local session=01234567 client=claude-code"
    assert lines == [
        f"info    github.create_issue ok 12.346 ms {who}",
        f"warning github.create_issue TL305 (call timed out; executed: unknown) 60000.000 ms {who}",
        f'info    "resources/read github" ok 1.000 ms {who}',
        'info    listening: on 127.0.0.1:4747 tls=False why="no certificate"',
    ]


def test_a_name_with_spaces_cannot_pass_for_another_field(tmp_path):
    with LogFile(tmp_path / "log", format="human") as log:
        log.events.call_ended(ok(tool="x ok 0.001 ms caller=admin"), 0.1)
    assert '"github.x ok 0.001 ms caller=admin" ok 100.000 ms caller=local' in log.text_lines[0]


def test_a_terminal_gets_the_human_form_and_a_file_gets_json(tmp_path):
    ours, terminal = os.openpty()
    try:
        tty.setraw(terminal)
        log, events = CallLog(stream_fd=terminal, format="auto"), Events()
        log.attach(events)
        events.call_ended(ok(), 0.1)
        log.close()
        assert b"github.create_issue ok" in os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(terminal)
    with LogFile(tmp_path / "log", format="auto") as log_file:
        log_file.events.call_ended(ok(), 0.1)
    assert json.loads(log_file.text_lines[0])["tool"] == "create_issue"


def test_calls_go_on_when_the_stream_fails_and_the_loss_is_counted():
    with open("/dev/full", "wb", buffering=0) as full:
        log, events = CallLog(stream_fd=full.fileno()), Events()
        log.attach(events)
        for _ in range(100):
            events.call_ended(ok(), 0.1)
        log.close()
    assert log.dropped == 100


IDS = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_a_call_that_is_traced_says_where_its_trace_is(tmp_path: Path, log_format: LogFormat) -> None:
    events = Events()
    path = tmp_path / "log"
    with path.open("wb") as stream:
        log = CallLog(stream_fd=stream.fileno(), format=log_format)
        log.attach(events, lambda call: IDS if call.tool == "traced" else None)
        events.call_ended(ok(tool="traced"), 0.001)
        events.call_ended(ok(tool="other"), 0.001)
        log.close()
    traced, other = path.read_text().splitlines()
    if log_format == "json":
        read = json.loads(traced)
        assert (read["trace_id"], read["span_id"], read["client"]) == (*IDS, "claude-code")
        assert json.loads(other).keys() == read.keys() - {"trace_id", "span_id"}
    else:
        assert traced.endswith(f" client=claude-code trace_id={IDS[0]} span_id={IDS[1]}")
        assert other.endswith(" client=claude-code")
