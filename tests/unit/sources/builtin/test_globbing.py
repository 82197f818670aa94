from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.builtin_tools import Workbench
from tests.support.searching import SearchBench, lasting
from tests.support.users import an_ordinary_user

from trunkline.runtime.rooted_files import Beneath
from trunkline.sources.builtin.file_search import find_ripgrep
from trunkline.sources.builtin.globbing import Glob
from trunkline.sources.builtin.ripgrep import Ripgrep
from trunkline.sources.builtin.root_files import RootFiles
from trunkline.sources.builtin.tool import ToolFault


@pytest.fixture
def bench(tmp_path: Path) -> SearchBench:
    return SearchBench(tmp_path)


def aged(bench: Workbench, *names: str) -> None:
    """Files that were changed one after the other, the first one last."""
    for age, name in enumerate(names):
        path = bench.write(name, "x")
        os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))


async def names(bench: Workbench, **arguments: object) -> list[str]:
    return (await bench.text(Glob, **arguments)).split("\n")


async def test_the_file_changed_last_comes_first(bench: Workbench) -> None:
    aged(bench, "c.py", "src/a.py", "src/deep/b.py", "x.md")
    assert await names(bench, pattern="**/*.py") == ["c.py", "src/a.py", "src/deep/b.py"]


@lasting
async def test_a_pattern_is_about_the_folder_that_is_searched(bench: Workbench) -> None:
    aged(bench, "a.py", "src/b.py", "src/deep/c.py")
    assert await names(bench, pattern="*.py", directory="src") == ["src/b.py", "src/deep/c.py"]
    assert await names(bench, pattern="./*.py", directory="src") == ["src/b.py"]
    assert await names(bench, pattern="deep/*", directory="src") == ["src/deep/c.py"]
    assert await names(bench, pattern="src/*.py", path=str(bench.folder)) == ["src/b.py"]


async def test_a_pattern_may_begin_with_the_roots_own_path(bench: Workbench) -> None:
    aged(bench, "a.py", "src/b.py")
    assert await names(bench, pattern=f"{bench.folder}/src/**/*.py") == ["src/b.py"]


@lasting
async def test_ignored_files_are_left_out_and_hidden_ones_are_not(bench: Workbench) -> None:
    aged(bench, "a.py", "b.log", "node_modules/c.py", ".github/d.py", ".git/e.py", "sub/keep.log", "secret.py")
    bench.write(".gitignore", "*.log\nnode_modules/\n")
    bench.write("sub/.gitignore", "!keep.log")
    bench.write(".git/HEAD", "ref: refs/heads/main\n")
    bench.write(".git/info/exclude", "secret.py\n")
    assert await names(bench, pattern="*.{py,log}") == ["a.py", ".github/d.py", "sub/keep.log"]
    assert await names(bench, pattern="*.py", directory="node_modules") == ["node_modules/c.py"]


async def test_rules_above_the_folder_hold_in_it(bench: Workbench) -> None:
    aged(bench, "sub/a.log", "sub/b.py", "sub/deep/c.log", "sub/out/d.py", "sub/deep/keep.log")
    bench.write(".gitignore", "*.log\n/sub/out\n")
    bench.write("sub/deep/.gitignore", "!keep.log\n")
    expected = ["sub/b.py", "sub/deep/keep.log"]
    assert await names(bench, pattern="*.{py,log}", directory="sub") == expected


@lasting
async def test_rules_of_git_from_above_do_not_hold_in_another_repository_that_is_asked_for(bench: Workbench) -> None:
    aged(bench, "a.log", "a.tmp", "vendored/b.log", "vendored/b.tmp", "vendored/deep/c.log")
    bench.write(".gitignore", "*.log\n")
    bench.write(".ignore", "*.tmp\n")
    bench.write("vendored/.git", "gitdir: elsewhere\n")
    expected = ["vendored/b.log", "vendored/deep/c.log"]
    assert await names(bench, pattern="*.{log,tmp}", directory="vendored") == expected
    assert await names(bench, pattern="*.{log,tmp}", directory="vendored/deep") == expected[1:]


@lasting
async def test_an_ignored_folder_that_is_asked_for_is_searched_by_the_other_rules(bench: Workbench) -> None:
    aged(bench, "node_modules/lib/index.js", "node_modules/lib/x.log")
    bench.write(".gitignore", "node_modules/\n*.log\n")
    for folder in ("node_modules", "node_modules/lib"):
        assert await names(bench, pattern="*", directory=folder) == ["node_modules/lib/index.js"]


async def test_a_folder_that_cannot_be_read_is_skipped(bench: Workbench) -> None:
    aged(bench, "a", "closed/b")
    request = {"ripgrep": find_ripgrep(), "folder": "", "names": [], "whole_disk": False}
    bench.folder.chmod(0o755)
    (bench.folder / "closed").chmod(0)
    try:
        with Beneath(str(bench.folder)) as beneath, contextlib.chdir(bench.folder), an_ordinary_user():
            assert Ripgrep(request, RootFiles(beneath)).files() == ["a"]
    finally:
        (bench.folder / "closed").chmod(0o700)


