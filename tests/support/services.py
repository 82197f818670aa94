"""A service as tests use it: a process, an entry for the configuration, and what it wrote down."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tests.support.servers import Listening
from tests.support.waiting import at_most

PROGRAM = str(Path(__file__).with_name("service_server.py"))
TOKEN = "s3rvice-t0ken-0123456789"


class ServiceProcess(Listening):
    program: ClassVar = PROGRAM

    def __init__(self, folder: Path, name: str = "svc", **options: Any) -> None:
        super().__init__(folder, name, **{"token": TOKEN, **options})

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        tokens = {"*": TOKEN}
        return {
            self.name: {"kind": "service", "endpoint": self.endpoint, "tokens": tokens, "timeout": at_most(30), **keys}
        }

    def posts(self) -> list[dict[str, Any]]:
        """Every request to execute something."""
        return [event for event in self.events("request") if event["method"] == "POST"]
