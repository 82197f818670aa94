"""A git configuration is read by us as git reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import at_most

from trunkline.sources.builtin.protection.git import (
    BadGitConfig,
    format_git_config,
    is_dangerous,
    parse_git_config,
    safe_override,
)

PIECES = ["[core]", '[a "b"]', "[a.b]", '[a.B "C\\"d"]', "\n", " ", "\t", "key", "=", '"', "\\", "\\\n", "#c", ";"]
PIECES += ["v", "x y", "\r\n", "\r", "K-1", "[", "]", ".", "é", "!", "\ufeff"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map(lambda pieces: "[core]\n" + "".join(pieces))


def as_git_reads_it(path: Path) -> list[tuple[str, str | None]] | None:
    argv = ["git", "config", "-f", str(path), "--list", "-z"]
    done = subprocess.run(argv, capture_output=True, timeout=at_most(30))
    if done.returncode:
        return None
    lines = [line.partition("\n") for line in done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]]
    return [(name, value if has_value else None) for name, has_value, value in lines]


@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_what_git_reads_is_read_alike(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "config"
    path.write_text(text, newline="")
    read = as_git_reads_it(path)
    if read is None:
        return  # whatever is made of it, git does not go on
    assert [(entry.name, entry.value) for entry in parse_git_config(text.encode())] == read


@given(TEXTS)
def test_what_is_written_says_the_same(text: str) -> None:
    try:
        entries = parse_git_config(text.encode())
    except BadGitConfig:
        return
    assert parse_git_config(format_git_config(entries)) == [entry for entry in entries if entry.section]


def says(text: str) -> bool:
    """Whether any of it counts."""
    return any(is_dangerous(entry) for entry in parse_git_config(text.encode()))


PROGRAMS = frozenset(
    """
    core.fsmonitor core.hooksPath core.sshCommand core.editor core.pager core.askPass core.gitProxy core.worktree
    core.alternateRefsCommand core.attributesFile filter.x.clean filter.x.smudge filter.x.process diff.external
    diff.x.command diff.x.textconv merge.x.driver alias.x include.path includeIf.onbranch:x.path credential.helper
    credential.https://x.helper gpg.program gpg.ssh.program sequence.editor pager.log remote.x.uploadpack
    remote.x.receivepack remote.x.vcs url.x.insteadOf protocol.ext.allow mergetool.x.cmd difftool.x.cmd
    browser.x.cmd interactive.diffFilter init.templateDir gc.recentObjectsHook lfs.customtransfer.x.path
    hook.x.command trailer.x.cmd sendemail.smtpServer imap.tunnel tar.x.command uploadpack.packObjectsHook
    unknown.of.tomorrow
    """.split()  # noqa: SIM905 - a list of words
)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_keys_that_have_git_run_a_program_count_in_any_case(name: str) -> None:
    section, _, rest = name.partition(".")
    middle, _, key = rest.rpartition(".")
    head = f'[{section.upper()} "{middle}"]' if middle else f"[{section.upper()}]"
    assert says(f"{head}\n{key.upper()} = evil\n")
    assert says(f"{head} {key} = evil")


@pytest.mark.parametrize(
    "line", ['[remote "o"] url = ext::sh', '[submodule "m"] update = !sh', '[remote "o"] url = -x']
)
def test_some_keys_count_only_with_some_values(line: str) -> None:
    assert says(line)


def test_remotes_branches_and_plain_settings_are_free() -> None:
    text = """[core]\nbare = false\nfilemode\n[user]\nname = a\n[remote "o"]\nurl = git@host:a/b.git\nfetch = +refs/*
    [branch "m"]\nremote = o\nmerge = refs/heads/m\n[submodule "s"]\nurl = https://h/s\nactive = true\nupdate = rebase
    [color "x"]\ny = red\n[pull] rebase = true\n[remote "p"]\nurl = ../p\npushurl = ssh://h:22/x::y\n"""
    assert not says(text)


def test_each_program_has_something_in_its_place() -> None:
    left_out = {"core.worktree", "core.attributesFile", "include.path", "includeIf.onbranch:x.path", "url.x.insteadOf"}
    for name in PROGRAMS - left_out - {"protocol.ext.allow", "unknown.of.tomorrow"}:
        section, _, rest = name.partition(".")
        middle, _, key = rest.rpartition(".")
        [entry] = parse_git_config(
            (f'[{section} "{middle}"]' if middle else f"[{section}]").encode() + f" {key} = evil".encode()
        )
        assert safe_override(entry), name
