"""A small JSON file in the state folder that keeps facts about installed agents between runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from trunkline.runtime.state_files import make_private_folder, read_private, write_private

_LARGEST_BYTES: Final = 1 << 20
_MOST_ENTRIES: Final = 200
T = TypeVar("T")


class JsonCache(Generic[T]):
    """Values by key; the oldest are dropped. Never raises: a value that cannot be read or written is found out again.
    Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, name: str, value: type[Any]) -> None:
        self._folder = folder
        self._name = name
        self._decoder = msgspec.json.Decoder(dict[str, value])

    def read(self) -> dict[str, T]:
        data = None if self._folder is None else read_private(self._folder / self._name, _LARGEST_BYTES)
        try:
            return {} if data is None else self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}

    def put(self, key: str, value: T) -> None:
        if self._folder is None:
            return
        known = {name: kept for name, kept in self.read().items() if name != key} | {key: value}
        try:
            make_private_folder(self._folder)
            write_private(self._folder / self._name, msgspec.json.encode(dict(list(known.items())[-_MOST_ENTRIES:])))
        except (OSError, UnicodeEncodeError):
            return
