"""What a command in the sandbox plants for programs outside of it: by whichever way, nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.guarded_bash import SAID, guarded_bash
from tests.support.waiting import until

from trunkline.config.sandbox import ProtectSettings
from trunkline.sources.builtin.protection.protected_paths import ProtectedPaths
from trunkline.sources.builtin.protection.quarantine import accept_change
from trunkline.sources.builtin.protection.tracker import ChangeTracker

pytestmark = [pytest.mark.law, pytest.mark.needs("bash"), pytest.mark.needs("bwrap")]

HOOK = "#!/bin/sh\ntouch ran\n"
PLACES = {
    "the configuration of a gateway": "trunkline.yaml",
    "another of its names": "trunkline.json",
    "plugins": ".awf/plugins.yaml",
    "Claude Code": ".claude/settings.json",
    "MCP servers": ".mcp.json",
    "Codex": ".codex/config.toml",
    "Gemini": ".gemini/settings.json",
    "OpenCode": ".opencode/plugin/x.ts",
    "VS Code": ".vscode/tasks.json",
    "direnv": ".envrc",
    "a workflow that runs": "flow.yaml",
    "values of a server": "conf/server.env",
    "a folder below": "a/b/.mcp.json",
    "another case": "A/.Claude/settings.json",
    "a pattern of the user's": "ci/run.sh",
}


async def test_a_place_that_was_not_there_is_gone_after_the_command_and_told(tmp_path: Path) -> None:
    files = (str(tmp_path / "project/flow.yaml"), str(tmp_path / "project/conf/server.env"))
    async with guarded_bash(tmp_path, protect=ProtectSettings(more=("ci/*.sh",)), files=files) as bash:
        for path in PLACES.values():
            folder = os.path.dirname(path) or "."
            words = await bash.undoes(f"mkdir -p '{folder}' && echo evil > '{path}'")
            assert not bash.there(path)
            taken = bash.taken[-1]
            assert taken.id in words
            [kept] = [file for file in (Path(taken.thing), *Path(taken.thing).rglob("*")) if file.is_file()]
            assert kept.read_text() == "evil\n"
        assert [level for level, _, _ in bash.notes] == ["warning"] * len(PLACES)


WAYS = [
    "echo evil >> $path",
    "rm -f $path; echo evil > $path",
    "mv $path x; ln -s /etc/passwd $path",
    "d=$(dirname $path); [ $d = . ] || mv $d other; mkdir -p $d; echo evil > $path; rm -rf other",
    "rm -rf $path",
    "ln $path twin$$; echo evil > twin$$",
    "rm -f $path; mkdir -p $path/evil; touch $path/evil/x",
    "chmod 777 $path",
]


@pytest.mark.parametrize("mode", ["required", "off"])
async def test_a_place_that_was_there_is_as_it_was(tmp_path: Path, mode: str) -> None:
    paths = ["trunkline.yaml", ".claude/settings.json", "sub/.vscode/tasks.json", ".envrc"]
    async with guarded_bash(tmp_path, mode) as bash:
        for path in paths:
            bash.write(path, "mine", 0o640)
        for way in WAYS:
            await bash.said(f"for path in {' '.join(paths)}; do ( {way} ) done")
            for path in paths:
                assert bash.text(path) == "mine", (way, path)
                assert (bash.root / path).stat().st_mode & 0o777 == 0o640, (way, path)
                assert not (bash.root / path).is_symlink()


GIT_WAYS = {
    "the monitor of files": "git config core.fsmonitor ./evil",
    "another case": "printf '[CORE]FsMonitor=./evil' >> .git/config",
    "an alias": "git config alias.st '!./evil'",
    "a filter": "git config filter.x.clean ./evil; echo '* filter=x' > .git/info/attributes",
    "an included file": "git config include.path ../more; printf '[core]\nfsmonitor = ./evil\n' > more",
    "the folder of hooks": "mkdir h; cp evil h/post-index-change; git config core.hooksPath h",
    "a text that git would not take": "echo '[broken' >> .git/config",
    "the configuration of a working tree": "git config extensions.worktreeConfig true; "
    "git config --worktree core.fsmonitor ./evil",
    "a configuration that is a link": "cp .git/config c; echo '[core]fsmonitor=./evil' >> c; ln -sf ../c .git/config",
    "another repository": "mv .git .git2 && git init -q && git config core.fsmonitor ./evil",
    "all of it removed and made again": "rm -rf .git; git init -q . ; git config core.fsmonitor ./evil",
    "a hook": "mkdir -p .git/hooks; cp evil .git/hooks/post-index-change; cp evil .git/hooks/pre-commit",
    "a file in place of the repository": "cp -r .git other; git config -f other/config core.fsmonitor ./evil; "
    "mv .git .git2; echo 'gitdir: other' > .git",
    "a shared folder": "cp -r .git other; git config -f other/config core.fsmonitor ./evil; "
    "echo ../other > .git/commondir",
    "a link in place of the repository": "cp -r .git other; git config -f other/config core.fsmonitor ./evil; "
    "mv .git .git2; ln -s other .git",
}


@pytest.mark.parametrize("mode", ["required", "off"])
async def test_git_runs_nothing_that_a_command_had_it_run(tmp_path: Path, mode: str) -> None:
    async with guarded_bash(tmp_path, mode) as bash:
        for way in GIT_WAYS.values():
            bash.empty()
            bash.write("evil", HOOK.replace("ran", str(tmp_path / "ran")), 0o755)
            bash.git("init", "-q")
            bash.git("commit", "-q", "--allow-empty", "-m", "x")
            await bash.said(way)
            for words in ("status", "add -A -- evil", "commit -q --allow-empty -m y"):
                with contextlib.suppress(subprocess.CalledProcessError):  # where it is no repository any more
                    bash.git(*words.split())
            assert not (tmp_path / "ran").exists(), way


NESTED_WAYS = {
    "a repository": "mkdir a/n && cd a/n && git init -q && git config core.fsmonitor {evil}",
    "one in a deep folder": "mkdir -p a/b/c/n && cd a/b/c/n && git init -q && git config core.fsmonitor {evil}",
    "a bare one of any name": "git init -q --bare a/n; git config -f a/n/config core.fsmonitor {evil}; "
    "git config -f a/n/config core.bare false; git config -f a/n/config core.worktree ..",
    "a submodule": "git init -q s; git -C s -c user.name=a -c user.email=b commit -q --allow-empty -m x; "
    "git -c protocol.file.allow=always submodule --quiet add ./s a/n; git -C a/n config core.fsmonitor {evil}",
    "another working tree": "git worktree add -q a/n; git config extensions.worktreeConfig true; "
    "git -C a/n config --worktree core.fsmonitor {evil}",
    "a file that leads to one that was there": "mkdir a/n; echo gitdir: {root}/fixture > a/n/.git",
    "a link to one that was there": "mkdir a/n; ln -s ../../fixture a/n/.git",
    "one that is closed to its user": "mkdir a/n; cd a/n; git init -q; git config core.fsmonitor {evil}; chmod 0 ..",
}


async def test_nor_in_a_folder_below(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        for way in NESTED_WAYS.values():
            bash.empty()
            evil = bash.write("evil", HOOK.replace("ran", str(tmp_path / "ran")), 0o755)
            bash.git("init", "-q")
            bash.git("commit", "-q", "--allow-empty", "-m", "x")
            bash.git("init", "-q", "--bare", "fixture")  # as tests of a hostile repository may have one
            bash.git("config", "-f", "fixture/config", "core.fsmonitor", str(evil))
            bash.git("config", "-f", "fixture/config", "core.bare", "false")
            (bash.root / "a").mkdir()
            await bash.undoes(way.format(evil=evil, root=bash.root))
            (bash.root / "a").chmod(0o755)
            for folder in (bash.root / "a", *(bash.root / "a").rglob("n")):
                with contextlib.suppress(subprocess.CalledProcessError):
                    bash.git("status", at=str(folder))
            assert not (tmp_path / "ran").exists(), way


async def test_what_is_planted_by_one_command_is_not_there_for_the_next(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        await bash.undoes("echo evil > .mcp.json")
        assert await bash.ok("ls -A") == "(no output)"
        await bash.undoes("echo evil > .mcp.json")
        await bash.ok("rm -f .mcp.json")
        assert [taken.shown for taken in bash.taken] == [".mcp.json", ".mcp.json"]


# -- ordinary work -----------------------------------------------------------------------------------------------------

GIT = 'git() { command git -c user.name=a -c user.email=b -c protocol.file.allow=always "$@"; }'
WORK = {
    "a commit": "echo 2 > file; git add file; git commit -qm y; git log --oneline | wc -l",
    "remotes and branches": "git remote add o https://h/x; git branch b; git checkout -q b; git branch -u main 2>&1; "
    "git remote rename o p; git config user.name me",
    "a repository in a folder": "git init -q sub; cd sub; touch x; git add x; git commit -qm z",
    "another working tree": "git worktree add -q wt; cd wt; git status; cd ..; git worktree remove wt",
    "a submodule": "git init -q s; git -C s commit -q --allow-empty -m x; "
    "git submodule --quiet add ./s m; git -C m status",
    "a stash and a rebase": "echo 3 > file; git stash -q; git stash pop -q; git checkout -q file",
    "packages": "mkdir -p node_modules/a/.vscode node_modules/a/.claude; touch node_modules/a/.envrc; "
    "echo x > node_modules/a/.vscode/settings.json; echo x > node_modules/a/.claude/settings.json; rm -rf node_modules",
    "removing a repository": "rm -rf old",
    "moving a folder": "mv src src2; mv src2/inner inner",
    "other settings": "mkdir -p .vscode .github/workflows; touch .vscode/notes.md .github/workflows/ci.yml Makefile",
    "cleaning up": "git clean -fdxq; git gc -q",
}


async def test_ordinary_work_is_done_as_ever(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        for work in WORK.values():
            bash.empty()
            bash.git("init", "-q", "-b", "main")
            bash.write("file", "1")
            bash.git("add", "file")
            bash.git("commit", "-qm", "x")
            bash.git("init", "-q", "old")
            bash.write("src/inner/x", "1")
            await bash.ok(f"{GIT}; {work}")
            assert bash.taken == [], work


async def test_a_link_in_place_of_the_folder_of_a_file_in_use_is_taken_away(tmp_path: Path) -> None:
    files = tuple(str(tmp_path / "project" / path) for path in ("tools/deep/server.py", "later/.env"))
    async with guarded_bash(tmp_path, files=files) as bash:
        bash.write("tools/deep/server.py")
        words = await bash.undoes(
            "cp -r tools theirs; echo evil > theirs/deep/server.py; echo evil > theirs/.env;"
            " mv tools away; ln -s theirs tools; ln -s theirs later; ln -s theirs unminded;"
            " mkdir sub; ln -s .. sub/tools"
        )
        assert ("`tools`" in words, "`later`" in words) == (True, True)
        assert "could not be undone" not in words
        assert (bash.there("tools"), bash.there("later")) == (False, False)
        assert (bash.there("unminded"), bash.there("sub/tools")) == (True, True)
        assert bash.text("away/deep/server.py") == "mine"


async def test_of_a_changed_configuration_remotes_and_branches_stay(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        bash.git("init", "-q", "-b", "main")
        bash.git("config", "alias.own", "status")
        words = await bash.undoes(
            "git remote add o https://h/x; git config core.pager ./evil; git config alias.own '!x'"
        )
        assert "core.pager" in words
        kept = bash.git("config", "--local", "--list").splitlines()
        assert {"remote.o.url=https://h/x", "alias.own=status"} <= set(kept)
        assert not [line for line in kept if "evil" in line or "!x" in line]
        [taken] = bash.taken
        assert taken.keys == ("alias.own", "core.pager")
        assert "./evil" in Path(taken.thing).read_text()


# -- who else is there -------------------------------------------------------------------------------------------------


async def test_what_somebody_saves_in_an_editor_meanwhile_is_not_lost(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        places = [bash.write(path) for path in (".envrc", ".claude/settings.json", ".vscode/tasks.json")]
        call = bash.begin("touch begun; while [ ! -e go ]; do sleep 0.02; done")
        await until((bash.root / "begun").exists, "the command runs")
        for place in places:
            with place.open("w") as file:
                file.write("saved")
        bash.write(".claude/commands/new.md", "saved")
        (bash.root / "go").touch()
        assert SAID not in await bash.finished(call)
        assert {place.read_text() for place in places} == {"saved"}
        assert bash.text(".claude/commands/new.md") == "saved"


async def test_what_is_saved_by_replacing_the_file_is_kept_and_can_be_taken_back(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        bash.write(".envrc")
        call = bash.begin("touch begun; while [ ! -e go ]; do sleep 0.02; done")
        await until((bash.root / "begun").exists, "the command runs")
        bash.write("new", "saved").rename(bash.root / ".envrc")
        (bash.root / "go").touch()
        assert SAID in await bash.finished(call)
        [taken] = bash.taken
        assert Path(taken.thing).read_text() == "saved"
        accept_change(bash.state_dir, taken, force=False, home=bash.home)
        assert bash.text(".envrc") == "saved"


async def test_of_several_commands_at_once_none_hides_what_another_plants(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        bash.write(".envrc", "mine")
        bash.git("init", "-q")
        first = bash.begin(
            "mkdir -p d; echo evil > d/.mcp.json; git config core.fsmonitor evil; touch begun;"
            " while [ ! -e go ]; do sleep 0.02; done"
        )
        await until((bash.root / "begun").exists, "the first one has planted")
        second = bash.begin("touch second; while [ ! -e go2 ]; do sleep 0.02; done; echo evil > trunkline.yaml")
        await until((bash.root / "second").exists, "the second one runs")
        (bash.root / "go").touch()
        assert "d/.mcp.json" in await bash.finished(first)
        assert not bash.there("d/.mcp.json")
        (bash.root / "go2").touch()
        words = await bash.finished(second)
        assert "trunkline.yaml" in words
        assert "d/.mcp.json" not in words
        assert (bash.there("trunkline.yaml"), bash.there("d/.mcp.json")) == (False, False)
        assert "fsmonitor" not in bash.text(".git/config")


@pytest.mark.parametrize("how", ["timeout", "cancelled", "closed"])
async def test_a_command_that_is_ended_early_is_compared_too(tmp_path: Path, how: str) -> None:
    async with guarded_bash(tmp_path) as bash:
        line = "echo evil > .mcp.json; touch begun; trap '' TERM; while :; do sleep 0.05; echo evil > .mcp.json; done"
        call = bash.begin(line, timeout=1500 if how == "timeout" else 60_000)
        await until((bash.root / "begun").exists, "it has planted")
        if how == "timeout":
            assert SAID in await bash.finished(call)
        elif how == "cancelled":
            bash.source.abandon(call)
            await until(lambda: bash.notes, "it was compared")
    assert not bash.there(".mcp.json")
    assert {taken.shown for taken in bash.taken} == {".mcp.json"}


@pytest.mark.parametrize("mode", ["required", "off"])
async def test_nothing_that_a_command_leaves_behind_plants_later(tmp_path: Path, mode: str) -> None:
    async with guarded_bash(tmp_path, mode) as bash:
        planter = "while :; do echo evil > .mcp.json; done"
        await bash.undoes(
            f"(setsid sh -c '{planter}' &) ; nohup sh -c '{planter}' & until [ -e .mcp.json ]; do :; done"
        )
        assert not bash.there(".mcp.json")
        assert ".mcp.json" not in await bash.ok("ls -A")


async def test_gateways_that_keep_their_state_elsewhere_know_of_each_others_commands(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        other = ChangeTracker(str(bash.root), ProtectedPaths(), tmp_path / "other", lambda _: None, home=str(bash.home))
        call = bash.begin("echo evil > .mcp.json; touch begun; while [ ! -e go ]; do sleep 0.02; done")
        await until((bash.root / "begun").exists, "it has planted")
        command = other.begin()
        (bash.root / "go").touch()
        assert SAID in await bash.finished(call)
        assert command.end().undone == ()
        assert not bash.there(".mcp.json")


async def test_what_a_killed_gateway_could_not_compare_is_told_by_the_next(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        bash.write(".envrc", "mine")
        watch = ChangeTracker(str(bash.root), ProtectedPaths(), bash.state_dir, lambda _: None, home=str(bash.home))
        left = watch.begin()
        os.close(left.command._fd)  # as the kernel does it
        left.command._fd = -1
        bash.write(".mcp.json", "who knows")
        await bash.ok("true")
        assert bash.text(".mcp.json") == "who knows"
        assert [".mcp.json" in message for _, message, _ in bash.notes] == [True]
        await bash.ok("true")
        assert len(bash.notes) == 1


async def test_switched_off_nothing_is_compared(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path, protect=ProtectSettings(on=False)) as bash:
        await bash.ok("echo own > .mcp.json")
        assert bash.there(".mcp.json")
