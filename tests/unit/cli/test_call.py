from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.commands import environment, trunkline
from tests.support.gateway import TRUNKLINE
from tests.support.waiting import at_most

from trunkline.cli.main import main


def run(*arguments: str | bytes) -> Result:
    """With a file that is not there: whoever gets that far has understood the arguments."""
    return CliRunner().invoke(main, ["call", "-c", "/nowhere/at/all.yaml", *arguments])


@pytest.mark.parametrize(
    "arguments",
    [["t"], ["t", '{"a": 1}'], ["t", "a=1"], ["t", "a:=1", "b=x"], ["t", "a=1", "--", "b=-1"]],
)
def test_what_can_be_understood_is_asked(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.exit_code, "TL100" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "NAME"),
        (["t", "word"], "neither `key=value` nor a JSON object"),
        (["t", "{a: 1}"], "not a JSON object"),
        (["t", '{"a": 1}', "b=2"], "must be the only argument"),
        (["t", "a=1", "-"], "`-` is neither"),
        (["t", "--nonsense"], "No such option"),
        (["\udcff"], "not valid UTF-8"),
        ([""], "1 to 1000 characters"),
    ],
)
def test_what_cannot_be_understood_is_wrong_use_before_anybody_is_asked(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "TL100" not in done.stderr


@pytest.mark.parametrize(
    ("stdin", "said"),
    [(b'{"a": 1}\n', "TL100"), (b"\xef\xbb\xbf{}", "TL100"), (b"", "not a JSON object"), (b"\xff", "UTF-8")],
)
def test_a_dash_reads_the_object_from_standard_input(tmp_path: Path, stdin: bytes, said: str) -> None:
    done = trunkline("call", "-c", "/nowhere/at/all.yaml", "t", "-", cwd=tmp_path, stdin=stdin)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_closed_standard_input_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SystemExit) as end:
        main(["call", "-c", "/nowhere/at/all.yaml", "t", "-"], prog_name="trunkline")
    assert end.value.code == 2
    assert "no standard input" in capsys.readouterr().err


@pytest.mark.parametrize("attempt", range(3))
def test_ctrl_c_between_two_pieces_of_the_input_ends_it(tmp_path: Path, attempt: int) -> None:
    command = [TRUNKLINE, "call", "t", "-"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            for piece in range(400):
                os.write(process.stdin.fileno(), b" " * 65536)
                if piece == 200:  # it is reading
                    process.send_signal(signal.SIGINT)
        try:
            assert process.wait(at_most(60)) == 130
        finally:
            process.kill()
