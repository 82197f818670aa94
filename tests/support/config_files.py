"""Loading configuration text in tests."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from trunkline.config.files import ConfigFile
from trunkline.config.load import LoadedConfig, load_config
from trunkline.config.problems import Report
from trunkline.config.reader import ConfigReader
from trunkline.config.settings import Settings
from trunkline.config.sources import UnreadySource
from trunkline.config.tree import Node
from trunkline.sources import section_kinds

KINDS = section_kinds()


def load_text(
    text: str | bytes, *, suffix: str = ".yaml", environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> LoadedConfig:
    """Load a file that holds `text`, named `trunkline` with the suffix."""
    with tempfile.TemporaryDirectory() as scratch:
        path = (folder or Path(scratch)) / f"trunkline{suffix}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(
            ConfigFile.named(path), environ={"HOME": "/home/me"} if environ is None else environ, kinds=KINDS
        )


load_json = partial(load_text, suffix=".json")


def settings_of(loaded: LoadedConfig) -> Settings:
    assert loaded.settings is not None, [str(problem) for problem in loaded.problems]
    return loaded.settings


def found(loaded: LoadedConfig) -> list[tuple[str, int, int]]:
    """Code, line and column of every problem."""
    return [(p.code.id, p.span.line if p.span else 0, p.span.column if p.span else 0) for p in loaded.problems]


def codes(loaded: LoadedConfig) -> list[str]:
    return [problem.code.id for problem in loaded.problems]


def unready(loaded: LoadedConfig) -> dict[str, tuple[str, ...]]:
    """The servers that lack something, each with what."""
    sources = settings_of(loaded).sources
    return {name: section.obstacles for name, section in sources.items() if isinstance(section, UnreadySource)}


def reader_for(environ: Mapping[str, str] | None = None, folder: str = "/etc/trunkline") -> ConfigReader:
    return ConfigReader(Report("file"), environ or {}, Path(folder))


def node_of(text: str) -> Node:
    """A node parsed from YAML that must be right."""
    from trunkline.config.yaml_parser import parse_yaml

    report = Report("file")
    node = parse_yaml(text, report)
    assert not report.failed, report.in_file_order()
    return node
