"""Which version an agent's program said it is, kept between runs: asking a large one takes seconds, and a minute where
the machine is busy."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from trunkline.runtime.private_files import make_private_folder, read_private, write_private

_FILE: Final = "agent_versions.json"
_LARGEST_BYTES: Final = 1 << 20
_MOST: Final = 100


class KnownVersions:
    """Of one run; what lasts longer is under a folder of the state, where there is one. Nothing found there, or not
    found, stops anything: then the program is asked."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._here: dict[tuple[str, str], str] = {}

    def of(self, program: str, identity: str, *, lasting: bool) -> str | None:
        """`lasting` says that its file alone decides which version it is."""
        version = self._here.get((program, identity))
        if version is not None or not lasting:
            return version
        there, version = self._read().get(program, ("", ""))
        return version if there == identity and version else None

    def keep(self, program: str, identity: str, version: str, *, lasting: bool) -> None:
        self._here[program, identity] = version
        if self._folder is None or not lasting:
            return
        known = self._read()
        known.pop(program, None)
        known[program] = (identity, version)
        latest = dict(list(known.items())[-_MOST:])
        try:
            make_private_folder(self._folder)
            write_private(self._folder / _FILE, msgspec.json.encode(latest))
        except (OSError, UnicodeEncodeError):
            return  # the next run asks again

    def _read(self) -> dict[str, tuple[str, str]]:
        data = None if self._folder is None else read_private(self._folder / _FILE, _LARGEST_BYTES)
        try:
            return {} if data is None else msgspec.json.decode(data, type=dict[str, tuple[str, str]])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}
