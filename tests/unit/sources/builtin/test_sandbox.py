from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest
from tests.support.cases import case
from tests.support.child_trees import new_mark, survivors
from tests.support.waiting import at_most

from trunkline.config.sandbox import SandboxSettings
from trunkline.sources.builtin.sandbox import Sandbox

BWRAP = shutil.which("bwrap") or ""
real = pytest.mark.needs("bwrap")


class Place:
    """A root folder, a home with something secret, and state of ours."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.home = folder / "home"
        self.state = folder / "state"
        for made in (self.root, self.home, self.state):
            made.mkdir()
            (made / "secret").write_text(f"secret of {made.name}")
        tools = self.home / ".local" / "bin"
        tools.mkdir(parents=True)
        tool = tools / "my-tool"
        tool.write_text("#!/bin/sh\necho my tool\n")
        tool.chmod(0o755)
        env = {"PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home)}
        self.sandbox = Sandbox(BWRAP or "bwrap", str(self.root), env, [str(self.state)])

    def run(self, script: str) -> str:
        return run_in(self.sandbox, script)


def run_in(sandbox: Sandbox, script: str, folder: Path | None = None, pinned: Sequence[str] = ()) -> str:
    argv = sandbox.wrap(["/bin/sh", "-c", script], str(folder or sandbox.root), pinned=pinned)
    env = sandbox.environment()
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=at_most(60), stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.sandbox.close()


def test_what_killed_gateways_left_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = [f"trunkline-bash-{ended.pid}-a", f"trunkline-bash-{os.getpid()}-b", "trunkline-bash-x-c", "other"]
    for name in names:
        (tmp_path / name / "tmp").mkdir(parents=True)
    sandbox = Sandbox("bwrap", "/usr", {"PATH": "", "HOME": ""})
    sandbox.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_where_its_folders_cannot_be_made_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "makedirs", full)
    with pytest.raises(OSError, match="No space left"):
        Sandbox("bwrap", "/usr", {"PATH": "", "HOME": ""})
    assert list(tmp_path.iterdir()) == []


# -- what bubblewrap does ----------------------------------------------------------------------------------------------


@pytest.mark.law
@real
def test_inside_the_root_is_there_and_the_rest_is_read_only_or_hidden(place: Place) -> None:
    assert place.run("pwd; cat secret; echo new > file") == f"{place.root}\nsecret of project"
    assert (place.root / "file").read_text() == "new\n"
    assert "Read-only file system" in place.run("echo x > /etc/trunkline-was-here")
    assert "secret of" not in place.run(
        f"cat {place.home}/secret {place.state}/secret; ls -R {place.home} {place.state}"
    )
    assert place.run("ls -A /run /home | grep -v -e : -e '^$' -e systemd") == ""


@real
def test_inside_the_system_works_as_usual(place: Place) -> None:
    assert place.run("my-tool") == "my tool\n"
    assert (
        place.run("getent hosts localhost >/dev/null && echo names; : >/dev/null && echo devices") == "names\ndevices\n"
    )
    assert place.run("echo $TMPDIR; mktemp -u").startswith("/tmp\n/tmp/")


@real
def test_what_is_left_in_tmp_and_home_is_there_for_the_next_command_and_nobody_else(place: Place) -> None:
    name = f"trunkline-{os.getpid()}"
    place.run(f"echo one > /tmp/{name}; echo two > ~/kept")
    assert place.run(f"cat /tmp/{name} ~/kept") == "one\ntwo\n"
    assert not Path("/tmp", name).exists()
    assert not (place.home / "kept").exists()
    scratch = place.sandbox.scratch
    private = [scratch, *(path for path in scratch.iterdir() if path.is_dir())]
    assert len(private) > 1
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in private} == {0o700}
    place.sandbox.close()
    assert not place.sandbox.scratch.exists()


@pytest.mark.law
@real
def test_inside_no_other_process_is_seen_and_no_power_is_left(place: Place) -> None:
    pids = place.run("ls /proc").split()
    assert str(os.getpid()) not in pids
    assert len([pid for pid in pids if pid.isdigit()]) < 5
    assert place.run("grep CapEff /proc/self/status").split() == ["CapEff:", "0" * 16]
    written = place.run("echo 60 > /proc/sys/vm/swappiness; mount -o remount,bind,rw / && echo remounted")
    assert "remounted" not in written
    assert "swappiness" in written, "it says that this cannot be written to"


ATTEMPTS = [
    "echo bad > trunkline.yaml",
    "rm -f trunkline.yaml; echo bad > trunkline.yaml",
    "echo bad > new; mv new trunkline.yaml",
    "mv trunkline.yaml away; echo bad > trunkline.yaml",
    "cd ..; mv conf away; mkdir -p conf; echo bad > conf/trunkline.yaml",
    "mkdir -p .awf; echo bad > .awf/plugins.yaml",
    "mv .awf away; mkdir .awf; echo bad > .awf/plugins.yaml",
    "rm -rf .awf; mkdir .awf; echo bad > .awf/plugins.yaml",
    "cd ..; mv conf away; mkdir -p conf/.awf; echo bad > conf/trunkline.yaml; echo bad > conf/.awf/plugins.yaml",
]


@pytest.mark.law
@real
@pytest.mark.parametrize("plugins", ["a file", "an empty folder", "none"])
def test_inside_nobody_writes_what_says_what_the_gateway_runs(tmp_path: Path, plugins: str) -> None:
    attempts = ATTEMPTS if plugins != "none" else [attempt for attempt in ATTEMPTS if ".awf" not in attempt]
    for number, attempt in enumerate(attempts):
        with case(attempt=attempt):
            try_to_write(tmp_path / str(number), attempt, plugins=plugins)


def try_to_write(root: Path, attempt: str, *, plugins: str) -> None:
    folder = root / "conf"
    folder.mkdir(parents=True)
    files = [folder / "trunkline.yaml", folder / ".awf" / "plugins.yaml"]
    files[0].write_text("good")
    (folder / "state").mkdir()
    (folder / "state" / "token").touch()
    if plugins != "none":
        files[1].parent.mkdir()
    if plugins == "a file":
        files[1].write_text("good")
    env = {"PATH": "/usr/bin:/bin", "HOME": ""}
    sandbox = Sandbox(BWRAP, str(root), env, [str(folder / "state")], [str(file) for file in files])
    try:
        for _ in range(2):
            assert "token" not in run_in(sandbox, f"touch ../fine; ls state; {attempt}", folder)
    finally:
        sandbox.close()
    assert files[1].parent.exists() is (plugins != "none")
    assert (root / "fine").exists()
    assert files[0].read_text() == "good"
    assert not files[1].exists() or files[1].read_text() == "good"


@pytest.mark.law
@real
def test_nothing_is_made_in_the_root_for_what_is_not_there_and_nothing_of_others_is_removed(tmp_path: Path) -> None:
    """Others may work in the same folder, and whoever is killed removes nothing."""
    files = [str(tmp_path / "trunkline.yaml"), str(tmp_path / ".awf" / "plugins.yaml")]
    env = {"PATH": "/usr/bin:/bin", "HOME": ""}
    one, other = (Sandbox(BWRAP, str(tmp_path), env, [], files) for _ in range(2))
    try:
        assert run_in(one, "ls -A") == run_in(other, "ls -A") == ""
        assert os.listdir(tmp_path) == []
        (tmp_path / ".awf").mkdir()
    finally:
        one.close()
        assert run_in(other, "ls -A") == ".awf\n"
        other.close()
    assert os.listdir(tmp_path) == [".awf"]


@pytest.mark.law
@real
@pytest.mark.parametrize("planted", [".awf", ".awf/plugins.yaml", "shown", "conf"])
def test_a_link_that_a_command_has_laid_shows_the_next_one_nothing(tmp_path: Path, planted: str) -> None:
    """In place of what is ours, or what the configuration shows, and was not there before the first command."""
    root, home = tmp_path / "project", tmp_path / "home"
    for made in (root, home / "private"):
        made.mkdir(parents=True)
    (home / "private/key").write_text("secret")
    target = home / ("private/key" if planted.endswith("yaml") else "private")
    files = [str(root / ".awf" / "plugins.yaml"), str(root / "conf" / "sub" / "trunkline.yaml")]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    settings = SandboxSettings(folders={root / "shown": "rw"})
    sandbox = Sandbox(BWRAP, str(root), env, [str(root / "conf" / "sub" / "state")], files, settings)
    way = os.path.relpath(target, (root / planted).parent)
    lay = f"mkdir -p {home}/private/sub $(dirname {planted}); ln -s {way} {planted}"
    try:
        assert run_in(sandbox, lay) == ""
        assert "secret" not in run_in(sandbox, f"cat {home}/private/key {planted}/key {planted}")
        assert run_in(sandbox, "echo still works") == "still works\n"
    finally:
        sandbox.close()
    assert os.path.lexists(root / planted)


@pytest.mark.law
@real
def test_a_folder_that_nobody_may_move_undoes_nothing_that_is_read_only_in_it(tmp_path: Path) -> None:
    root = tmp_path / "project"
    fixed, kept = root / "deep/er/trunkline.yaml", root / "deep/kept"
    for made in (fixed.parent, kept):
        made.mkdir(parents=True)
    fixed.write_text("mine")
    (kept / "file").write_text("mine")
    settings = SandboxSettings(folders={kept: "ro"})
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    sandbox = Sandbox(BWRAP, str(root), env, own_files=[str(fixed)], settings=settings)
    try:
        output = run_in(
            sandbox,
            "echo theirs > deep/er/trunkline.yaml; echo theirs > deep/kept/file; mv deep/er x; mv deep x",
            pinned=[str(root / "deep")],
        )
    finally:
        sandbox.close()
    assert output.count("Read-only") == 2
    assert output.count("busy") == 2
    assert fixed.read_text() == (kept / "file").read_text() == "mine"


@real
def test_what_the_gateway_starts_stays_as_it_is_while_a_command_runs(tmp_path: Path) -> None:
    """A server that dies meanwhile is started anew."""
    root = tmp_path / "project"
    script, package, later = root / "tools/x/server.py", root / "node_modules/y/server.js", root / "later/server.py"
    for made in (script, package):
        made.parent.mkdir(parents=True)
        made.write_text("mine")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    sandbox = Sandbox(BWRAP, str(root), env, protected_files=[str(script), str(package), str(later), "/etc/hostname"])
    try:
        output = run_in(
            sandbox, "cd tools/x; echo theirs > server.py; rm server.py; mv ../../tools ../../z; echo > other"
        )
        assert output.count("Read-only") == 1
        assert output.count("busy") == 2
        script_of_theirs = "mkdir later; echo theirs > later/server.py; cat later/*"
        assert run_in(sandbox, f"rm -r node_modules/y; {script_of_theirs}") == "theirs\n"
        script.unlink()  # as its user does it
        assert run_in(sandbox, "ls tools/x; echo more > tools/x/more") == "other\n"
    finally:
        sandbox.close()


@real
def test_nothing_started_inside_survives(place: Place) -> None:
    mark = new_mark()
    long = f"setsid env -i MARK={mark} sh -c 'touch begun; sleep 1000; true'"
    output = place.run(f"({long} &); until [ -e begun ]; do sleep 0.01; done; echo done")
    assert output == "done\n"
    assert survivors(mark) == []


@pytest.mark.law
@real
def test_inside_nobody_puts_another_folder_in_the_place_of_our_state(tmp_path: Path) -> None:
    root = tmp_path / "project"
    state = root / ".local" / "state" / "trunkline"
    state.mkdir(parents=True)
    (state / "token").write_text("good")
    env = {"PATH": "/usr/bin:/bin", "HOME": ""}
    sandbox = Sandbox(BWRAP, str(root), env, [str(state)])
    script = (
        "touch fine; mv .local away; mv .local/state away; mkdir -p .local/state/trunkline;"
        " echo bad > .local/state/trunkline/new"
    )
    try:
        run_in(sandbox, script)
    finally:
        sandbox.close()
    assert (root / "fine").exists()
    assert [path.name for path in state.iterdir()] == ["token"]


@pytest.mark.law
@real
@pytest.mark.parametrize("where", ["home", "above home", "everything"])
def test_a_root_that_holds_the_home_shows_it_and_never_our_state(tmp_path: Path, where: str) -> None:
    home, state = tmp_path / "home", tmp_path / "home" / "state"
    state.mkdir(parents=True)
    (home / "mine").write_text("mine\n")
    (state / "token").write_text("ours\n")
    root = {"home": home, "above home": tmp_path, "everything": Path("/")}[where]
    sandbox = Sandbox(BWRAP, str(root), {"HOME": str(home), "PATH": "/usr/bin:/bin"}, [str(state)])
    try:
        assert run_in(sandbox, f"cat {home}/mine; ls -A {state}; cd; touch kept") == "mine\n"
    finally:
        sandbox.close()
    assert (home / "kept").exists(), "nothing else was in its place"


@pytest.mark.law
@real
def test_a_socket_that_is_hidden_leads_nowhere_also_once_its_folder_was_to_be_moved(tmp_path: Path) -> None:
    place, state = tmp_path / "deep" / "run", tmp_path / "state"
    for folder in (place, state):
        folder.mkdir(parents=True)
    env = {"HOME": "", "PATH": "/usr/bin:/bin"}
    hidden = [str(state), str(state / "own.sock"), str(place / "gw.sock"), str(tmp_path / "none.sock")]
    sandbox = Sandbox(BWRAP, str(tmp_path), env, hidden)
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as own:
        listening.bind(str(place / "gw.sock"))
        own.bind(str(state / "own.sock"))
        try:
            for _ in range(2):
                run_in(sandbox, "mv deep away; mv deep/run away; ln deep/run/* .; rm -r deep")
                assert run_in(sandbox, "find . -name '*.sock' -exec test -S {} ';' -print") == ""
        finally:
            sandbox.close()
    assert (place / "gw.sock").is_socket()


@real
def test_what_is_hidden_already_does_no_harm_and_what_is_made_later_is_hidden(tmp_path: Path) -> None:
    state = tmp_path / "state"
    sandbox = Sandbox(BWRAP, str(tmp_path), {"HOME": "", "PATH": "/usr/bin:/bin"}, ["/run", str(state)])
    try:
        assert run_in(sandbox, "echo works") == "works\n"
        state.mkdir()
        (state / "token").touch()
        assert run_in(sandbox, "ls -A state") == ""
    finally:
        sandbox.close()


@pytest.mark.law
@real
def test_folders_that_are_named_are_shown_as_they_are_and_no_others(tmp_path: Path) -> None:
    names = ("root", "read", "write", "other")
    root, read, write, other = (tmp_path / name for name in names)
    for folder in (root, read, write, other):
        folder.mkdir()
        (folder / "file").write_text(f"{folder.name}\n")
    settings = SandboxSettings(folders={read: "ro", write: "rw", tmp_path / "none": "rw"})
    sandbox = Sandbox(BWRAP, str(root), {"HOME": "", "PATH": "/usr/bin:/bin"}, settings=settings)
    try:
        assert run_in(sandbox, f"cat {read}/file {write}/file; ls {tmp_path}") == "read\nwrite\nread\nroot\nwrite\n"
        run_in(sandbox, f"touch {read}/new; touch {write}/new {other}/new")
    finally:
        sandbox.close()
    assert [(folder / "new").exists() for folder in (read, write, other)] == [False, True, False]


@pytest.mark.law
@real
def test_folders_in_folders_are_each_as_they_are_said_to_be(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fixed, deep = root / "a" / "fixed", root / "a" / "fixed" / "deep"
    deep.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    settings = SandboxSettings(folders={fixed: "ro", deep: "rw", root: "ro"})
    sandbox = Sandbox(BWRAP, str(root), {"HOME": "", "PATH": "/usr/bin:/bin"}, settings=settings)
    try:
        for _ in range(2):
            run_in(sandbox, f"touch new {fixed}/new {deep}/new; rm -rf a; mv a b; ln -s {secret} a")
        assert "secret" not in run_in(sandbox, "cat a/key a/fixed/key")
    finally:
        sandbox.close()
    assert ((root / "new").exists(), (fixed / "new").exists()) == (True, False)
    assert deep.is_dir()
    assert not (root / "a").is_symlink()


@pytest.mark.law
@real
def test_in_a_folder_that_is_named_our_own_files_are_what_they_are_in_the_root(tmp_path: Path) -> None:
    root, conf = tmp_path / "root", tmp_path / "conf"
    state = conf / "state"
    for folder in (root, state):
        folder.mkdir(parents=True)
    (state / "token").touch()
    (conf / "trunkline.yaml").write_text("good")
    (conf / ".awf").mkdir()
    files = [str(conf / "trunkline.yaml"), str(conf / ".awf" / "plugins.yaml")]
    settings = SandboxSettings(folders={conf: "rw"})
    env = {"HOME": "", "PATH": "/usr/bin:/bin"}
    sandbox = Sandbox(BWRAP, str(root), env, [str(state)], files, settings)
    try:
        for attempt in ATTEMPTS:
            assert "token" not in run_in(sandbox, f"cd {conf}; touch fine; ls state; {attempt}")
    finally:
        sandbox.close()
    assert (conf / "fine").exists()
    assert (conf / "trunkline.yaml").read_text() == "good"
    assert os.listdir(conf / ".awf") == []


@pytest.mark.law
@real
def test_nothing_of_the_kernel_is_shown_by_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    (tmp_path / "all").symlink_to("/")
    settings = SandboxSettings(folders={tmp_path / "link": "ro", tmp_path / "all": "rw"})
    sandbox = Sandbox(BWRAP, str(tmp_path), {"HOME": "", "PATH": "/usr/bin:/bin"}, settings=settings)
    try:
        assert str(os.getpid()) not in run_in(sandbox, "ls /proc").split()
        assert "Read-only" in run_in(sandbox, "touch /etc/trunkline-was-here")
    finally:
        sandbox.close()


@real
def test_variables_that_are_named_are_there(tmp_path: Path) -> None:
    settings = SandboxSettings(env={"CI": "yes", "TMPDIR": "/var/tmp"})
    sandbox = Sandbox(BWRAP, str(tmp_path), {"HOME": "", "PATH": "/usr/bin:/bin"}, settings=settings)
    try:
        assert run_in(sandbox, "echo $CI $TMPDIR") == "yes /var/tmp\n"
    finally:
        sandbox.close()


@real
def test_links_in_the_paths_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    link = str(tmp_path / "link")
    sandbox = Sandbox(BWRAP, link, {"HOME": link, "PATH": "/usr/bin:/bin"}, [])
    try:
        assert run_in(sandbox, "pwd; touch file") == f"{tmp_path / 'real'}\n"
    finally:
        sandbox.close()
    assert (tmp_path / "real" / "file").exists()


@real
@pytest.mark.parametrize("home", ["", "/", "relative", "/no/such/folder"])
def test_a_home_that_is_none_hides_nothing_by_mistake(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("here\n")
    sandbox = Sandbox(BWRAP, str(tmp_path), {"HOME": home, "PATH": "/usr/bin:/bin"}, [])
    try:
        assert run_in(sandbox, "cat file; [ -e /etc/passwd ] && echo and the rest") == "here\nand the rest\n"
    finally:
        sandbox.close()


@real
@pytest.mark.parametrize("network", ["off", "loopback"])
def test_where_the_root_holds_our_own_folders_no_command_writes_what_the_next_one_may_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: Literal["off", "loopback"]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    env = {"PATH": "/usr/bin:/bin", "HOME": ""}
    sandbox = Sandbox(BWRAP, str(tmp_path), env, settings=SandboxSettings(network=network))
    try:
        place = sandbox.scratch / "filter"
        kept = place.read_bytes()
        run_in(sandbox, f"echo bad > {place}; rm -f {place}; mv {sandbox.scratch} {tmp_path}/away; echo bad > {place}")
        assert place.read_bytes() == kept
        assert run_in(sandbox, "echo works") == "works\n"
    finally:
        sandbox.close()


@pytest.mark.law
@real
@pytest.mark.parametrize("temporary", [".", "tmp"])
def test_where_the_root_holds_our_own_folders_no_command_puts_a_link_in_place_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: str
) -> None:
    root, home = tmp_path / "project", tmp_path / "home"
    for folder in (root / temporary, home):
        folder.mkdir(parents=True, exist_ok=True)
    (home / "secret").write_text("secret of home")
    monkeypatch.setattr("tempfile.tempdir", str(root / temporary))
    sandbox = Sandbox(BWRAP, str(root), {"PATH": "/usr/bin:/bin", "HOME": str(home)})
    try:
        own = sandbox.scratch / "home"
        run_in(sandbox, f"rm -rf {own}; ln -s {home} {own}")
        assert "secret of" not in run_in(sandbox, "cat ~/secret; echo planted > ~/.bashrc")
        run_in(sandbox, f"rm -rf {sandbox.scratch}; mv {root}/tmp {root}/away")
        assert run_in(sandbox, "cat ~/.bashrc") == "planted\n"
        assert sorted(path.name for path in home.iterdir()) == ["secret"]
    finally:
        sandbox.close()
    assert not sandbox.scratch.exists()


@real
def test_a_folder_of_programs_that_is_closed_to_the_user_is_left_out(tmp_path: Path) -> None:
    env = {"HOME": "", "PATH": f"/usr/bin:/bin:{os.path.expanduser('~root/bin')}"}  # as `su` leaves it
    sandbox = Sandbox(BWRAP, str(tmp_path), env, [])
    try:
        assert run_in(sandbox, "echo works") == "works\n"
    finally:
        sandbox.close()
