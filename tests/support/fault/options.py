"""The options of a fault server: one JSON object on its command line."""

from __future__ import annotations

import json
from typing import Any

FAULTS = frozenset(
    {
        # at start (stdio)
        "exit",  # ends before it reads anything
        "exit_in_handshake",  # reads the first message, then ends
        "mute",  # reads everything, answers nothing
        "banner",  # noise on stdout before the protocol and before every answer
        "stderr_flood",  # 10 MiB on stderr before the first answer
        "spawn",  # has a child that holds its pipes
        "spawn_setsid",  # ... in a session of its own, deaf to SIGTERM
        "stubborn",  # ignores SIGTERM and the end of its input
        # in the protocol
        "ignore_discover",  # never answers `server/discover`
        "mute_initialize",  # never answers `initialize`
        "endless_lists",  # `tools/list` always has one more page
        "slicer",  # every write is one byte
        # over HTTP
        "unauthorized",  # 401 to everything
        "redirect",  # 307 to everything
        "html_502",  # a proxy's error page to everything
        "hang_up_idle",  # closes the connection after every answer without having said so
        "no_get",  # 405 to GET, as servers without a standalone stream do
        "sessionless",  # gives out no session id
    }
)


class Options:
    """Plain attributes; an unknown key or fault is a mistake in the test and ends the server."""

    def __init__(self, given: dict[str, Any]) -> None:
        given = dict(given)
        self.transport: str = given.pop("transport", "stdio")  # stdio | http | sse (the 2024-11-05 kind)
        self.era: str = given.pop("era", "legacy")  # legacy | modern | both
        self.version: str = given.pop("version", "2025-06-18")
        self.answers: str = given.pop("answers", "json")  # json | sse: how a legacy or modern HTTP answer is sent
        self.port: int = given.pop("port", 0)
        self.port_file: str = given.pop("port_file", "")
        self.journal: str = given.pop("journal", "")
        self.ledger: str = given.pop("ledger", "")
        self.start_delay: float = given.pop("start_delay", 0.0)
        self.latency: list[float] = given.pop("latency", [])  # [mean, spread] in seconds, before every answer
        self.tools: list[dict[str, Any]] = given.pop("tools", [])  # definitions of tools more, which work like `echo`
        self.redirect_to: str = given.pop("redirect_to", "")
        self.faults = frozenset(given.pop("faults", ()))
        unknown = set(given) | (self.faults - FAULTS)
        if unknown:
            raise SystemExit(f"fault server: unknown options {sorted(unknown)}")

    @classmethod
    def parse(cls, text: str) -> Options:
        return cls(json.loads(text))
