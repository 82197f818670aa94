"""`trunkline add` and `trunkline remove`, as a person or a program runs them."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.commands import Done, trunkline
from tests.support.in_process import trunkline_here
from tests.support.trust import trust


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def check_fine(folder: Path, *args: str) -> Done:
    done = trunkline_here(*args, cwd=folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done


# add -------------------------------------------------------------------------------------------------------------


def test_the_first_server_makes_a_file_that_works(tmp_path: Path) -> None:
    done = check_fine(tmp_path, "add", "files", "--", "npx", "-y", "@a/b", "--flag")
    assert "Created trunkline.yaml with the server `files`" in done.stderr
    assert "`trunkline up` runs the gateway" in done.stderr
    assert (tmp_path / "trunkline.yaml").read_text() == (
        'mcpServers:\n  files:\n    command: npx\n    args: [-y, "@a/b", --flag]\n'
    )
    assert "OK, 1 server" in trunkline_here("check", cwd=tmp_path).stdout


def test_a_new_file_with_variables_or_headers_is_private(tmp_path: Path) -> None:
    check_fine(tmp_path, "add", "a", "-c", "plain.yaml", "--", "cat")
    check_fine(tmp_path, "add", "a", "-c", "env.yaml", "-e", "A=1", "--", "cat")
    check_fine(tmp_path, "add", "a", "-c", "headers.json", "-H", "X-A: b", "http://x.example/mcp")
    assert mode_of(tmp_path / "plain.yaml") & 0o077
    assert (mode_of(tmp_path / "env.yaml"), mode_of(tmp_path / "headers.json")) == (0o600, 0o600)


def test_a_server_is_added_to_the_file_that_is_found(tmp_path: Path) -> None:
    home = tmp_path / ".config" / "trunkline"
    home.mkdir(parents=True)
    (home / "trunkline.yaml").write_text("# mine\n")
    done = check_fine(tmp_path, "add", "web", "https://x.example/mcp", "--transport", "sse")
    assert f"Added `web` to {home / 'trunkline.yaml'} (line 3)" in done.stderr
    assert "running gateway picks up the change automatically" in done.stderr
    assert "type: sse" in (home / "trunkline.yaml").read_text()
    assert not (tmp_path / "trunkline.yaml").exists()


def test_options_may_stand_before_and_behind_the_name(tmp_path: Path) -> None:
    check_fine(tmp_path, "add", "--disabled", "a", "-e", "B=c=d", "--cwd", "/srv", "--", "cat", "-e", "x")
    assert (tmp_path / "trunkline.yaml").read_text() == (
        "mcpServers:\n  a:\n    command: cat\n    args: [-e, x]\n    env:\n      B: c=d\n    cwd: /srv\n"
        "    disabled: true\n"
    )


def test_a_variable_without_a_value_comes_from_the_environment(tmp_path: Path) -> None:
    done = trunkline_here("add", "a", "-e", "TOKEN", "--", "cat", cwd=tmp_path)
    assert done.returncode == 0
    assert 'TOKEN: "${TOKEN}"' in (tmp_path / "trunkline.yaml").read_text()
    assert "warning TL110: Environment variable `TOKEN` is not set here" in done.stderr
    assert "set it where the gateway runs, or the server will be down" in done.stderr
    checked = trunkline_here("check", cwd=tmp_path)
    assert checked.returncode == 0
    assert checked.stdout.endswith("OK, 1 server, trusted; 1 cannot start until the warnings above are resolved\n")
    done = trunkline_here("add", "b", "-e", "TOKEN", "--", "cat", cwd=tmp_path, env={"TOKEN": "t"})
    assert "TL110" not in done.stderr


@pytest.mark.law
def test_a_secret_is_warned_about_and_not_shown(tmp_path: Path) -> None:
    done = trunkline_here("add", "a", "-e", "API_KEY=hunter2hunter2", "--", "cat", cwd=tmp_path)
    assert done.returncode == 0
    assert "trunkline.yaml:5:7: warning TL121" in done.stderr
    assert "hunter2" not in done.stderr


def test_a_taken_name_is_refused_unless_forced(tmp_path: Path) -> None:
    check_fine(tmp_path, "add", "a", "--", "cat")
    before = (tmp_path / "trunkline.yaml").read_bytes()
    done = trunkline_here("add", "a", "--", "tac", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "TL106" in done.stderr
    assert "hint: use another name, or replace it with `--force`" in done.stderr
    assert (tmp_path / "trunkline.yaml").read_bytes() == before
    done = check_fine(tmp_path, "add", "--force", "a", "--", "tac")
    assert "Replaced `a` in trunkline.yaml (line 2)" in done.stderr
    assert (tmp_path / "trunkline.yaml").read_bytes() == before.replace(b"cat", b"tac")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["add"], "Missing argument"),
        (["add", "a"], "Missing argument"),
        (["add", "a", "npx", "-y", "x"], "put `--` before the server's command"),
        (["add", "a", "sh", "-c", "x"], "`sh` is not a URL\nhint: put `--` before the server's command"),
        (["add", "a", "cat"], "`cat` is not a URL"),
        (["add", "a", "ftp://x/"], "`ftp://x/` is not a URL"),
        (["add", "a", "http://x/", "http://y/"], "put `--` before the server's command"),
        (["add", "a", "-e", "=b", "--", "cat"], "is not `NAME=VALUE`"),
        (["add", "a", "-H", "secret", "http://x/"], "A header is written `NAME: VALUE`"),
        (["add", "a", "-e", "A=1", "http://x/"], "`--env` cannot be used with a URL"),
        (["add", "a", "--cwd", "/x", "http://x/"], "`--cwd` cannot be used with a URL"),
        (["add", "a", "-H", "A: b", "--", "cat"], "`--header` cannot be used with a command"),
        (["add", "a", "--transport", "sse", "--", "cat"], "`--transport` cannot be used with a command"),
        (["add", "a", "--transport", "tcp", "http://x/"], "'tcp' is not one of"),
        (["add", "trunkline", "--", "cat"], "TL111"),
        (["add", "a.b", "--", "cat"], "TL111"),
        (["add", "a", "http://u:p@x/"], "TL104"),
        (["add", "a", "--", "trunkline", "stdio"], "TL115"),
    ],
)
def test_mistakes_end_with_2_and_write_nothing(tmp_path: Path, args: list[str], said: str) -> None:
    done = trunkline_here(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_a_syntax_error_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "trunkline.yaml").write_text("mcpServers: [\n")
    done = trunkline_here("add", "a", "--", "cat", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "trunkline.yaml:2:1: TL101" in done.stderr
    assert (tmp_path / "trunkline.yaml").read_text() == "mcpServers: [\n"


def test_a_file_with_other_errors_is_edited_and_they_are_mentioned(tmp_path: Path) -> None:
    (tmp_path / "trunkline.yaml").write_text("gatewy: {}\n")
    done = check_fine(tmp_path, "add", "a", "-c", "trunkline.yaml", "--", "cat")
    assert "no gateway uses it until they are fixed: see `trunkline check`" in done.stderr


def test_paths_are_meant_from_here_and_work_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    check_fine(tmp_path, "add", "near", "--cwd", "sub", "--", "./run.sh", "./arg")
    check_fine(tmp_path, "add", "far", "-c", "conf/trunkline.yaml", "--cwd", ".", "--", "bin/run.sh", "./arg")
    assert "command: ./run.sh\n" in (tmp_path / "trunkline.yaml").read_text()
    assert "cwd: sub\n" in (tmp_path / "trunkline.yaml").read_text()
    far = (tmp_path / "conf" / "trunkline.yaml").read_text()
    assert f"command: {tmp_path}/bin/run.sh\n    args: [./arg]\n    cwd: {tmp_path}\n" in far


def test_a_file_as_an_argument_gets_a_note(tmp_path: Path) -> None:
    (tmp_path / "server.py").touch()
    assert "--cwd ." in check_fine(tmp_path, "add", "a", "--", "python3", "server.py").stderr
    assert "note:" not in check_fine(tmp_path, "add", "b", "--cwd", ".", "--", "python3", "server.py").stderr
    assert "note:" not in check_fine(tmp_path, "add", "c", "--", "python3", str(tmp_path / "server.py")).stderr


def test_adding_tells_programs_what_was_done(tmp_path: Path) -> None:
    done = trunkline_here("add", "a", "-e", "API_KEY=hunter2hunter2", "--json", "--", "cat", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert [problem["code"] for problem in said.pop("problems")] == ["TL121"]
    assert said == {
        "action": "added",
        "name": "a",
        "file": str(tmp_path / "trunkline.yaml"),
        "created": True,
        "place": "mcpServers",
        "line": 2,
        "loads": True,
    }
    done = trunkline_here("add", "a", "--json", "--", "cat", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    said = json.loads(done.stdout)
    assert (said["action"], [problem["code"] for problem in said["problems"]]) == ("none", ["TL106"])


def test_arguments_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for name, args in (("\udcff", ["cat"]), ("a", ["cat", "\udcff"])):
        done = trunkline_here("add", name, "--json", "--", *args, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (2, "")
        assert json.loads(done.stdout)["problems"][0]["code"] in ("TL104", "TL111")
    assert list(tmp_path.iterdir()) == []


def test_many_at_once_all_arrive(tmp_path: Path) -> None:
    (tmp_path / "trunkline.yaml").write_text("mcpServers:\n")
    trust(tmp_path, {"HOME": str(tmp_path)})
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: trunkline("add", f"s{n}", "--", "cat", cwd=tmp_path), range(4)))
    assert [done.returncode for done in results] == [0] * 4, [done.stderr for done in results]
    assert "OK, 4 servers, trusted" in trunkline_here("check", cwd=tmp_path).stdout


# remove ----------------------------------------------------------------------------------------------------------


def test_what_was_added_can_be_removed(tmp_path: Path) -> None:
    text = '{\n  "mcpServers": {\n    "b": {"command": "cat"}\n  }\n}\n'
    (tmp_path / ".mcp.json").write_text(text)
    check_fine(tmp_path, "add", "-c", ".mcp.json", "a", "--", "cat")
    done = check_fine(tmp_path, "remove", "-c", ".mcp.json", "a")
    assert "Removed `a` from .mcp.json (line 4)" in done.stderr
    assert (tmp_path / ".mcp.json").read_text() == text


def test_an_unknown_server_ends_with_1_and_names_near_ones(tmp_path: Path) -> None:
    check_fine(tmp_path, "add", "files", "--", "cat")
    done = trunkline_here("remove", "flies", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "TL301: Unknown server `flies`\nhint: did you mean `files`?" in done.stderr


def test_without_a_file_there_is_nothing_to_remove(tmp_path: Path) -> None:
    for args in (["remove", "a"], ["remove", "a", "-c", "none.yaml"]):
        done = trunkline_here(*args, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "TL100" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_removing_tells_programs_what_was_done(tmp_path: Path) -> None:
    check_fine(tmp_path, "add", "a", "--", "cat")
    said = json.loads(trunkline_here("remove", "a", "--json", cwd=tmp_path).stdout)
    assert (said["action"], said["place"], said["line"], said["problems"]) == ("removed", "mcpServers", 2, [])
    said = json.loads(trunkline_here("remove", "a", "--json", cwd=tmp_path).stdout)
    assert (said["action"], said["problems"][0]["code"]) == ("none", "TL301")
