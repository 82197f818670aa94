"""Services that stay as long as they say that they are there: each has a lease, and is gone when that ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from trunkline.config.sources import SourceSection
from trunkline.runtime.overdue import Deadline


class Leases:
    def __init__(self, on_ended: Callable[[str], None]) -> None:
        self._on_ended = on_ended
        self._sections: dict[str, SourceSection] = {}
        self._timers: dict[str, Deadline] = {}

    @property
    def sections(self) -> Mapping[str, SourceSection]:
        return self._sections

    def hold(self, name: str, section: SourceSection, lease_s: float) -> bool:
        """From now on for so long. Whether it is new."""
        is_new = name not in self._sections
        self._cancel(name)
        self._sections[name] = section
        self._timers[name] = Deadline(lease_s, partial(self._ended, name))
        return is_new

    def release(self, name: str) -> bool:
        """Whether there was one."""
        self._cancel(name)
        return self._sections.pop(name, None) is not None

    def close(self) -> None:
        for name in list(self._sections):
            self.release(name)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _ended(self, name: str) -> None:
        if self.release(name):
            self._on_ended(name)
