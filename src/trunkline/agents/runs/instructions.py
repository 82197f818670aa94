"""Reads a project's instructions to agents (`AGENTS.md` and the like), which an isolated agent does not read itself.

A repository decides what these files are: one may be a link to a file of the user's, a pipe, or as large as a disk.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from trunkline.config.files import plugins_file
from trunkline.config.settings import Settings
from trunkline.core.errors import INSTRUCTIONS_LEFT_OUT, Problem
from trunkline.core.hidden_text import reveal
from trunkline.runtime.rooted_files import PathEscapesRoot, RootHandle, refuse_kernel_files
from trunkline.sources.builtin.root import GatewayFiles


def project_instructions(
    folder: Path,
    names: Sequence[str],
    settings: Settings,
    redact: Callable[[str], str],
    warn: Callable[[Problem], None],
) -> str:
    """The text for the agent; empty if there is none. It excludes what the agent's tools may not read, even by
    links."""
    own = GatewayFiles(
        folders=(str(settings.gateway.state_dir),),
        files=(str(settings.path.absolute()), str(plugins_file(settings.path))),
        redact=redact,
    )
    text, problem = read_instructions(folder, names, hidden=own.hidden())
    if problem is not None:
        warn(problem)
    return text


LARGEST_BYTES: Final = 64 << 10
_HINT: Final = "correct the file, or turn instructions off (`instructions: false`, or `--no-instructions`)"
_CLOSING: Final = re.compile(r"<(?=\s*/\s*instructions\b)", re.IGNORECASE)
"""A closing tag, which would make what follows look as if it came from us. Codex uses the same tag in capitals."""


class _UnusableInstructions(Exception):
    """The reason why a file is not used."""


def read_instructions(project: Path, names: Sequence[str], *, hidden: Iterable[str] = ()) -> tuple[str, Problem | None]:
    """The text of the first of these files that exists, ready for the agent, and a warning about what was left out.
    Never raises: agents work without instructions too."""
    try:
        with RootHandle(str(project), hidden=hidden) as folder:
            name = next((name for name in names if _exists(folder, name)), "")
            return _read(folder, name) if name else ("", None)
    except OSError:
        return "", None  # the folder cannot be opened; the agent's tools will say so


def _exists(folder: RootHandle, name: str) -> bool:
    """A file that may not be read exists: no other is used in its place."""
    try:
        folder.status(name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _read(folder: RootHandle, name: str) -> tuple[str, Problem | None]:
    try:
        text, cut = _text(folder, name)
    except PathEscapesRoot:
        why = "it is a link that leads out of the project's folder"
    except _UnusableInstructions as error:
        why = str(error)
    except OSError as error:
        why = error.strerror or str(error)
    else:
        if not text.strip():
            return "", None
        notice = (
            f"The project's own instructions, from its file `{name}`, are below. A file that they refer to, also as "
            "`@file`, is not included: read it with your tools."
        )
        text = f"{notice}\n\n<instructions>\n{_CLOSING.sub('&lt;', text.strip())}\n</instructions>\n"
        most = f"Only the first {LARGEST_BYTES >> 10} KiB of the project's `{name}` are given to the agent"
        return text, _problem(most) if cut else None
    return "", _problem(f"The project's `{name}` is not given to the agent: {why}")


def _text(folder: RootHandle, name: str) -> tuple[str, bool]:
    """The text, and whether it was cut."""
    if not stat.S_ISREG(folder.status(name).st_mode):
        raise _UnusableInstructions("it is not a regular file")
    fd = folder.open(name, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        refuse_kernel_files(fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # it may have been replaced
            raise _UnusableInstructions("it is not a regular file")
        data = file.read(LARGEST_BYTES + 1)
    cut = len(data) > LARGEST_BYTES
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data[:LARGEST_BYTES], final=not cut)
    except UnicodeDecodeError:
        raise _UnusableInstructions("it is not UTF-8 text") from None
    if "\0" in text:
        raise _UnusableInstructions("it is not text")
    return reveal(text.replace("\r\n", "\n")), cut


def _problem(message: str) -> Problem:
    return Problem(code=INSTRUCTIONS_LEFT_OUT, message=message, severity="warning", hint=_HINT)
