"""The repository names neither the machine it was made on nor where its packages were fetched from."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.support.waiting import at_most

ROOT = Path(__file__).resolve().parents[2]

# Written so that no pattern matches its own text.
PRIVATE = {
    "a folder beside the checkout": re.compile(r"\.\./shared\b"),
    "somebody's home": re.compile(r"(?<![\w.-])/(?:home|Users)/(?!me/|you/|user/)[a-z][\w.-]*/|(?<![\w./-])/roo[t]/\w"),
    "a package index": re.compile(
        r"(?:https?://[\w.@:-]+/(?:[\w./-]+/)?simple\b|--(?:extra-)?index-url\b|\b(?:pypi|pythonhosted|npmjs)\.(?:org|com)\b)"
    ),
}


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=at_most(60),
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def found_in(text: str) -> list[str]:
    return [what for what, pattern in PRIVATE.items() if pattern.search(text)]


@pytest.mark.needs("git")
def test_no_file_names_a_private_place():
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in tracked_files() if path.is_file()}
    found = {path.relative_to(ROOT).as_posix(): what for path, text in texts.items() if (what := found_in(text))}
    assert len(texts) > 20
    assert found == {}


PLANTED = [
    "see .." + "/shared/notes.md",
    "cd /home" + "/alice/project",
    "open('/Users" + "/alice/x')",
    "cp /root" + "/x .",
    "pip install --index-" + "url https://mirror.example/x",
    "https://packages.example/py/" + "simple/",
    "files.pythonhosted" + ".org",
    "registry.npmjs" + ".org",
]
HARMLESS = ["docs/home/page/", "/proc/self/root/x", "a simple sentence", "${HOME}/x", "~/x"]


def test_a_planted_place_is_found_and_ordinary_text_is_left_alone():
    assert [text for text in PLANTED if not found_in(text)] == []
    assert [text for text in HARMLESS if found_in(text)] == []
