r"""The console blocks of a page, run one after the other as a reader would, and what they print compared.

`$ ` begins a command, and a `\` at its end goes on in the next line; what follows is what it prints. `…` stands for any
text, and on a line of its own for any lines. Where nothing follows, the command must end well, whatever it prints. A
gateway that is started goes on until the page, or what is `fresh`, ends.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.docs_pages import Block, Fresh, Setup, pieces, title_of
from tests.support.ports import free_port
from tests.support.waiting import at_most
from tools.terminal.sandbox import Running, Sandbox, serves
from tools.terminal.screen import plain

PATIENCE_S = at_most(30)
# They only look, so that they may be run again until a change that was made has taken effect.
LOOKS = re.compile(r"trunkline (servers|tools|explain|check)\b|curl(?! .*-X)|tail\b|cat\b|grep\b")
SHOWN_PORTS = ("4747", "5100", "8080", "9001")


def examples(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with the lines it is shown to print."""
    found: list[tuple[str, list[str]]] = []
    going_on = False
    for line in text.splitlines():
        if going_on:
            command, shown = found[-1]
            found[-1] = (f"{command.removesuffix(chr(92))}{line.strip()}", shown)
        elif line.startswith("$ "):
            found.append((line[2:], []))
        else:
            assert found, f"a console block starts with `$ `, not with `{line}`"
            found[-1][1].append(line)
        going_on = line.endswith("\\")
    return [(command, strip_empty(shown)) for command, shown in found]


def strip_empty(lines: list[str]) -> list[str]:
    """Without the empty lines at the end, which only set commands apart."""
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "…" else _line(line) for line in shown)
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed)) is not None


def _line(shown: str) -> str:
    """Blanks next to a `…` count as part of it: they only fill a column."""
    first, *others = shown.rstrip().split("…")
    if not others:
        return re.escape(first) + r"\n"
    inner = [re.escape(part.strip(" ")) for part in others[:-1]]
    return ".*".join([re.escape(first.rstrip(" ")), *inner, re.escape(others[-1].lstrip(" "))]) + r"\n"


class Console:
    """One page, from its top to its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._box = self._fresh()

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self._box.close()

    def _fresh(self) -> Sandbox:
        self._number += 1
        return Sandbox(self._folder / str(self._number), {port: free_port() for port in SHOWN_PORTS})

    def play(self, page: Path) -> int:
        """Run every block; how many commands that were."""
        count = 0
        for piece in pieces(page):
            if isinstance(piece, Fresh):
                self._box.close()
                self._box = self._fresh()
            elif isinstance(piece, Setup):
                for command in piece.commands:
                    self._run(command, [], f"{title_of(page)}, setup")
            elif piece.file:
                self._box.write(piece.file, piece.text)
            elif piece.language == "console":
                count += self._play_block(piece, page)
        return count

    def _play_block(self, block: Block, page: Path) -> int:
        commands = examples(block.text)
        for command, shown in commands:
            self._run(command, shown, f"{title_of(page)}:{block.line}")
        return len(commands)

    def _run(self, command: str, shown: list[str], where: str) -> None:
        if serves(command) or command.endswith(" &"):
            self._serve(command.removesuffix(" &"), shown, where)
            return
        deadline = time.monotonic() + PATIENCE_S
        while True:
            printed = [plain(line) for line in self._box.run(command)]
            fine = matches(shown, printed) if shown else self._box.status == 0
            if fine or not LOOKS.match(command) or time.monotonic() > deadline:
                break
        assert fine, told(where, command, shown, printed, self._box.status)

    def _serve(self, command: str, shown: list[str], where: str) -> None:
        running = self._box.serve(command)

        def printed() -> list[str]:
            return [plain(line) for line in self._box.shown(running.screen)]

        def seen(_: Running) -> bool:
            # a server that is up at once may be in the log before the gateway says that it is
            return matches(["…", *shown], printed()) if shown else self._box.is_serving()

        fine = running.until(seen, PATIENCE_S)
        assert fine, told(where, command, shown, printed(), running.process.poll())


def told(where: str, command: str, shown: Sequence[str], printed: Sequence[str], status: int | None) -> str:
    parts = [f"{where}: $ {command}", "shown:", *shown, "", f"printed (exit status {status}):", *printed]
    return "\n".join(parts)
