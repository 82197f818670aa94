"""The plugins that AWF has installed for this user: a folder for each, with its manifest and its program.

They lie in the user's own data folder, or where `AWF_PLUGINS_PATH` says; those in a repository have to be declared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trunkline.config.awf_plugins import MANIFEST, program_in
from trunkline.config.file_text import parse_text, read_text
from trunkline.config.report import Invalid, Report
from trunkline.config.source_list import Kinds
from trunkline.config.sources import SourceSection, Unready
from trunkline.config.tree import Scalar, Table
from trunkline.core.names import is_source_name, slug

_KIND: Final = "plugin"
_FOLDER: Final = Path("awf", "plugins")


def installed_plugins(environ: Mapping[str, str], kinds: Kinds) -> dict[str, SourceSection]:
    """By name. One that cannot be used says why, should a workflow name it."""
    found: dict[str, SourceSection] = {}
    declared: Any = kinds[_KIND]()
    for folder in _plugins(environ):
        written, obstacle = _name_of(folder)
        name = written if is_source_name(written) else slug(written)
        program = program_in(folder)
        if program is None or obstacle:
            why = obstacle or f"{folder} holds no program that is called like it"
            section: SourceSection = Unready(prefix=name, of_kind=_KIND, obstacles=(why,))
        else:
            section = declared(prefix=name, command=str(program))
        found.setdefault(name, section)
    return found


def plugin_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where AWF keeps them. A relative path would lead into whatever folder this is started in."""
    named = environ.get("AWF_PLUGINS_PATH", "")
    if named:
        return tuple(path for path in map(Path, named.split(os.pathsep)) if path.is_absolute())
    data, home = Path(environ.get("XDG_DATA_HOME", "")), Path(environ.get("HOME", ""))
    if not data.is_absolute():
        data = home / ".local" / "share"
    return (data / _FOLDER,) if data.is_absolute() else ()


def _plugins(environ: Mapping[str, str]) -> Iterator[Path]:
    for folder in plugin_folders(environ):
        try:
            inside = sorted(folder.iterdir())
        except OSError:
            continue
        yield from (plugin for plugin in inside if (plugin / MANIFEST).is_file())


def _name_of(folder: Path) -> tuple[str, str]:
    """What its manifest calls it; where that does not say, the name of its folder and what is wrong."""
    file = folder / MANIFEST
    report = Report(str(file))
    try:
        root = parse_text(read_text(file, report), file, report)
    except Invalid:
        return folder.name, "; ".join(problem.message for problem in report.in_file_order())
    name = root.get("name") if isinstance(root, Table) else None
    if isinstance(name, Scalar) and name.kind == "text" and name.text:
        return name.text, ""
    return folder.name, f"{file} has no `name`"
