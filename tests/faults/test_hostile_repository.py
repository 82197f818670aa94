"""A repository whose files say what is to be started: nothing of it is, whichever command is run there, until its user
trusts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tests.support.commands import Terminal, environment, trunkline
from tests.support.config_files import KINDS
from tests.support.gateway import TRUNKLINE
from tests.support.in_process import trunkline_here
from tests.support.servers import StdioFaults
from tests.support.trust import trust
from tests.support.waiting import at_most, wait_until

from trunkline import Gateway
from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.gateway.library.errors import ConfigurationError

WORKFLOW = """\
name: x
states:
  initial: a
  a:
    type: agent
    provider: claude
    prompt: go
    mcp_proxy: {enable: true, plugin_tools: [{plugin: evil, expose: [x]}]}
"""
PLAIN = (
    "name: x\nstates:\n  initial: a\n  a: {type: step, command: 'touch ran', on_success: b}\n  b: {type: terminal}\n"
)
COMMANDS = [
    ["up", "--port", "0"],
    ["stdio"],
    ["stdio", "--alone"],
    ["call", "evil_x"],
    ["call", "evil_x", "--json"],
    ["tools"],
    ["tools", "--json"],
    ["tools", "find", "me"],
    ["servers"],
    ["servers", "--json"],
    ["budget"],
    ["budget", "--json"],
    ["explain", "--tool", "evil_x"],
    ["explain", "--tool", "evil_x", "--json"],
    ["connect"],
    ["connect", "--json"],
    *(["agent", name, *mode] for name in ("claude", "codex", "gemini", "opencode") for mode in ([], ["--additive"])),
    ["agent", "claude", "--", "-p", "hi"],
    ["run", "w.yaml"],
    ["run", "w.yaml", "--json"],
    ["add", "more", "--", "cat"],
    ["add", "more", "--json", "--", "cat"],
    ["remove", "evil"],
    ["remove", "evil", "--json"],
]


class Repository:
    """Somebody else's folder, in which every file that may start something touches `ran`."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.folder = self.home / "repository"
        self.folder.mkdir(parents=True)
        self.marker = folder / "ran"
        self.evil = {"command": sys.executable, "args": ["-c", f"open({str(self.marker)!r}, 'w')"]}
        self.write("w.yaml", WORKFLOW)

    def write(self, name: str, content: object) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def configure(self, name: str = "trunkline.yaml", **more: Any) -> Path:
        return self.write(name, {"mcpServers": {"evil": self.evil}, **more})

    def plugins(self) -> Path:
        return self.write(".awf/plugins.yaml", {"plugins": {"evil": self.evil}})

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return trunkline(*args, cwd=self.folder, env={"HOME": str(self.home), **env})

    def nothing_ran(self) -> None:
        assert not self.marker.exists()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def refused(done: subprocess.CompletedProcess[str], *, as_json: bool = False) -> None:
    """Exit 2, and one line with the command that helps, or that as JSON."""
    assert done.returncode == 2, (done.stdout, done.stderr)
    if as_json:
        printed = json.loads(done.stdout)
        [problem] = printed["problems"] if isinstance(printed, dict) else printed
        assert (problem["code"], done.stderr) == ("TL116", "")
        assert "trunkline trust " in problem["message"]
    else:
        [line] = done.stderr.splitlines()
        assert "TL116" in line
        assert "`trunkline trust " in line
        assert done.stdout == ""


# -- a configuration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_nothing_of_a_configuration_is_started(repository: Repository, args: list[str]) -> None:
    path = repository.configure()
    before = path.read_bytes()
    done = trunkline_here(*args, cwd=repository.folder, env={"HOME": str(repository.home)})
    refused(done, as_json="--json" in args)
    repository.nothing_ran()
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["trunkline.yaml", "trunkline.yml", "trunkline.json"])
@pytest.mark.parametrize("link", [False, True], ids=["file", "link"])
def test_whatever_it_is_called(repository: Repository, name: str, link: bool) -> None:
    if link:
        elsewhere = repository.configure("elsewhere.json")
        (repository.folder / name).symlink_to(elsewhere)
    else:
        repository.configure(name)
    refused(repository.run("tools"))
    repository.nothing_ran()


def test_check_reads_it_and_says_that_it_is_not_trusted(repository: Repository) -> None:
    repository.configure()
    done = repository.run("check")
    assert (done.returncode, "TL116" in done.stderr) == (0, True)
    [problem] = json.loads(repository.run("check", "--json").stdout)
    assert (problem["code"], problem["severity"]) == ("TL116", "warning")
    assert repository.run("trust", "--yes").returncode == 0
    assert "1 server, trusted" in repository.run("check").stdout
    repository.nothing_ran()


