"""What a command plants where a look does not get to, or where nothing can be moved away: as root, and as a user to
whom permissions mean something (the more so where this suite runs as one)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.guarded_bash import SAID, guarded_bash

pytestmark = [pytest.mark.law, pytest.mark.needs("bash"), pytest.mark.needs("bwrap")]

LONG = "語" * 80
"""Of 240 bytes, which leaves no room for more in a name."""
OUT_OF_SIGHT = {
    "a folder that nobody may write to": ("mkdir d; echo evil > d/.envrc; chmod 555 d", "d/.envrc"),
    "the root itself": ("echo evil > trunkline.json; chmod 555 .", "trunkline.json"),
    "a place that nobody may write to": ("mkdir d/.codex -p; echo evil > d/.codex/c; chmod 555 d/.codex d", "d/.codex"),
    "below one that can be listed and not entered": ("mkdir -p a/b; echo evil > a/b/.envrc; chmod 400 a", "a/b/.envrc"),
    "beside one that cannot be entered": (
        "mkdir -p a/b x/y/z/.claude; echo evil > x/y/z/.claude/settings.json; chmod 400 a",
        "x/y/z/.claude/settings.json",
    ),
    "beside one with too long a path": (
        "n=$(printf %0200d 0); mkdir -p $(printf '%s/' x{1..25}).claude; echo evil > $(printf '%s/' x{1..25}).claude/s;"
        " for i in {1..25}; do mkdir $n; cd $n; done",
        "/".join(f"x{number}" for number in range(1, 26)) + "/.claude/s",
    ),
    "a place that cannot be entered": ("mkdir -p .gemini; echo evil > .gemini/s; chmod 400 .gemini", ".gemini/s"),
    "a long name": (
        f"mv a a2; mkdir -p a/.opencode/plugin; echo evil > a/.opencode/plugin/{LONG}",
        f"a/.opencode/plugin/{LONG}",
    ),
    "names that are no text": (
        "mkdir -p $'\\xff/\\xfe'; echo evil > $'\\xff/\\xfe/.envrc'",
        os.fsdecode(b"\xff/\xfe/.envrc"),
    ),
    "another case of a folder of packages": ("mkdir Node_Modules; echo x > Node_Modules/.envrc", "Node_Modules/.envrc"),
    "a pipe": ("mkfifo .envrc", ".envrc"),
    "a link in place of a folder to where packages are": (
        "mv a node_modules/a; ln -s node_modules/a a; echo evil > a/.envrc",
        "a/.envrc",
    ),
    "a link to inside of a repository": ("mkdir .git/x; echo evil > .git/x/.mcp.json; ln -s .git/x y", "y/.mcp.json"),
}


@pytest.mark.parametrize("way", OUT_OF_SIGHT)
async def test_nothing_is_left_where_a_look_does_not_get_to(tmp_path: Path, way: str) -> None:
    command, path = OUT_OF_SIGHT[way]
    async with guarded_bash(tmp_path) as bash:
        bash.git("init", "-q")
        bash.write("a/.opencode/plugin/own.ts")
        bash.write("node_modules/b/x")
        try:
            first = await bash.said(command)
            second = await bash.said("chmod -R u+rwX . 2>/dev/null; true")
            assert not bash.there(path), first
            assert SAID in first, (first, second)
            assert "could not be undone" not in first + second
        finally:
            subprocess.run(["chmod", "-R", "u+rwX", bash.root], check=False, capture_output=True)
            subprocess.run(["rm", "-rf", bash.root], check=False)


REMOTES = {
    "a remote among packages": "git remote add o node_modules/e.git",
    "by its whole path": "git remote add o $PWD/node_modules/e.git",
    "as a URL": "git remote add o file://$PWD/node_modules/e.git",
    "by a link": "ln -s node_modules/e.git e; git remote add o ./e",
    "where to push": "git remote add o https://localhost:1/; git remote set-url --push o node_modules/e.git",
    "where a branch is pushed": "git config branch.main.pushRemote node_modules/e.git",
    "where all are pushed": "git config remote.pushDefault node_modules/e.git",
    "in the folder for temporary files": "cp -r node_modules/e.git /tmp/e.git; git remote add o "
    "$(sed -n 's,.* \\(/.*/tmp\\) /tmp .*,\\1,p' /proc/self/mountinfo | head -1)/e.git",
    "as git once wrote them": "mkdir .git/remotes; echo URL: node_modules/e.git > .git/remotes/o",
    "as others once wrote them": "mkdir .git/branches; echo node_modules/e.git > .git/branches/o",
}


@pytest.mark.parametrize("way", REMOTES)
async def test_a_push_runs_no_hooks_that_were_put_where_nobody_looks(tmp_path: Path, way: str) -> None:
    async with guarded_bash(tmp_path) as bash:
        bash.git("init", "-q", "-b", "main")
        shutil.rmtree(bash.root / ".git/branches", ignore_errors=True)
        bash.git("commit", "-q", "--allow-empty", "-m", "x")
        hook = f"printf '#!/bin/sh\\ntouch {tmp_path}/ran\\n' > node_modules/e.git/hooks/pre-receive"
        await bash.said(
            f"git init -q --bare node_modules/e.git; {hook}; chmod +x node_modules/e.git/hooks/pre-receive; "
            + REMOTES[way]
        )
        for words in ("push -q o main", "push -q", "push -q node main"):
            with contextlib.suppress(subprocess.CalledProcessError):
                bash.git("-c", "push.default=current", *words.split())
        assert not (tmp_path / "ran").exists()


async def test_remotes_elsewhere_stay(tmp_path: Path) -> None:
    async with guarded_bash(tmp_path) as bash:
        bash.git("init", "-q", "-b", "main")
        await bash.ok(
            "git init -q --bare up.git; git remote add a ./up.git; git remote add b git@host:node_modules/x.git;"
            f" git remote add c https://h/node_modules/x; git remote add d {tmp_path}/elsewhere.git"
        )
