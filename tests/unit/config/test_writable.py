from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest
from tests.support.commands import trunkline

from trunkline.config.files import ConfigFile, _has_others
from trunkline.config.load import load_config
from trunkline.sources import section_kinds


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a configuration, below one that is its user's alone."""
    folder = tmp_path / "above" / "home"
    (folder / "state" / "definitions").mkdir(parents=True)
    (folder / "secrets").mkdir()
    (folder / "secrets" / "x.env").write_text("A=1\n")
    (folder / "trunkline.yaml").write_text(
        "gateway: {state_dir: state}\nmcpServers: {x: {command: 'true', envFile: secrets/x.env}}\n"
    )
    return folder


def warned(home: Path) -> dict[str, str]:
    """Which paths are told, with what to do."""
    problems = load_config(ConfigFile.named(home / "trunkline.yaml"), environ={}, kinds=section_kinds()).problems
    assert {(problem.code.id, problem.severity) for problem in problems} <= {("TL125", "warning")}
    return {problem.message.rpartition(" ")[2]: problem.hint for problem in problems}


def test_what_is_ones_own_is_no_matter(home: Path) -> None:
    assert warned(home) == {}


@pytest.mark.parametrize(
    "place",
    ["trunkline.yaml", ".", "..", "secrets/x.env", "secrets", "state", "state/definitions"],
)
def test_what_every_user_can_write_is_told_with_its_remedy(home: Path, place: str) -> None:
    path = (home / place).resolve()
    path.chmod(path.stat().st_mode | 0o002)
    assert warned(home) == {str(path): f"remove that permission: `chmod o-w {path}`"}
    path.chmod(path.stat().st_mode & ~0o002)


def test_a_folder_above_with_the_sticky_bit_is_safe(home: Path) -> None:
    home.chmod(0o1777)
    assert warned(home) == {}
    (home / "state").chmod(0o1777)
    assert list(warned(home)) == [str(home / "state")], "in it, anybody can put what was not there"


def test_where_a_link_leads_is_looked_at_too(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (home / "trunkline.yaml").rename(elsewhere / "real.yaml")
    (home / "trunkline.yaml").symlink_to(elsewhere / "real.yaml")
    elsewhere.chmod(0o757)
    assert list(warned(home)) == [str(elsewhere)]


@pytest.mark.parametrize(
    ("gid", "members", "counts"),
    [(4711, [], False), (4711, ["me"], False), (4711, ["me", "you"], True), (100, [], True), (0, ["you"], False)],
)
def test_a_group_counts_unless_it_is_the_users_own(
    monkeypatch: pytest.MonkeyPatch, gid: int, members: list[str], counts: bool
) -> None:
    me = pwd.struct_passwd(("me", "x", os.geteuid(), 4711, "", "/", ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: me)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("g", "x", gid, members)))
    assert _has_others(gid) == counts


def test_check_says_it_once_and_is_content(home: Path) -> None:
    (home / "trunkline.yaml").chmod(0o666)
    done = trunkline("check", cwd=home)
    assert done.returncode == 0
    assert done.stderr.count("TL125") == 1
    assert "chmod o-w" in done.stderr