def test_check_says_all_of_it_on_one_line(repository: Repository) -> None:
    repository.write("sub\nTrusted by you/trunkline.yaml", "{}")
    done = trunkline("check", cwd=repository.folder / "sub\nTrusted by you", env={"HOME": str(repository.home)})
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)


def test_its_servers_are_not_even_completed(repository: Repository) -> None:
    repository.configure()
    asked = {"_TRUNKLINE_COMPLETE": "bash_complete", "COMP_WORDS": "trunkline remove ", "COMP_CWORD": "2"}
    assert repository.run(**asked).stdout.strip() == ""


async def test_a_program_that_embeds_a_gateway_is_told(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.configure()
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("HOME", str(repository.home))
    with pytest.raises(ConfigurationError) as error:
        await Gateway().__aenter__()
    assert error.value.code == "TL116"
    repository.nothing_ran()


def test_a_workflow_from_elsewhere_is_not_led_by_the_folder_that_it_works_in(repository: Repository) -> None:
    mine = repository.home / "mine.yaml"
    mine.write_text(PLAIN)
    repository.configure()
    for args in (["run", str(mine)], ["run", str(mine), "--dir", str(repository.folder)]):
        refused(trunkline(*args, cwd=repository.folder if len(args) == 2 else repository.home))
    repository.nothing_ran()
    assert not (repository.folder / "ran").exists()


def test_what_is_named_or_the_users_own_needs_no_trust(repository: Repository) -> None:
    server = StdioFaults(repository.folder, "s")
    named = repository.write("named.json", {"sources": server.entry()})
    assert repository.run("call", "-c", str(named), "s_echo", "a=1").returncode == 0
    own = repository.home / ".config" / "trunkline" / "trunkline.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(named.read_text())
    assert repository.run("call", "s_echo", "a=1").returncode == 0
    repository.configure()
    refused(repository.run("call", "s_echo", "a=1"))
    repository.nothing_ran()


def test_in_a_folder_that_was_removed_the_users_own_file_counts(repository: Repository) -> None:
    own = repository.home / ".config" / "trunkline" / "trunkline.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    gone = repository.home / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$0" servers', TRUNKLINE],
        cwd=gone,
        env=environment(repository.home),
        capture_output=True,
        text=True,
        check=False,
        timeout=at_most(30),
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_add_does_not_trust_what_stood_there_before(repository: Repository) -> None:
    repository.configure()
    assert repository.run("add", "-c", "trunkline.yaml", "mine", "--", "cat").returncode == 0
    refused(repository.run("tools"))
    repository.nothing_ran()


def test_what_add_and_remove_write_is_trusted(repository: Repository) -> None:
    server = StdioFaults(repository.folder, "s").entry()["s"]
    command = [server["command"], *server["args"]]
    assert repository.run("add", "s", "--", *command).returncode == 0
    assert repository.run("call", "s_echo", "a=1").returncode == 0
    assert repository.run("add", "other", "--", "cat").returncode == 0
    assert repository.run("remove", "other").returncode == 0
    assert repository.run("call", "s_echo", "a=1").returncode == 0
    path = repository.folder / "trunkline.yaml"
    path.write_text(f"{path.read_text()}  evil: {json.dumps(repository.evil)}\n")
    refused(repository.run("add", "third", "--", "cat"))
    refused(repository.run("call", "s_echo", "a=1"))
    repository.nothing_ran()


def test_a_changed_script_is_asked_about_again(repository: Repository) -> None:
    repository.write("server.py", "raise SystemExit(0)")
    repository.write("trunkline.yaml", {"mcpServers": {"s": {"command": sys.executable, "args": ["server.py"]}}})
    assert repository.run("trust", "--yes").returncode == 0
    assert repository.run("servers").returncode == 1
    repository.write("server.py", repository.evil["args"][1])
    refused(repository.run("servers"))
    repository.nothing_ran()


def test_trust_is_listed_and_revoked(repository: Repository) -> None:
    path = repository.configure()
    plugins = repository.plugins()
    assert repository.run("trust").returncode == 2
    assert repository.run("trust", "--list").stdout == ""
    done = repository.run("trust", "--yes")
    assert (done.returncode, done.stdout) == (0, "")
    assert "It would start:" in done.stderr
    listed = repository.run("trust", "--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [str(plugins), str(path)]
    assert repository.run("trust", "--revoke", "trunkline.yaml").returncode == 0
    refused(repository.run("tools"))
    assert repository.run("trust", "--revoke", "trunkline.yaml").returncode == 2
    assert repository.run("trust", "w.yaml").returncode == 2
    assert repository.run("trust", "--revoke").returncode == 0  # the other one
    assert repository.run("trust", "--list").stdout == ""
    repository.nothing_ran()


@pytest.mark.needs("bwrap")
def test_no_tool_of_an_agent_gets_at_the_list_of_what_is_trusted(repository: Repository) -> None:
    """Not even where its root is the home folder, the state lies elsewhere, and nothing was ever trusted."""
    source = {"kind": "builtin", "root": "..", "tools": {"allow": ["*", "Bash"]}, "sandbox": "required"}
    named = repository.write("named.json", {"gateway": {"state_dir": "state"}, "sources": {"b": source}})
    kept = Path(".local", "state", "trunkline", "trusted.json")
    written = repository.run("call", "-c", str(named), "Write", f"path={kept}", "content=mine")
    assert written.returncode == 1
    planted = f"mkdir -p {kept.parent}; echo mine > {kept}; mv .local old"
    repository.run("call", "-c", str(named), "Bash", f"command={planted}")
    assert not (repository.home / kept).exists()
    assert (repository.home / kept.parent).is_dir()


# -- plugins ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [["up", "--port", "0"], ["tools"], ["agent", "claude"], ["run", "w.yaml"]], ids=" ".join
)
@pytest.mark.parametrize("named", [False, True], ids=["found", "named"])
def test_nothing_of_a_plugins_file_is_started(repository: Repository, args: list[str], named: bool) -> None:
    """A configuration beside it that counts says nothing about it."""
    path = repository.write("trunkline.yaml", "{}")
    if not named:
        trust(path, {"HOME": str(repository.home)})
    repository.plugins()
    refused(repository.run(*args, *(["-c", str(path)] if named else [])))
    repository.nothing_ran()


def test_validate_starts_none_unless_that_is_asked_for(repository: Repository) -> None:
    repository.plugins()
    done = repository.run("validate", "w.yaml")
    assert (done.returncode, done.stdout) == (0, "w.yaml: OK, 1 state; operations not checked of `evil`\n")
    assert "--start-plugins" in done.stderr
    problems = json.loads(repository.run("validate", "w.yaml", "--json").stdout)
    assert {problem["code"] for problem in problems} == {"TL605", "TL116"}
    repository.write("w.yaml", WORKFLOW.replace("prompt: go", "promt: go"))
    assert repository.run("validate", "w.yaml", "--start-plugins").returncode == 2
    repository.nothing_ran()
    repository.write("w.yaml", WORKFLOW)
    assert repository.run("validate", "w.yaml", "--start-plugins").returncode == 2  # it is no plugin
    assert repository.marker.exists()


def test_validate_starts_none_of_a_configuration_either(repository: Repository) -> None:
    repository.write("trunkline.yaml", {"sources": {"evil": {"kind": "plugin", **repository.evil}}})
    done = repository.run("validate", "w.yaml")
    assert (done.returncode, "TL605" in done.stderr) == (0, True)
    repository.nothing_ran()


def test_a_workflow_that_asks_for_no_plugin_does_not_need_the_file(repository: Repository) -> None:
    repository.plugins()
    repository.write("plain.yaml", PLAIN)
    assert repository.run("run", "plain.yaml").returncode == 0
    repository.nothing_ran()


def test_a_repository_does_not_take_the_names_beside_a_workflow(repository: Repository) -> None:
    """Its plugin `evil` is trusted, and is still not the one of a workflow that has its own."""
    mine = repository.home / "mine" / "w.yaml"
    (mine.parent / ".awf").mkdir(parents=True)
    mine.write_text(WORKFLOW)
    (mine.parent / ".awf" / "plugins.yaml").write_text('plugins: {evil: {command: "/does/not/exist"}}\n')
    trust(mine.parent, {"HOME": str(repository.home)})
    repository.write("trunkline.yaml", {"sources": {"evil": {"kind": "plugin", **repository.evil}}})
    repository.plugins()
    trust(repository.folder, {"HOME": str(repository.home)})
    done = repository.run("validate", str(mine))
    assert (done.returncode, "/does/not/exist" in done.stderr) == (2, True)
    repository.nothing_ran()


# -- a gateway that runs ----------------------------------------------------------------------------------------------


@contextmanager
def running(repository: Repository) -> Iterator[Path]:
    """`trunkline up` with the file of the folder, which is trusted; its log."""
    log = repository.home / "log"
    env = environment(repository.home)
    with log.open("wb") as out:
        process = subprocess.Popen([TRUNKLINE, "up", "--port", "0"], cwd=repository.folder, env=env, stderr=out)
    try:
        wait_until(lambda: "listens on" in log.read_text(), "it runs", 30)
        yield log
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: '"because":"SIGHUP"' in log.read_text(), "it has read the file once more", 30)
    finally:
        process.terminate()
        assert process.wait(at_most(30)) == 0


