"""What a user trusts in a file: everything that it says but what is known to be harmless, and the programs and scripts
of its own folder.

A key that is new is covered by default. Text is taken as it is written: a reference stays a reference, and a value of
the environment is nobody's secret here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trunkline.config.environment import has_reference
from trunkline.config.tree import Items, Node, Scalar, Table
from trunkline.config.trust.own_programs import OwnFile, own_files

_FORMAT: Final = 1
_ANY: Final = "*"
_TIMES: Final = ("timeout", "connect_timeout", "start_timeout", "grace")
_TIMES_OF_CLIENTS: Final = ("timeout", "timeout_s", "start_timeout_ms", "start_timeout_s")

Way = tuple[str, ...]
HARMLESS: Final[frozenset[Way]] = frozenset(
    {
        ("$schema",),
        *(("gateway", name) for name in ("context_tokens", "disclosure", "log", "search", "start_wait")),
        *(
            ("gateway", "limits", f"{name}")
            for name in ("call_seconds", "source_session_idle", "server_request_seconds", "session_idle")
        ),
        *(("sources", _ANY, name) for name in _TIMES),
        ("sources", _ANY, "tools", "timeouts"),
        ("sources", _ANY, "cache", "ttl"),
        ("sources", _ANY, "declare", _ANY, "title"),
        ("sources", _ANY, "declare", _ANY, "description"),
        ("mcpServers", _ANY, "description"),
        *(("mcpServers", _ANY, name) for name in _TIMES_OF_CLIENTS),
        ("plugins", _ANY, "description"),
    }
)
"""Keys that start nothing and weaken nothing: to change them needs no new trust. `*` is any name, or an item."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`files` are the programs and scripts whose bytes are part of it."""

    digest: str
    files: tuple[OwnFile, ...]


def fingerprint(root: Node, file: Path, environ: Mapping[str, str]) -> Fingerprint:
    """Of the file at `file`, whose text was read as `root`."""
    files = own_files(root, file, environ)
    said = [_FORMAT, _plain(root, ()), [[one.path, one.state] for one in files]]
    data = json.dumps(said, ensure_ascii=True, separators=(",", ":")).encode()
    return Fingerprint(hashlib.sha256(data).hexdigest(), files)


def _is_harmless(node: Node, way: Way) -> bool:
    """Whether what stands at this place of a file starts and weakens nothing. A reference may tell a secret to those
    who are shown a description, so it is not."""
    return any(_fits(way, harmless) for harmless in HARMLESS) and not _refers(node)


def _refers(node: Node) -> bool:
    if isinstance(node, Scalar):
        return has_reference(node.text)
    return any(map(_refers, node.items if isinstance(node, Items) else [value for _, value in node.entries]))


def _is_left_out(node: Node, way: Way) -> bool:
    """Harmless by itself, or a group of settings of the gateway in which all are."""
    if way[0] != "gateway" or not isinstance(node, Table) or not node.entries:
        return _is_harmless(node, way)
    return _is_harmless(node, way) or all(_is_left_out(value, (*way, key.text)) for key, value in node.entries)


def _fits(way: Way, pattern: Way) -> bool:
    return len(way) == len(pattern) and all(part in (_ANY, name) for name, part in zip(way, pattern, strict=True))


def covered(node: Node, way: Way = ()) -> Iterator[tuple[Way, Node]]:
    """Every list, and every value outside of one, that is part of the fingerprint, in the order of the file."""
    if _is_harmless(node, way) or (not way and _says_nothing(node)):
        return
    if isinstance(node, Table) and node.entries:
        for key, value in node.entries:
            yield from covered(value, (*way, key.text))
    elif isinstance(node, Items) and any(isinstance(item, Table) for item in node.items):
        for number, item in enumerate(node.items, 1):
            yield from covered(item, (*way, str(number)))
    else:
        yield way, node


def _says_nothing(node: Node) -> bool:
    return (isinstance(node, Scalar) and node.kind == "null") or (isinstance(node, Table) and not node.entries)


def _plain(node: Node, way: Way) -> Any:
    """The tree in a form that is the same whenever it says the same. The order of keys says nothing."""
    if isinstance(node, Table):
        said = ((key.text, value, (*way, key.text)) for key, value in node.entries)
        return {"keys": sorted([name, _plain(value, at)] for name, value, at in said if not _is_left_out(value, at))}
    if isinstance(node, Items):
        return [_plain(item, (*way, str(number))) for number, item in enumerate(node.items, 1)]
    return {node.kind: node.text}
