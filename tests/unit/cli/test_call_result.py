from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_terminal import screen

from trunkline.cli.call_result import show_outcome
from trunkline.core.call import Failure, NeedsInput, Outcome, RemoteError, Result
from trunkline.core.errors import SOURCE_LOST, UNKNOWN_TOOL, Problem

PNG = base64.b64encode(b"\x89PNG").decode()


class Shown:
    """What `show` printed, and the status it gave."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def show(outcome: Outcome | dict[str, Any], *, as_json: bool = False, tool: str = "t") -> Shown:
        if isinstance(outcome, dict):
            outcome = Result(json.dumps(outcome).encode())
        status = show_outcome(outcome, tool, as_json=as_json, folder=tmp_path)
        return Shown(status, *capsys.readouterr())

    return show


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# Results --------------------------------------------------------------------------------------------------------------


def test_text_is_text(shown: Any) -> None:
    found = shown({"content": [text("two\nlines"), text("\x1b[31mred")]})
    assert (found.status, found.out, found.err) == (0, "two\nlines\n\x1b[31mred\n", "")


def test_on_a_terminal_text_is_tamed(monkeypatch: pytest.MonkeyPatch, shown: Any) -> None:
    shown_there = screen(monkeypatch, "stdout")
    shown({"content": [text("\x1b]0;gotcha\x07é")]})
    assert shown_there.getvalue() == "\ufffd]0;gotcha\ufffdé\n"


def test_data_is_json_and_said_once(shown: Any) -> None:
    data = {"a": [1, {"b": None}], "n": 1.5}
    found = shown({"content": [text(json.dumps(data))], "structuredContent": data})
    assert found.status == 0
    assert found.out == json.dumps(data, indent=2) + "\n"


def test_data_beside_other_text_is_shown_too(shown: Any) -> None:
    found = shown({"content": [text("two"), text("[1]")], "structuredContent": {"n": 2}})
    assert found.out == 'two\n[1]\n{\n  "n": 2\n}\n'


def test_data_keeps_every_digit(shown: Any) -> None:
    found = shown(Result(b'{"structuredContent":{"n":1.10,"big":1e999,"id":123456789012345678901}}'))
    assert found.out == '{\n  "n": 1.10,\n  "big": 1e999,\n  "id": 123456789012345678901\n}\n'


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ({"type": "image", "mimeType": "image/png", "data": PNG}, "t-1.png"),
        ({"type": "audio", "mimeType": "audio/wav", "data": PNG}, "t-1.wav"),
        ({"type": "audio", "data": PNG}, "t-1.bin"),
        ({"type": "resource", "resource": {"uri": "x:y", "mimeType": "application/pdf", "blob": PNG}}, "t-1.pdf"),
        ({"type": "resource", "resource": {"uri": "x:y", "blob": PNG}}, "t-1.bin"),
    ],
)
def test_pictures_and_sound_are_saved_and_named(shown: Any, tmp_path: Path, block: dict[str, Any], name: str) -> None:
    found = shown({"content": [block]})
    assert (found.status, found.out) == (0, "")
    assert f"saved {tmp_path / name} (" in found.err
    assert "4 bytes" in found.err
    assert (tmp_path / name).read_bytes() == b"\x89PNG"


def test_a_picture_that_cannot_be_saved_is_a_failure(shown: Any, tmp_path: Path) -> None:
    found = shown({"content": [{"type": "image", "mimeType": "image/\x1b[1m", "data": "%%%"}, text("and text")]})
    assert (found.status, found.out) == (1, "and text\n")
    assert found.err == "error: image/ [1m is not valid base64 and was not saved\n"
    assert list(tmp_path.iterdir()) == []


def test_a_hostile_name_of_a_tool_stays_in_the_folder(shown: Any, tmp_path: Path) -> None:
    shown({"content": [{"type": "image", "mimeType": "image/png", "data": PNG}]}, tool="../../up.and/away")
    assert [path.name for path in tmp_path.iterdir()] == ["_.._up.and_away-1.png"]


def test_a_link_is_its_address_with_its_name_for_people(shown: Any) -> None:
    link = {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "description": "the first"}
    found = shown({"content": [link]})
    assert (found.status, found.out, found.err) == (0, "file:///a.txt\n", "  a.txt: the first\n")
    assert shown({"content": [{"type": "resource_link", "uri": "x:y"}]}).err == ""


def test_a_resource_inside_is_its_text(shown: Any) -> None:
    found = shown({"content": [{"type": "resource", "resource": {"uri": "x:y", "text": "inside"}}]})
    assert (found.status, found.out) == (0, "inside\n")


@pytest.mark.parametrize(
    "block", [{"type": "hologram", "data": 1}, {"type": "text"}, {"type": "resource"}, "words", 5, None, [1]]
)
def test_what_nobody_knows_is_shown_as_json(shown: Any, block: Any) -> None:
    found = shown({"content": [block]})
    assert found.status == 0
    assert json.loads(found.out) == block


def test_content_that_is_no_list_is_shown_as_json(shown: Any) -> None:
    assert json.loads(shown({"content": {"a": 1}}).out) == {"a": 1}


@pytest.mark.parametrize("result", [{}, {"content": []}])
def test_nothing_is_said_to_be_nothing(shown: Any, result: dict[str, Any]) -> None:
    found = shown(result)
    assert (found.status, found.out, found.err) == (0, "", "done: the tool returned nothing\n")


def test_a_failed_tool_speaks_on_stderr(shown: Any) -> None:
    found = shown({"content": [text("no such file")], "structuredContent": {"errno": 2}, "isError": True})
    assert (found.status, found.out) == (1, "")
    assert found.err == 'no such file\n{\n  "errno": 2\n}\n'
    assert "without saying why" in shown({"isError": True}).err


def test_a_failed_tools_words_are_tamed_for_the_terminal_they_go_to(
    monkeypatch: pytest.MonkeyPatch, shown: Any
) -> None:
    errors = screen(monkeypatch, "stderr")
    assert shown({"content": [text("\x1b[2Jboo")], "isError": True}).out == ""
    assert errors.getvalue() == "\ufffd[2Jboo\n"


def test_a_question_of_the_tool_cannot_be_answered_here(shown: Any) -> None:
    asked = b'{"resultType":"input_required","inputRequests":{}}'
    for outcome in (NeedsInput(asked), Result(asked)):
        found = shown(outcome)
        assert (found.status, found.out) == (1, "")
        assert "asks for input" in found.err
    assert json.loads(shown(Result(asked), as_json=True).out)["inputRequests"] == {}


@pytest.mark.parametrize("raw", [b"[1]", b'{"a":1,"a":2}', b'{"content":' + b"[" * 100_000])
def test_an_answer_that_cannot_be_read_is_a_failure(shown: Any, raw: bytes) -> None:
    found = shown(Result(raw))
    assert (found.status, found.out) == (1, "")
    assert "cannot be read" in found.err


def test_an_answer_that_is_very_deep_is_shown_all_the_same(shown: Any) -> None:
    deep = b"[" * 900 + b"]" * 900
    found = shown(Result(b'{"content":[{"type":"text","text":"x"},%b],"structuredContent":%b}' % (deep, deep)))
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith("x\n")


# As JSON --------------------------------------------------------------------------------------------------------------


def test_as_json_the_result_is_whole(shown: Any, tmp_path: Path) -> None:
    result = {"content": [{"type": "image", "mimeType": "image/png", "data": PNG}], "isError": False}
    found = shown(result, as_json=True)
    assert (found.status, found.err, json.loads(found.out)) == (0, "", result)
    assert list(tmp_path.iterdir()) == []
    assert shown({"isError": True}, as_json=True).status == 1


def test_as_json_errors_are_data_too(shown: Any) -> None:
    remote = shown(RemoteError(b'{"code":-32050,"message":"no","data":1.10}'), as_json=True)
    assert (remote.status, remote.err) == (1, "")
    assert json.loads(remote.out) == {"error": {"code": -32050, "message": "no", "data": 1.1}}
    problem = Problem(code=UNKNOWN_TOOL, message="Unknown tool: x", tool="x")
    error = json.loads(shown(Failure(problem), as_json=True).out)["error"]
    assert (error["code"], error["message"], error["data"]["code"]) == (-32602, "Unknown tool: x", "TL301")


# Errors ---------------------------------------------------------------------------------------------------------------


def test_a_problem_has_its_code_and_what_to_do(shown: Any) -> None:
    found = shown(Failure(Problem(code=SOURCE_LOST, message="Server s: gone", hint="start it", executed="unknown")))
    assert (found.status, found.out) == (1, "")
    assert found.err == "error: TL306: Server s: gone\nhint: start it\nthe tool may have run\n"


def test_a_problem_that_the_gateway_tells_looks_the_same(shown: Any) -> None:
    data = {"code": "TL306", "executed": "unknown", "hint": "start it", "phase": "sent"}
    found = shown(RemoteError(json.dumps({"code": 520, "message": "Server s: gone", "data": data}).encode()))
    assert found.err == "error: TL306: Server s: gone\nhint: start it\nthe tool may have run\n"


def test_an_unknown_tool_is_told_with_the_commands_that_help(shown: Any) -> None:
    found = shown(Failure(Problem(code=UNKNOWN_TOOL, message="Unknown tool: x", hint="`tools/list`")))
    assert "trunkline tools" in found.err
    assert "tools/list" not in found.err


@pytest.mark.parametrize("data", [{"why": [1.5]}, "words", None, {"code": "E42", "hint": "no hint of ours"}])
def test_a_servers_own_error_passes_with_code_message_and_data(shown: Any, data: Any) -> None:
    found = shown(RemoteError(json.dumps({"code": -32050, "message": "refused\x1b[1m", "data": data}).encode()))
    assert (found.status, found.out) == (1, "")
    first, rest = found.err.split("\n", 1)
    assert first == "error: -32050: refused [1m"
    assert json.loads(rest) == data


def test_an_error_that_says_nothing_is_still_one(shown: Any) -> None:
    assert "gives no reason" in shown(RemoteError(b"{}")).err
    assert shown(RemoteError(b'{"code":1e999,"message":5}')).status == 1
