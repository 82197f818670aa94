"""Bash as in a source, sandboxed or not, with protected paths compared after each command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from tests.support.waiting import at_most, until

from trunkline.config.sandbox import ProtectSettings, SandboxSettings
from trunkline.core.call import Call, Caller, Failure
from trunkline.runtime.children import Children
from trunkline.runtime.source_context import SourceContext, StartSlots
from trunkline.sources.builtin.bash import BashTool
from trunkline.sources.builtin.protection.protected_paths import protected_below
from trunkline.sources.builtin.protection.quarantine import FOLDER, Quarantine, QuarantinedItem
from trunkline.sources.builtin.root import RootFolder
from trunkline.sources.builtin.source import BuiltinSource
from trunkline.sources.builtin.tool import ToolContext

PATH = os.pathsep.join(["/usr/local/bin", "/usr/bin", "/bin", os.path.dirname(shutil.which("bwrap") or "/bin/x")])
SAID = "Protected paths were changed"


class Deaf:
    """A sink for those who do not listen."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class GuardedBash:
    """`said` is what a command wrote and what was told of it. `notes` are the lines of the log."""

    def __init__(self, folder: Path, mode: str, protect: ProtectSettings, files: tuple[str, ...]) -> None:
        self.root = folder / "project"
        self.home = folder / "home"
        self.state_dir = folder / "state"
        for made in (self.root, self.home, self.state_dir):
            made.mkdir(exist_ok=True)
        self.environ = {"PATH": PATH, "HOME": str(self.home), "LC_ALL": "C.UTF-8"}
        self.notes: list[tuple[str, str, Mapping[str, object]]] = []
        context = SourceContext(
            children=Children(),
            environ=self.environ,
            message_bytes=1 << 24,
            sessions_per_source=1,
            session_idle_s=1.0,
            start_slots=StartSlots(),
            redact=str,
            note=lambda level, event, message, fields: self.notes.append((level, message, fields)),
            state_dir=self.state_dir,
            private=(str(self.state_dir),),
        )
        settings = SandboxSettings(mode=mode, network="off")
        root = RootFolder(self.root, protected=protected_below(self.root, protect, files))
        bash = BashTool(ToolContext(source="local", root=root, sandbox=settings, gateway=context))
        self.source = BuiltinSource("local", root, {"Bash": bash})

    # -- commands ---------------------------------------------------------------------------------------------------

    def begin(self, command: str, **arguments: Any) -> Call:
        params = json.dumps({"name": "Bash", "arguments": {"command": command, **arguments}}).encode()
        call = Call("tools/call", params, lambda _: None, caller=Caller(), reply=lambda _: None)
        call.tool, call.timeout_s, call.started_at = "Bash", at_most(60), monotonic()
        self.source.submit(call)
        return call

    async def finished(self, call: Call) -> str:
        await until(lambda: call.done, "the call is answered", 40)
        assert call.outcome is not None
        assert not isinstance(call.outcome, Failure), call.outcome
        return json.loads(bytes(call.outcome.raw))["content"][0]["text"]

    async def said(self, command: str, **arguments: Any) -> str:
        return await self.finished(self.begin(command, **arguments))

    async def ok(self, command: str) -> str:
        """It succeeds, and nothing is undone."""
        words = await self.said(f"set -e; {command}")
        assert not words.startswith("Exit code"), words
        assert SAID not in words, words
        return words

    async def undoes(self, command: str) -> str:
        """Something of it is undone."""
        words = await self.said(command)
        assert SAID in words, words
        return words

    # -- files ------------------------------------------------------------------------------------------------------

    def write(self, path: str, content: str = "mine", mode: int = 0o644) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        file.chmod(mode)
        return file

    def empty(self) -> None:
        """Everything that is in the project goes, as its user does it."""
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def there(self, path: str) -> bool:
        return os.path.lexists(self.root / path)

    def text(self, path: str) -> str:
        return (self.root / path).read_text()

    def git(self, *words: str, at: str = ".") -> str:
        """As its user runs it, outside of any sandbox."""
        who = ("-c", "user.name=a", "-c", "user.email=b", "-c", "protocol.file.allow=always")
        env = {**self.environ, "GIT_CONFIG_NOSYSTEM": "1"}
        argv = ["git", *who, *words]
        done = subprocess.run(
            argv, cwd=self.root / at, env=env, check=True, timeout=at_most(30), capture_output=True, text=True
        )
        return done.stdout

    @property
    def taken(self) -> list[QuarantinedItem]:
        return Quarantine(self.state_dir / FOLDER).all()


@contextlib.asynccontextmanager
async def guarded_bash(
    folder: Path, mode: str = "required", protect: ProtectSettings | None = None, files: tuple[str, ...] = ()
) -> AsyncIterator[GuardedBash]:
    bash = GuardedBash(folder, mode, protect or ProtectSettings(), files)
    life = asyncio.ensure_future(bash.source.run(Deaf()))  # type: ignore[arg-type]
    try:
        yield bash
    finally:
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life
