"""What a good configuration file gives: everything the gateway is built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from trunkline.config.gateway import GatewaySettings
from trunkline.config.sources import SourceSection


@dataclass(frozen=True, slots=True)
class Settings:
    """`sources` is in file order: on equal names the earlier source wins."""

    path: Path
    gateway: GatewaySettings
    sources: Mapping[str, SourceSection]

    def secrets(self) -> list[str]:
        """Every configured value that must never appear in a log."""
        secrets = [self.gateway.token, self.gateway.operator_token]
        for section in self.sources.values():
            for name in ("headers", "env", "config", "tokens", "token"):
                secrets += _texts(getattr(section, name, None))
            secrets += _texts(getattr(getattr(section, "sandbox", None), "env", None))
        return [secret for secret in secrets if secret]


def _texts(value: object) -> list[str]:
    """Every text in a value, however deep."""
    if isinstance(value, Mapping):
        value = list(cast(Mapping[str, object], value).values())
    if isinstance(value, list | tuple):
        return [text for item in cast(Sequence[object], value) for text in _texts(item)]
    return [value] if isinstance(value, str) else []
