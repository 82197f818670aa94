"""A file's text and its tree: the name says how it is read. Each parser is imported for its own files only."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trunkline.config.file_bytes import read_bytes
from trunkline.config.report import Report
from trunkline.config.tree import MAX_BYTES, Node, place_of
from trunkline.config.writable import writable_by_others
from trunkline.core.errors import CONFIG_SYNTAX, CONFIG_TOO_LARGE, CONFIG_UNREADABLE, OTHERS_CAN_WRITE

_JSON: Final = (".json", ".jsonc")
# the programs that write these files take comments in them, and a comma after the last item
_RELAXED: Final = frozenset({"mcp.json", "settings.json", "opencode.json"})
# Claude Code keeps much else in the file with its servers, which has been seen to grow to many megabytes
_MOSTLY_STATE: Final = {".claude.json": ("mcpServers",)}
_MAX_BYTES_WITH_STATE: Final = 64 * MAX_BYTES


def read_text(path: Path, report: Report, *, beyond: Path | None = None) -> str:
    """The text of a file. Raises Invalid, with the reason reported. It is told where others can write it or a folder
    above it, but for those above `beyond`."""
    limit_bytes = _MAX_BYTES_WITH_STATE if path.name in _MOSTLY_STATE else MAX_BYTES
    try:
        data = read_bytes(path, limit_bytes)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise report.error(CONFIG_UNREADABLE, None, f"The file cannot be read: {reason}") from None
    if len(data) > limit_bytes:
        raise report.error(CONFIG_TOO_LARGE, None, f"The file is larger than {limit_bytes:,} bytes")
    for found in writable_by_others(path, beyond=beyond):
        report.warn(OTHERS_CAN_WRITE, None, found.message, found.hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        place = place_of(before, len(before))
        raise report.error(CONFIG_SYNTAX, place, "The file is not UTF-8 text", "save it as UTF-8") from None


def parse_text(text: str, path: Path, report: Report) -> Node:
    """The tree of a file's text, read as the file's name says. Raises Invalid, with the reason reported."""
    suffix = path.suffix.lower()
    if suffix in _JSON:
        from trunkline.config.json_text import read_json

        relaxed = suffix == ".jsonc" or path.name in _RELAXED
        return read_json(text, report, relaxed=relaxed, only=_MOSTLY_STATE.get(path.name))
    if suffix == ".toml":
        from trunkline.config.toml_text import read_toml

        return read_toml(text, report)
    from trunkline.config.yaml_text import read_yaml

    return read_yaml(text, report)
