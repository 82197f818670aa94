"""What `make` installs is pinned by hash, is what pyproject.toml and package.json ask for, and names no registry."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.support.docs_pages import DOCS, ROOT, blocks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUN: list[str] = PROJECT["project"]["dependencies"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
BUILD: list[str] = PROJECT["build-system"]["requires"]
WANTED: dict[str, list[str]] = {
    "requirements/run.txt": RUN,
    "requirements/plugins.txt": RUN + EXTRAS["plugins"],
    "requirements/build.txt": BUILD,
    "requirements/dev.txt": RUN + EXTRAS["plugins"] + EXTRAS["dev"] + BUILD,
    "requirements/uv.txt": GROUPS["uv"],
    "bench/pins/mcp-proxy.txt": GROUPS["mcp-proxy"],
}
LOCKED = [ROOT / "tools" / name for name in ("node", "agents", "conformance", "browser")] + [
    ROOT / "bench/discovery/tokenizers"
]
NOT_TO_BE_HAD = re.compile(r"opencode-(?:darwin|linux|windows)-")
"""Builds that the lock file lacks where they could not be had; docs/adr/0029 says what becomes of that."""

_PIN = re.compile(r"^([\w.-]+)==([\w.]+)((?: ; [^\\\n]+)?)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Pin:
    version: str
    marker: str
    hashes: frozenset[str]


def pins(text: str) -> dict[str, Pin]:
    return {
        canonicalize_name(name): Pin(version, marker, frozenset(hashes.split(" \\\n    ")) - {""})
        for name, version, marker, hashes in _PIN.findall(text)
    }


def test_every_file_of_requirements_is_looked_at() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("requirements", "bench/pins")
        for path in (ROOT / folder).iterdir()
    }
    assert found == set(WANTED)


@pytest.mark.parametrize("file", WANTED)
def test_requirements_hold_versions_with_hashes_and_nothing_else(file: str) -> None:
    text = (ROOT / file).read_text()
    assert [line for line in _PIN.sub("", text).splitlines() if not line.startswith("#")] == []
    assert "://" not in text
    assert pins(text)


@pytest.mark.parametrize("file", WANTED)
def test_requirements_are_what_the_project_asks_for(file: str) -> None:
    pinned = pins((ROOT / file).read_text())
    wrong = [
        wanted
        for wanted in map(Requirement, WANTED[file])
        if (pin := pinned.get(canonicalize_name(wanted.name))) is None or pin.version not in wanted.specifier
    ]
    assert wrong == []


def test_what_the_gateway_runs_with_is_what_it_is_tested_with() -> None:
    tested = pins((ROOT / "requirements/dev.txt").read_text())
    for file in ("run", "plugins", "build"):
        pinned = pins((ROOT / "requirements" / f"{file}.txt").read_text())
        assert {name: pin for name, pin in pinned.items() if tested.get(name) != pin} == {}, file


def test_what_builds_the_project_is_pinned_as_the_project_names_it() -> None:
    assert GROUPS["build"] == BUILD


def test_nothing_is_installed_by_pip_without_its_hash_except_the_project_itself() -> None:
    makefile = (ROOT / "Makefile").read_text()
    dockerfile = "".join(block.text for block in blocks(DOCS / "operating.md", "dockerfile"))
    commands = re.findall(r"\$\(PIP\) .*|\bpip (?:install|wheel) .*", makefile + dockerfile)
    assert len(commands) == 6
    assert [line for line in commands if not re.search("--require-hashes|--no-deps", line)] == []


def test_every_package_json_has_its_lock_file() -> None:
    asked = [
        *ROOT.glob("tools/*/package.json"),
        *ROOT.glob("bench/*/*/package.json"),
        *ROOT.glob("clients/*/package.json"),
    ]
    assert {path.parent for path in asked} == set(LOCKED)


@pytest.mark.parametrize("folder", LOCKED, ids=lambda folder: folder.name)
def test_a_lock_file_agrees_with_its_package_json_and_has_a_hash_for_every_package(folder: Path) -> None:
    asked = json.loads((folder / "package.json").read_text())
    text = (folder / "package-lock.json").read_text()
    packages: dict[str, dict[str, Any]] = json.loads(text)["packages"]
    assert packages.pop("")["dependencies"] == asked["dependencies"]
    assert [path for path, entry in packages.items() if not entry.get("integrity", "").startswith("sha512-")] == []
    assert [name for path, entry in packages.items() for name in missing(path, entry, packages)] == []
    assert '"resolved"' not in text
    assert [place for place in addresses(packages) if "funding" not in place] == []


def missing(path: str, entry: dict[str, Any], packages: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What a package depends on and Node would find in no folder above it."""
    above = [path[: match.end()] for match in re.finditer(r"node_modules/(?:@[^/]+/)?[^/]+", path)]
    for name in entry.get("dependencies", {}) | entry.get("optionalDependencies", {}):
        places = [f"{folder}/node_modules/{name}" for folder in above] + [f"node_modules/{name}"]
        if not any(place in packages for place in places) and not NOT_TO_BE_HAD.match(name):
            yield f"{path}: {name}"


def addresses(value: object, place: str = "") -> Iterator[str]:
    """Where in a lock file something is written that leads to a host."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from addresses(inner, f"{place} {key}")
    elif isinstance(value, list):
        for inner in value:
            yield from addresses(inner, place)
    elif isinstance(value, str) and "://" in value:
        yield place
