"""The environment of an isolated agent, which no project can extend with programs."""

from __future__ import annotations

import pytest

from trunkline.agents.providers.isolation import safe_environment


@pytest.mark.law
@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("bin:/usr/bin::./node_modules/.bin:/bin:", "/usr/bin:/bin"),
        (".", ""),
    ],
)
def test_folders_of_path_that_the_project_could_fill_are_left_out(path: str, kept: str) -> None:
    assert safe_environment({"PATH": path})["PATH"] == kept


@pytest.mark.law
def test_a_path_without_such_folders_stays_as_it_is_and_git_sees_no_repository() -> None:
    assert safe_environment({"PATH": "/usr/bin:/bin"}) == {"GIT_DIR": "/dev/null"}
