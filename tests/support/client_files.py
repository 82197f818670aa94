"""Loading files of MCP clients in tests."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.config_files import KINDS

from trunkline.config.files import ConfigFile
from trunkline.config.load import LoadedConfig, load_config

SAMPLES = Path(__file__).parents[1] / "unit" / "config" / "clients"


def load_sample(name: str, **environ: str) -> LoadedConfig:
    """Load one of the sample files, in an environment that holds these variables alone."""
    return load_config(ConfigFile.named(SAMPLES / name), environ={"HOME": "/home/me", **environ}, kinds=KINDS)


def load_named(
    name: str, text: str, *, environ: Mapping[str, str] | None = None, beside: Mapping[str, str] | None = None
) -> LoadedConfig:
    """Load `text` as a file of this name, which may name a folder too, with other files beside it."""
    with tempfile.TemporaryDirectory() as scratch:
        for path, content in {name: text, **(beside or {})}.items():
            (Path(scratch) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(scratch) / path).write_text(content)
        return load_config(
            ConfigFile.named(Path(scratch) / name), environ={"HOME": "/home/me", **(environ or {})}, kinds=KINDS
        )


def shown(loaded: LoadedConfig) -> list[str]:
    """Every problem in one line: its place in the file, severity, code and message."""
    return [
        f"{p.span.line}:{p.span.column} {p.severity} {p.code}: {p.message}" if p.span else str(p)
        for p in loaded.problems
    ]
