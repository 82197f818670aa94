"""What people are told where Bash has no sandbox, at start and when a file is checked: why, and what to do."""

from __future__ import annotations

from typing import Final, NamedTuple

NOT_INSTALLED: Final = "bubblewrap (`bwrap`) is not installed"
INSTALL: Final = "install it (`apt install bubblewrap`, `dnf install bubblewrap`, …)"


class NoSandbox(NamedTuple):
    reason: str
    hint: str


def no_sandbox(mode: str, obstacle: str, remedy: str) -> NoSandbox:
    """`mode` is `auto` or `required`, `obstacle` why there is none."""
    if mode == "required":
        return NoSandbox(f"Bash is refused without a sandbox: {obstacle}", remedy)
    reason = f"Bash runs without a sandbox, and commands can do whatever this user can: {obstacle}"
    return NoSandbox(reason, f'{remedy}, or accept that with `sandbox: "off"`')