def test_a_running_gateway_does_not_take_over_what_is_not_trusted(repository: Repository) -> None:
    server = StdioFaults(repository.folder, "s")
    repository.write("trunkline.yaml", {"sources": server.entry()})
    trust(repository.folder, {"HOME": str(repository.home)})
    with running(repository) as log:
        repository.write("trunkline.yaml", {"sources": server.entry(), "mcpServers": {"evil": repository.evil}})
        wait_until(lambda: "is not trusted; the old one" in log.read_text(), "it is refused", 30)
        asked = repository.run("call", "s_echo", "a=1")  # of the gateway that runs, as it is
        assert (asked.returncode, "is not trusted; asking" in asked.stderr) == (0, True)
    repository.nothing_ran()


def test_a_pipe_in_place_of_its_plugins_file_holds_up_no_gateway_that_runs(repository: Repository) -> None:
    """Nobody writes to it: whoever waited for that would answer nobody for seconds."""
    repository.write("trunkline.yaml", "{}")
    trust(repository.folder, {"HOME": str(repository.home)})
    (repository.folder / ".awf").mkdir()
    with running(repository) as log:
        os.mkfifo(repository.folder / ".awf" / "plugins.yaml")
        wait_until(lambda: "it is not a regular file" in log.read_text(), "it is refused", 30)
        assert "nobody writes to" not in log.read_text()


