"""The files of one run: what a plan says is written into the run's folder, and what a plan depends on is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from trunkline.agents.plan import Plan
from trunkline.runtime.private_files import make_private_folder

_LARGEST_TEXT_BYTES: Final = 16 << 20


def write_plan(plan: Plan, run: Path) -> None:
    """Files (0600), folders (0700) and links, all below `run`. Raises OSError."""
    for name in plan.folders:
        make_private_folder(_place(run, name))
    for name, text in plan.files.items():
        _write(_place(run, name), text)
    for name, target in plan.links.items():
        link = _place(run, name)
        make_private_folder(link.parent)
        link.symlink_to(target)


def read_texts(files: Mapping[str, Path]) -> dict[str, str]:
    """What files of the user say; those that are not there, or are no text, are left out."""
    found = ((name, _read(path)) for name, path in files.items())
    return {name: text for name, text in found if text is not None}


def existing(paths: Iterable[Path]) -> frozenset[Path]:
    return frozenset(path for path in paths if os.path.exists(path))  # noqa: PTH110  (never raises)


def entries(folders: Iterable[Path]) -> dict[Path, tuple[str, ...]]:
    """What is in each of these folders; those that are not there, or cannot be read, are left out."""
    found = ((folder, _names(folder)) for folder in folders)
    return {folder: names for folder, names in found if names is not None}


def _names(folder: Path) -> tuple[str, ...] | None:
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208  (names, not paths)
    except OSError:
        return None


def _place(run: Path, name: str) -> Path:
    place = run / name
    assert not Path(name).is_absolute(), name
    assert ".." not in place.parts, name
    return place


def _write(path: Path, text: str) -> None:
    make_private_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def _open_at_once(path: str, flags: int) -> int:
    """Also a named pipe, where one would otherwise wait for somebody to write into it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read(path: Path) -> str | None:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            data = file.read(_LARGEST_TEXT_BYTES + 1) or b""  # None where a pipe has nothing yet
    except (OSError, ValueError):
        return None
    if len(data) > _LARGEST_TEXT_BYTES:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
