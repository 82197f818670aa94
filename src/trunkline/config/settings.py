"""What a good configuration file gives: everything the gateway is built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
            for name in ("headers", "env"):
                secrets += getattr(section, name, {}).values()
        return [secret for secret in secrets if secret]
