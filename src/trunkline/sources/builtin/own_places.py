"""What belongs to the gateway itself: folders that no tool may look into, and files that none may write.

The files say what the gateway runs. They may be read, unless a secret is written out in them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from trunkline.config.secrets import has_literal_secret

_LARGEST_BYTES: Final = 1 << 20
_REFERENCE: Final = re.compile(r"\$\{\w+\}")
"""A secret that stands elsewhere; its name is none."""


class OwnPlaces:
    """`folders` and `files` need not exist, and may lie anywhere. `redact` takes secrets out of a text."""

    def __init__(
        self,
        *,
        folders: Sequence[str] = (),
        files: Sequence[str] = (),
        redact: Callable[[str], str] = str,
    ) -> None:
        self.folders = list(folders)
        self._files = files
        self._redact = redact

    def hide(self, folder: str) -> None:
        """One that was made just now."""
        if folder not in self.folders:
            self.folders.append(folder)

    def is_file(self, folder_fd: int, name: str) -> bool:
        """Whether this name in a folder is one of the files, also where there is none yet, or is another name of one.

        Upper and lower case count as the same, as on many a file system they are.
        """
        folder = os.fstat(folder_fd)
        for file in self._files:
            for spelling in {file, os.path.realpath(file)}:
                parent, own_name = os.path.split(spelling)
                if own_name.casefold() == name.casefold() and _is(folder, parent):
                    return True
        try:
            there = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        except OSError:
            return False
        return any(_is(there, file) for file in self._files)

    def is_secret(self, fd: int) -> bool:
        """Whether an open file is one of the files, and holds a secret."""
        there = os.fstat(fd)
        return any(_is(there, file) and self._holds_secret(file) for file in self._files)

    def hidden(self) -> list[str]:
        """Everything that must not be looked into at this moment."""
        return [*self.folders, *filter(self._holds_secret, self._files)]

    def _holds_secret(self, file: str) -> bool:
        try:
            if not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116
                return False  # a pipe, which was read once and for all
            with Path(file).open("rb") as opened:
                words = opened.read(_LARGEST_BYTES).decode("utf-8", "replace")
        except OSError:
            return False
        without = _REFERENCE.sub(",", words)
        return self._redact(without) != without or has_literal_secret(words, Path(file))


def _is(there: os.stat_result, path: str) -> bool:
    try:
        return os.path.samestat(there, os.stat(path))  # noqa: PTH116
    except OSError:
        return False
