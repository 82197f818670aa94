"""What trials have shown, kept between runs: a version is tried once, and then known."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from trunkline.agents.trial.trial import Tried
from trunkline.runtime.private_files import make_private_folder, read_private, write_private

_FILE: Final = "agent_trials.json"
_LARGEST_BYTES: Final = 1 << 20
_MOST: Final = 200


class Verdicts:
    """Under a folder of the state. Nothing found there, or not found, stops anything: then a trial is made anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / _FILE

    def of(self, provider: str, version: str) -> Tried | None:
        """What is known of this version. Trials that came to nothing are not kept."""
        tools = self._read().get(f"{provider} {version}")
        return None if tools is None else Tried(own_tools=tuple(tools))

    def keep(self, provider: str, version: str, tried: Tried) -> None:
        if tried.why:
            return
        known = self._read()
        known.pop(f"{provider} {version}", None)
        known[f"{provider} {version}"] = list(tried.own_tools)
        latest = dict(list(known.items())[-_MOST:])
        try:
            make_private_folder(self._folder)
            write_private(self._path, msgspec.json.encode(latest))
        except OSError:
            return  # the next run tries again

    def _read(self) -> dict[str, list[str]]:
        data = read_private(self._path, _LARGEST_BYTES)
        try:
            return {} if data is None else msgspec.json.decode(data, type=dict[str, list[str]])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}
