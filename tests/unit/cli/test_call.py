from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from trunkline.cli.main import main


def run(*arguments: str | bytes, stdin: bytes = b"") -> Result:
    """With a file that is not there: whoever gets that far has understood the arguments."""
    return CliRunner().invoke(main, ["call", "-c", "/nowhere/at/all.yaml", *arguments], input=stdin)


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
        (["t", '{"a": 1}', "b=2"], "nothing can stand beside it"),
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
def test_a_dash_reads_the_object_from_standard_input(stdin: bytes, said: str) -> None:
    done = run("t", "-", stdin=stdin)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_closed_standard_input_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SystemExit) as end:
        main(["call", "-c", "/nowhere/at/all.yaml", "t", "-"], prog_name="trunkline")
    assert end.value.code == 2
    assert "no standard input" in capsys.readouterr().err
