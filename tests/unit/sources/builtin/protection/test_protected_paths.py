from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.config.sandbox import ProtectSettings
from trunkline.sources.builtin.protection.protected_paths import (
    PROTECTED_PATHS,
    ProtectedPaths,
    protected_below,
    protected_path_at,
)


def place_of(path: str, *more: str) -> str:
    return protected_path_at(path.split("/"), ProtectedPaths(more))


@pytest.mark.parametrize("place", [place.path for place in PROTECTED_PATHS])
def test_each_place_counts_at_any_depth_in_any_case_with_all_that_is_in_it(place: str) -> None:
    for path in (place, f"a/b/{place}", f"{place}/x/y", place.upper()):
        assert place_of(path)
        assert ProtectedPaths().may_match(place.rpartition("/")[2])


@pytest.mark.parametrize("path", [".git", ".git/hooks/pre-commit", "sub/.GIT/config", ".git/info/attributes"])
def test_nothing_of_a_repository_is_for_tools_that_write_files(path: str) -> None:
    assert place_of(path)


@pytest.mark.parametrize(
    "path", ["claude", ".claude.md", "a.mcp.json", ".vscode/other.json", "tasks.json", ".gitignore", "CLAUDE.md"]
)
def test_names_that_are_only_alike_are_free(path: str) -> None:
    assert not place_of(path)


def test_places_are_added_by_patterns_at_any_depth_or_from_the_root() -> None:
    more = ("Makefile", "ci/*.sh", "/package.json")
    for path in ("Makefile", "a/makefile", "a/ci/run.sh", "package.json"):
        assert place_of(path, *more)
    for path in ("ci/run.py", "sub/package.json", "Makefile.am"):
        assert not place_of(path, *more)


def test_files_below_the_root_are_places_by_whichever_way_the_root_is_reached(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "way").symlink_to("root")
    for root in ("root", "way"):
        files = [str(tmp_path / "way/flows/mine.yaml"), str(tmp_path / "elsewhere")]
        places = protected_below(tmp_path / root, ProtectSettings(), files)
        assert places is not None
        assert places.matches(["flows", "mine.yaml"])
        assert not places.matches(["elsewhere"])
    assert protected_below(tmp_path, ProtectSettings(on=False)) is None
