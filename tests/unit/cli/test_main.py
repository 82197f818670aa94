from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.commands import environment, trunkline
from tests.support.gateway import TRUNKLINE
from tests.support.in_process import trunkline_here
from tests.support.ports import free_port
from tests.support.waiting import at_most

from trunkline.version import __version__

GOOD = "gateway: {state_dir: state, listen: '127.0.0.1:0'}\n"
BAD = "gateway:\n  listn: 127.0.0.1:1\n  max_name: hello\n"
WARNS = GOOD + "mcpServers: {a: {command: cat, autoApprove: [x]}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "warns.yaml").write_text(WARNS)
    return tmp_path


# version, help, mistakes ---------------------------------------------------------------------------------------------


def test_version_is_data_on_stdout(tmp_path: Path) -> None:
    done = trunkline("version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")
    assert trunkline_here("--version", cwd=tmp_path).stdout == f"trunkline {__version__}\n"


def test_help_is_given_for_every_command(tmp_path: Path) -> None:
    overview = trunkline_here("--help", cwd=tmp_path)
    assert overview.returncode == 0
    for command in ("up", "stdio", "check", "version"):
        assert command in overview.stdout
        done = trunkline_here(command, "-h", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "args",
    [["nonsense"], ["up", "--port", "70000"], ["up", "--prt", "1"], ["check", "a", "b"], ["check", "a", "-c", "b"]],
)
def test_wrong_use_ends_with_2_and_says_so_on_stderr(tmp_path: Path, args: list[str]) -> None:
    done = trunkline_here(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


# check ---------------------------------------------------------------------------------------------------------------


def test_a_good_file_is_fine(folder: Path) -> None:
    done = trunkline_here("check", "good.yaml", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert ": OK, " in done.stdout


def test_every_problem_of_a_bad_file_is_shown_with_its_place(folder: Path) -> None:
    done = trunkline_here("check", "bad.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bad.yaml:2:3" in done.stderr
    assert "TL102" in done.stderr
    assert "did you mean `listen`" in done.stderr
    assert "bad.yaml:3:13" in done.stderr


def test_warnings_do_not_fail_a_check(folder: Path) -> None:
    done = trunkline_here("check", "-c", "warns.yaml", cwd=folder)
    assert done.returncode == 0
    assert "TL120" in done.stderr
    assert ": OK, " in done.stdout


def local(sandbox: str, allow: str = "Bash", enabled: str = "true") -> str:
    keys = f"kind: builtin, root: ., sandbox: {sandbox}, enabled: {enabled}, tools: {{allow: [{allow}]}}"
    return f"{GOOD}sources:\n  local: {{{keys}}}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (local("auto"), "Bash runs without a sandbox"),
        (local("{network: on}"), "Bash runs without a sandbox"),
        (local("required"), "Bash is refused without a sandbox"),
    ],
)
def test_a_sandbox_that_this_machine_does_not_have_is_one_warning(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "file.yaml").write_text(text)
    done = trunkline_here("check", "file.yaml", cwd=tmp_path, env={"PATH": "/nowhere"})
    assert done.returncode == 0
    (line, hint) = done.stderr.splitlines()
    assert line.startswith(f"local: warning TL209: {words}")
    assert "apt install bubblewrap" in hint
    done = trunkline_here("check", "file.yaml", "--json", cwd=tmp_path, env={"PATH": "/nowhere"})
    (problem,) = json.loads(done.stdout)
    assert (problem["code"], problem["severity"], problem["where"]) == ("TL209", "warning", "local")


@pytest.mark.parametrize("text", [local("off"), local("auto", "Read"), local("required", enabled="false")])
def test_a_sandbox_that_nobody_needs_is_not_missed(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.yaml").write_text(text)
    done = trunkline_here("check", "file.yaml", cwd=tmp_path, env={"PATH": "/nowhere"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "status", "codes"), [("good", 0, []), ("bad", 2, ["TL102", "TL103"]), ("warns", 0, ["TL120"])]
)
def test_check_as_json_is_data_and_nothing_else(folder: Path, name: str, status: int, codes: list[str]) -> None:
    done = trunkline_here("check", f"{name}.yaml", "--json", cwd=folder)
    assert (done.returncode, done.stderr) == (status, "")
    problems = json.loads(done.stdout)
    assert [problem["code"] for problem in problems] == codes
    for problem in problems:
        assert problem["message"]


def test_a_file_that_is_not_there_is_a_configuration_problem(tmp_path: Path) -> None:
    for args in (["check", "none.yaml"], ["up", "-c", "none.yaml"], ["stdio", "-c", "none.yaml"]):
        done = trunkline_here(*args, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "TL100" in done.stderr
    listed = json.loads(trunkline_here("check", "none.yaml", "--json", cwd=tmp_path).stdout)
    assert [problem["code"] for problem in listed] == ["TL100"]


@pytest.mark.parametrize("args", [["check"], ["check", "--json"], ["up"], ["stdio"]])
def test_no_file_anywhere_is_said_with_what_to_do(tmp_path: Path, args: list[str]) -> None:
    done = trunkline_here(*args, cwd=tmp_path)
    assert done.returncode == 2
    if "--json" in args:
        assert [problem["code"] for problem in json.loads(done.stdout)] == ["TL100"]
    else:
        assert done.stdout == ""
        assert "-c FILE" in done.stderr


def test_the_file_is_found_here_first_and_then_at_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".config" / "trunkline").mkdir(parents=True)
    (home / ".config" / "trunkline" / "trunkline.yaml").write_text(GOOD)
    here = tmp_path / "here"
    here.mkdir()
    assert ".config" in trunkline_here("check", cwd=here, env={"HOME": str(home)}).stdout
    (here / "trunkline.yaml").write_text(BAD)
    assert trunkline_here("check", cwd=here, env={"HOME": str(home)}).returncode == 2


# up ------------------------------------------------------------------------------------------------------------------


@contextmanager
def running(*args: str, cwd: Path, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [TRUNKLINE, *args], cwd=cwd, env=environment(cwd), stdin=stdin, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def log_line(process: subprocess.Popen[str], event: str) -> dict[str, str]:
    """The first line of the log with this event."""
    assert process.stderr is not None
    for line in process.stderr:
        record = json.loads(line)
        if record["event"] == event:
            return record
    raise AssertionError(f"no {event} in the log")


def test_up_runs_until_it_is_told_to_stop(folder: Path) -> None:
    with running("up", "-c", "good.yaml", cwd=folder) as process:
        assert log_line(process, "started")["url"].startswith("http://127.0.0.1:")
        check_stops(process, signal.SIGTERM, 0)


def test_host_and_port_of_the_command_line_win_and_ctrl_c_stops_it_too(folder: Path) -> None:
    port = free_port()
    with running("up", "-c", "good.yaml", "--host", "localhost", "--port", str(port), cwd=folder) as process:
        assert log_line(process, "started")["url"] == f"http://localhost:{port}/mcp"
        check_stops(process, signal.SIGINT, 130)


def check_stops(process: subprocess.Popen[str], number: signal.Signals, status: int) -> None:
    process.send_signal(number)
    out, err = process.communicate(timeout=at_most(30))
    assert (process.returncode, out) == (status, "")
    assert json.loads(err.splitlines()[-1])["event"] == "stopped"


@pytest.mark.parametrize(
    ("args", "code"),
    [(["--host", "0.0.0.0"], "TL112"), (["--host", ""], "TL104"), (["--host", "no-such-host.invalid"], "TL112")],
)
def test_an_address_that_may_not_be_listened_on_ends_with_2(folder: Path, args: list[str], code: str) -> None:
    done = trunkline_here("up", "-c", "good.yaml", *args, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert code in done.stderr


@pytest.mark.parametrize("command", ["up", "stdio"])
def test_a_bad_configuration_starts_nothing(folder: Path, command: str) -> None:
    done = trunkline_here(command, "-c", "bad.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bad.yaml:2:3" in done.stderr
    assert not (folder / "state").exists()


# stdio ---------------------------------------------------------------------------------------------------------------


def test_stdio_answers_on_stdout_and_ends_with_its_input(folder: Path) -> None:
    asked = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n'
    done = trunkline("stdio", "-c", "warns.yaml", cwd=folder, stdin=asked)
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
    assert "TL120" in done.stderr


def test_stdio_ends_in_order_when_it_is_told_to(folder: Path) -> None:
    with running("stdio", "-c", "good.yaml", cwd=folder, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.terminate()
        assert process.wait(at_most(30)) == 0
        assert process.stdout.read() == ""


def test_no_standard_input_at_all_is_the_end_too(folder: Path) -> None:
    with running("stdio", "-c", "good.yaml", cwd=folder) as process:
        assert process.wait(at_most(30)) == 0