def test_it_is_taken_over_once_it_is_trusted(repository: Repository) -> None:
    repository.write("trunkline.yaml", "{}")
    trust(repository.folder, {"HOME": str(repository.home)})
    with running(repository) as log:
        assert f'"config":"{repository.folder / "trunkline.yaml"}"' in log.read_text()
        repository.configure()
        wait_until(lambda: "is not trusted; the old one" in log.read_text(), "it is refused", 30)
        repository.nothing_ran()
        assert repository.run("trust", "--yes").returncode == 0
        wait_until(repository.marker.exists, "it is started", 30)


def test_a_file_that_is_not_trusted_leads_nobody_to_its_gateway(repository: Repository) -> None:
    """Neither to what its `state_dir` says that runs, nor to its address with a token of the environment."""
    repository.configure(gateway={"state_dir": "state", "listen": "127.0.0.1:9"})
    refused(repository.run("tools", TRUNKLINE_TOKEN="secret-of-the-user"))
    refused(repository.run("stdio", TRUNKLINE_TOKEN="secret-of-the-user"))
    repository.nothing_ran()


# -- the question -----------------------------------------------------------------------------------------------------


def on_terminal(repository: Repository, *args: str) -> Terminal:
    return Terminal(*args, cwd=repository.folder, env={"HOME": str(repository.home)}, columns=200)


def test_a_person_is_shown_what_would_start_and_asked(repository: Repository) -> None:
    server = StdioFaults(repository.folder, "s")
    repository.write(
        "trunkline.yaml", {"sources": {**server.entry(), "b": {"kind": "builtin", "root": ".", "sandbox": "off"}}}
    )
    with on_terminal(repository, "call", "s_echo", "a=1") as terminal:
        terminal.wait_for("Do you trust it?")
        assert server.events("start") == []
        for part in ("It would start:", server.entry()["s"]["command"], "It would weaken protection:", "sandbox: off"):
            assert part in terminal.screen
        terminal.type("y\n")
        assert terminal.finish() == 0
    assert len(server.events("start")) == 1
    with on_terminal(repository, "call", "s_echo", "a=1") as terminal:
        assert terminal.finish() == 0
        assert "trust" not in terminal.screen


def test_whoever_is_asked_about_more_than_a_screen_is_told_so(repository: Repository) -> None:
    repository.configure(sources={f"s{number}": {"kind": "mcp_stdio", "command": "cat"} for number in range(60)})
    with on_terminal(repository, "tools") as terminal:
        terminal.wait_for("Do you trust it?")
        assert "the ones at the top matter most" in terminal.screen
        terminal.type("n\n")
        assert terminal.finish() == 2


