"""Whether what a program once said of its version still holds: which file it is, and whether that file alone decides.

`PATH` names a link of npm's, a script, a program of its own, or the launcher of a version manager, which starts one of
several programs, depending on the folder it is called in and on files elsewhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from trunkline.agents.json_lines import mapping, object_of, text

_SHIMS: Final = "shims"
"""The folder in which version managers keep launchers."""
_NATIVE: Final = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How programs for Linux and macOS begin."""
_BY_VERSION: Final = re.compile(r"v?[0-9]+(\.[0-9]+)+")
_PACKAGE: Final = "package.json"
_LARGEST_PACKAGE_BYTES: Final = 1 << 20


def identity(program: Path) -> str:
    """Another one after every change of the file that the name leads to, or of its npm package. Raises OSError."""
    real = Path(os.path.realpath(program))
    package = _package_of(real)
    files = (real, *(() if package is None else (package / _PACKAGE,)))
    return "\n".join(_stamp(file) for file in files)


def decides_alone(program: Path, name: str) -> bool:
    """Whether this file, as it is, can only be one version: what else it may start came with it."""
    real = Path(os.path.realpath(program))
    if program.parent.name == _SHIMS:
        return False
    try:
        with real.open("rb") as file:
            beginning = file.read(4)
    except OSError:
        return False
    if beginning in _NATIVE:  # a version manager links its own program under the names of others
        return real.name.startswith(name) or _BY_VERSION.fullmatch(real.name) is not None
    package = _package_of(real)
    return package is not None and _is_command_of(package, name, real)


def _stamp(file: Path) -> str:
    status = file.stat()
    return f"{file} {status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _package_of(real: Path) -> Path | None:
    return next((folder for folder in real.parents if (folder / _PACKAGE).is_file()), None)


def _is_command_of(package: Path, name: str, real: Path) -> bool:
    """Whether the package itself says that this file is the command."""
    try:
        with (package / _PACKAGE).open("rb") as file:
            written = file.read(_LARGEST_PACKAGE_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return False
    commands = object_of(written).get("bin")
    place = text(commands) or text(mapping(commands).get(name))
    return bool(place) and Path(os.path.realpath(package / place)) == real
