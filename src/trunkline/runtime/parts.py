"""What the gateway lends to a source when it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trunkline.core.source import Level
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.runtime.children import Children
from trunkline.runtime.session_tokens import SessionTokens
from trunkline.runtime.start_queue import StartQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    children: Children
    environ: Mapping[str, str]
    message_bytes: int
    sessions_per_source: int
    session_idle_s: float
    starts: StartQueue
    redact: Callable[[str], str]
    """Takes configured secrets out of text that a server wrote, before anyone sees it."""
    unfinished: UnfinishedBytes = field(default_factory=UnfinishedBytes)
    """What all connections together hold of messages that have not ended."""
    session_tokens: SessionTokens = field(default_factory=SessionTokens)
    on_fault: Callable[[str], None] | None = None
    """Hears what went wrong with what looks after processes."""
    note: Callable[[Level, str, str, Mapping[str, object]], None] | None = None
    """Writes a line of the log: a level, an event, a message, and fields."""
    state_dir: Path = Path()
    """Where state is kept between runs."""
    private: tuple[str, ...] = ()
    """Folders of the gateway's own that no tool of its own may look into, and nothing in a sandbox."""
    own_sockets: tuple[str, ...] = ()
    """Where this or another gateway of the same file may listen: nothing in a sandbox may reach it."""
    own_files: tuple[str, ...] = ()
    """Files that say what the gateway runs, whether they exist or not: no tool of its own may write them."""
    protected_files: tuple[str, ...] = ()
    """Other files that say what is run: no tool of its own may write them, and they are shown to everybody."""
    roots: tuple[str, ...] = ()
    """The folders that sources work in: none of them may have another's lead elsewhere."""