@pytest.mark.needs("git")
async def test_what_git_leaves_out_is_left_out(bench: Workbench) -> None:
    folders = ("", "a/", "a/b/", "c/")
    aged(bench, *(f"{folder}{name}" for folder in folders for name in ("x", "x.o", "y.log", "z")))
    aged(bench, "build/out", "a/build/out", "c/build", "é.txt", "a b.txt", "a/b/!odd", "#hash", "[x]", "trail ")
    bench.write(".gitignore", "*.o\n!x.o\n/build\na/**/z\n# c\n\\#hash\nc/*\n!c/x\n\\[x\\]\n\na b.*\n")
    bench.write("a/.gitignore", "build/\n/x\n!/b/\n*.log\n!b/y.log\n\\!odd\n")
    git = ["git", "-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false"]
    subprocess.run([*git, "init", "-q"], cwd=bench.folder, check=True)
    bench.write(".git/info/exclude", "trail\\ \n")
    listing = [*git, "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=bench.folder, check=True, capture_output=True)
    assert sorted(await names(bench, pattern="*")) == sorted(
        os.fsdecode(name) for name in listed.stdout.split(b"\0") if name
    )


@pytest.mark.law
@lasting
async def test_links_are_not_listed_and_lead_nowhere(
    bench: Workbench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.py").write_text("x")
    aged(bench, "a.py")
    (bench.folder / "link.py").symlink_to("a.py")
    (bench.folder / "out").symlink_to(outside)
    assert await names(bench, pattern="**/*.py") == ["a.py"]
    with pytest.raises(ToolFault, match="outside the root"):
        await bench.use(Glob, pattern="*.py", directory="out")


async def test_a_link_to_a_folder_inside_can_be_searched(bench: Workbench) -> None:
    aged(bench, "real/a.py")
    (bench.folder / "link").symlink_to("real")
    assert await names(bench, pattern="*.py", directory="link") == ["link/a.py"]


@lasting
async def test_pages_follow_each_other_to_the_end(bench: Workbench) -> None:
    aged(bench, *(f"f{number:02}" for number in range(10)))
    assert await names(bench, pattern="*", limit=4) == [
        "f00",
        "f01",
        "f02",
        "f03",
        "[6 more files. Continue with offset=4]",
    ]
    assert await names(bench, pattern="*", limit=4, offset=5) == [
        "f05", "f06", "f07", "f08", "[1 more file. Continue with offset=9]",
    ]  # fmt: skip
    assert await names(bench, pattern="*", offset=9) == ["f09"]
    assert await names(bench, pattern="*", offset=10) == ["Nothing is left at offset=10"]


async def test_a_page_is_below_what_clients_cut(bench: Workbench) -> None:
    long = "n" * 200
    aged(bench, *(f"{long}/{long}/{number}" for number in range(150)))
    text = await bench.text(Glob, pattern="**/*", limit=0)
    assert len(text) < 40_000
    shown = text.count(f"{long}/{long}/")
    assert text.endswith(f"[{150 - shown} more files. Continue with offset={shown}]")


async def test_nothing_found_is_said(bench: Workbench) -> None:
    aged(bench, "a.py")
    assert (await bench.text(Glob, pattern="*.rs")).startswith("No file fits `*.rs` in `.`")


async def test_names_that_are_no_plain_text_stay_in_one_line(bench: Workbench) -> None:
    (bench.folder / "a\nb").touch()
    (bench.folder / os.fsdecode(b"\xff")).touch()
    assert sorted(await names(bench, pattern="*")) == ["a\\nb", "\ufffd"]


@lasting
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"pattern": "[a"}, "never closed"),
        ({"pattern": "../*"}, "has a `..` in it"),
        ({"pattern": "/etc/*"}, "outside the root"),
        ({"pattern": "*", "directory": "nothing"}, "does not exist"),
        ({"pattern": "*", "directory": ".."}, "outside the root"),
        ({"pattern": "*", "directory": "/etc"}, "outside the root"),
        ({"pattern": "*", "directory": "a.py"}, "not a folder"),
        ({"pattern": "*" * 5000}, "longer than 4,000 bytes"),
        ({}, "Missing argument `pattern`"),
    ],
)
async def test_what_cannot_be_done_is_explained(bench: Workbench, arguments: dict[str, str], reason: str) -> None:
    aged(bench, "a.py")
    with pytest.raises(ToolFault, match=reason):
        await bench.use(Glob, **arguments)


def test_the_definition_says_that_it_only_reads() -> None:
    definition = json.loads(Glob.definition)
    assert definition["name"] == "Glob"
    assert definition["annotations"]["readOnlyHint"] is True
    assert definition["inputSchema"]["required"] == ["pattern"]
    assert set(definition["inputSchema"]["properties"]) == {"pattern", "directory", "limit", "offset"}