def test_without_a_stdin_nobody_is_asked(repository: Repository) -> None:
    """Closed, not empty: whoever starts daemons does that."""
    repository.configure()
    for command in ("tools", "up --port 0", "trust"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" {command} <&-', TRUNKLINE],
            cwd=repository.folder,
            env=environment(repository.home),
            capture_output=True,
            text=True,
            check=False,
            timeout=at_most(30),
        )
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    repository.nothing_ran()


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04", "yes please\nn\n"])
def test_any_other_answer_starts_nothing(repository: Repository, answer: str) -> None:
    repository.configure()
    with on_terminal(repository, "tools") as terminal:
        terminal.wait_for("Do you trust it?")
        terminal.type(answer)
        assert terminal.finish() == 2
        assert "TL116" in terminal.screen
    repository.nothing_ran()


def test_ctrl_c_starts_nothing_either(repository: Repository) -> None:
    repository.configure()
    with on_terminal(repository, "tools") as terminal:
        terminal.wait_for("Do you trust it?")
        terminal.press_ctrl_c()
        assert terminal.finish() in (2, 130)
    repository.nothing_ran()


def test_what_is_put_there_during_the_question_does_not_count(repository: Repository) -> None:
    repository.write("trunkline.yaml", "mcpServers: {a: {command: cat}}\n")
    with on_terminal(repository, "tools") as terminal:
        terminal.wait_for("Do you trust it?")
        repository.configure()
        terminal.type("y\n")
        wait_until(lambda: terminal.screen.count("Do you trust it?") == 2, "it is asked again", 30)
        assert "has changed since it was trusted" in terminal.screen
        terminal.type("n\n")
        assert terminal.finish() == 2
    repository.nothing_ran()


def test_what_it_says_cannot_drive_the_terminal(repository: Repository) -> None:
    evil = {"command": "\x1b[2Jsafe", "args": ["\u202edlrow", "a\nTrusted by Trunkline\r"]}
    repository.write("trunkline.json", {"mcpServers": {"\x1b]0;x\x07": evil}})
    with on_terminal(repository, "trust") as terminal:
        terminal.wait_for("Do you trust it?")
        assert "\x1b[2J" not in terminal.written
        assert "\u202e" not in terminal.written
        assert "\x1b]0" not in terminal.written
        assert not any(line.startswith("Trusted by") for line in terminal.screen.splitlines())
        terminal.type("n\n")
        assert terminal.finish() == 2


def test_add_asks_for_what_stands_in_the_file_already(repository: Repository) -> None:
    path = repository.write("trunkline.yaml", "mcpServers:\n  theirs: {command: cat}\n")
    with on_terminal(repository, "add", "mine", "--", "cat") as terminal:
        terminal.wait_for("Do you trust it?")
        assert "theirs: cat" in terminal.screen
        terminal.type("n\n")
        assert terminal.finish() == 2
    assert "mine" not in path.read_text()
    with on_terminal(repository, "add", "mine", "--", "cat") as terminal:
        terminal.wait_for("Do you trust it?")
        terminal.type("y\n")
        assert terminal.finish() == 0
    assert "2 servers, trusted" in repository.run("check").stdout


def test_a_start_says_which_file_counts(repository: Repository) -> None:
    repository.write("trunkline.yaml", "{}")
    trust(repository.folder, {"HOME": str(repository.home)})
    alone = repository.run("stdio", "--alone")
    assert f'"config":"{repository.folder / "trunkline.yaml"}"' in alone.stderr
    with on_terminal(repository, "up", "--port", "0") as terminal:
        terminal.wait_for(f"configuration: {repository.folder / 'trunkline.yaml'}")
        terminal.wait_for("Trunkline is up")
        terminal.press_ctrl_c()
        terminal.finish()


# -- at the same moment -----------------------------------------------------------------------------------------------


def test_a_file_that_is_swapped_all_the_time_never_counts_as_another(repository: Repository) -> None:
    """One that is trusted and one that is not take each other's place while it is loaded again and again."""
    good, bad = '{"mcpServers": {"a": {"command": "cat"}}}', json.dumps({"mcpServers": {"evil": repository.evil}})
    path = repository.write("trunkline.json", good)
    environ = {"HOME": str(repository.home)}
    trust(path, environ)
    stop = Event()

    def swap() -> None:
        scratch = path.with_suffix(".tmp")
        while not stop.is_set():
            for text in (bad, good):
                scratch.write_text(text)
                os.replace(scratch, path)

    swapping = Thread(target=swap)
    swapping.start()
    try:
        for _ in range(300):
            loaded = load_config(ConfigFile(path, "found"), environ=environ, kinds=KINDS)
            assert loaded.settings is None or list(loaded.settings.sources) == ["a"]
    finally:
        stop.set()
        swapping.join()
