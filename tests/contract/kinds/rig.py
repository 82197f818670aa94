"""What each kind provides for the contract suite: a real peer behind the source, with a few simple tools.

A kind's rig is a file beside this one with a class `KindRig` (see
`mcp_stdio.py`). The suite finds it by the kind's name.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, ClassVar

from tests.support.servers import Records

Use = tuple[str, dict[str, Any]]
"""A tool's own name, and the arguments to call it with."""


class Rig:
    """One source of one kind, and what is behind it. `server` is the name that its tools are called under."""

    kind: ClassVar[str]
    server = "x"
    known_before: ClassVar = True
    """Whether its tools are refused as those of a server that is down before it first came, or as unknown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        """Its part of `sources:`, with more keys."""
        raise NotImplementedError

    # -- what is behind it ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """What must be there for the source to become ready: a process that dials in, a service that listens."""

    def kill(self) -> None:
        """What is behind the source is gone without a word; after `start` (or by itself) it is back."""

    def close(self) -> None:
        """The test is over."""

    def take_away(self) -> dict[str, Any]:
        """Before the first start: keys with which the source cannot become ready until `bring_back`."""
        return {}

    def bring_back(self) -> None:
        self.start()

    # -- jobs -----------------------------------------------------------------------------------------------------

    def echo(self, text: str) -> Use:
        """Gives this text back as the text of its first block."""
        raise NotImplementedError

    def heard(self, text: str) -> str:
        """This text as `echo` gives it back, where a kind shows texts in its own way."""
        return text

    def fail(self) -> Use:
        """A tool that fails: an `isError` result."""
        raise NotImplementedError

    def sleep(self, seconds: float) -> Use:
        """Answers with the text `slept` after so long."""
        raise NotImplementedError

    def told_to_stop(self) -> int:
        """How many calls it was told to stop, or that ended because nobody wanted their answer."""
        raise NotImplementedError

    def sleeping(self) -> int:
        """How many calls of `sleep` have begun, all in all."""
        raise NotImplementedError


class RecordedRig(Rig):
    """Tools named after their jobs, in programs that write down what they were asked."""

    records: Records

    def echo(self, text: str) -> Use:
        return "echo", {"text": text}

    def fail(self) -> Use:
        return "fail", {}

    def sleep(self, seconds: float) -> Use:
        return "sleep", {"seconds": seconds}

    def sleeping(self) -> int:
        return len(self.records.calls("sleep"))

    def told_to_stop(self) -> int:
        return len(self.records.events("cancelled"))


def rig_of(kind: str, folder: Path, server: str = Rig.server) -> Rig:
    rig = importlib.import_module(f"tests.contract.kinds.{kind}").KindRig
    return type(rig.__name__, (rig,), {"server": server})(folder)
