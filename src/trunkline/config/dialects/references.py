"""Rewrites the references of other programs to Trunkline's own, `${NAME}`, and reads files of environment variables.

The content of a file is never put into the text: it becomes a variable of the reader, so that no message shows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from trunkline.config.clients import ServerKeys
from trunkline.config.files import writable_by_others
from trunkline.config.reader import ConfigReader, escape_references
from trunkline.config.tree import ListNode, Node, Scalar, Table, TableEntry
from trunkline.config.value_types import FilePath
from trunkline.core.errors import BAD_VALUE, CONFIG_UNREADABLE, OTHERS_CAN_WRITE

TextRewriter = Callable[[Scalar], str]
"""Rewrites a text of the client's file."""

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_WITH_DEFAULT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?::-.*)?\Z", re.DOTALL)
_BRACES: Final = re.compile(r"\$\{([^{}]*)\}")
_BRACES_OR_BARE: Final = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_OPENCODE: Final = re.compile(r"\{(env|file):([^}]+)\}")
_LARGEST_FILE: Final = 64 * 1024


def rewrite_keys(given: ServerKeys, rewrite: TextRewriter) -> ServerKeys:
    """The keys of a server with every text rewritten."""
    return {name: TableEntry(entry.key, rewrite_node(entry.value, rewrite)) for name, entry in given.items()}


def rewrite_node(node: Node, rewrite: TextRewriter) -> Node:
    """The same tree with every text rewritten. Keys have no references."""
    if isinstance(node, Scalar):
        return Scalar(node.span, "text", rewrite(node)) if node.kind == "text" else node
    if isinstance(node, Table):
        return Table(node.span, [TableEntry(key, rewrite_node(value, rewrite)) for key, value in node.entries])
    return ListNode(node.span, [rewrite_node(item, rewrite) for item in node.items])


def text_of_file(node: Node, path: Path, reader: ConfigReader) -> str:
    """A reference to the text of a file, stripped."""
    text = read_reference_file(node, path, reader)
    return reader.missing_reference() if text is None else reader.define(text.strip(), from_file=True)


def read_reference_file(node: Node, path: Path, reader: ConfigReader) -> str | None:
    """The text of a file that a value refers to; None, with the reason reported, where it cannot be read."""
    reader.files.add(path)
    try:
        if not path.is_file():
            raise OSError("it does not exist or is not a regular file")
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise OSError(f"it is larger than {_LARGEST_FILE:,} bytes")
        for found in writable_by_others(path, beyond=reader.folder):
            reader.warn(OTHERS_CAN_WRITE, node, found.message, found.hint)
        return data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else reason
        reader.obstacle(CONFIG_UNREADABLE, node, f"The file it refers to cannot be read: {reason}")
        return None


class EditorReferences:
    """Rewrites references of VS Code and similar editors: `${env:NAME}`, `${workspaceFolder}`, `${input:id}` …

    With `plain`, `${NAME}` and `${NAME:-default}` are references too. `defaults` are those of inputs.
    """

    def __init__(
        self, reader: ConfigReader, workspace: Path, *, plain: bool, defaults: Mapping[str, str] | None = None
    ) -> None:
        self._reader = reader
        self._plain = plain
        self._defaults = defaults or {}
        self._fixed = {
            "workspaceFolder": str(workspace),
            "workspaceFolderBasename": workspace.name,
            "userHome": str(reader.home),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def __call__(self, node: Scalar) -> str:
        return _rewritten(node.text, _BRACES, lambda match: self._resolve(node, match[1]), self._reader)

    def _resolve(self, node: Scalar, body: str) -> str | None:
        """What replaces `${body}`; None if it is not a reference."""
        reader = self._reader
        kind, colon, name = body.partition(":")
        if body in self._fixed:
            return reader.define(self._fixed[body])
        if self._plain and _WITH_DEFAULT.match(body):
            return f"${{{body}}}"
        if colon and kind == "env":
            if VARIABLE.match(name) is None:
                return None
            reader.unset_hints.setdefault(name, "set it")  # editors have no defaults
            return f"${{{name}}}"
        if colon and kind == "workspaceFolder":
            return reader.define(self._fixed["workspaceFolder"])
        if colon and kind == "file":
            return text_of_file(node, reader.path(name), reader)
        if colon and kind == "input":
            return self._input(name)
        if colon and kind in ("command", "config"):
            hint = f"write the value out, or {reader.reference_to('NAME')}"
            reader.obstacle(BAD_VALUE, node, "The text contains a reference that only the editor can resolve", hint)
            return reader.missing_reference()
        if not self._plain and VARIABLE.match(body):
            message = f"`${{{body}}}` is not a reference here and is left unchanged"
            reader.warn(BAD_VALUE, node, message, f"write {reader.reference_to(body)} for the variable")
        return None

    def _input(self, name: str) -> str:
        variable = "INPUT_" + re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
        if not self._reader.is_set(variable) and name in self._defaults:
            return self._reader.define(self._defaults[name])
        hint = f"set it: the editor asks for `{name}`, Trunkline takes it from this variable"
        self._reader.unset_hints[variable] = hint
        return f"${{{variable}}}"


def shell_references(reader: ConfigReader) -> TextRewriter:
    """Rewrites `$NAME` and `${NAME}` of Gemini CLI, which leaves them unchanged if there is no such variable.

    Here an unset variable is a mistake in `${NAME}` and in `$NAME` in capitals, which is never meant literally.
    """

    def resolve(match: re.Match[str]) -> str | None:
        body, bare = match.groups()
        if body is not None:
            return f"${{{body}}}" if _WITH_DEFAULT.match(body) else None
        return f"${{{bare}}}" if reader.is_set(bare) or bare.isupper() else None

    return lambda node: _rewritten(node.text, _BRACES_OR_BARE, resolve, reader)


def opencode_references(reader: ConfigReader, folder: Path) -> TextRewriter:
    """Rewrites `{env:NAME}` and `{file:path}` of OpenCode."""

    def resolve(node: Scalar, kind: str, name: str) -> str | None:
        if kind == "env":
            return f"${{{name}}}" if VARIABLE.match(name) else None
        path = reader.path(name) if name.startswith("~/") else folder / name
        return text_of_file(node, path, reader)

    return lambda node: _rewritten(node.text, _OPENCODE, lambda match: resolve(node, match[1], match[2]), reader)


def _rewritten(
    text: str, pattern: re.Pattern[str], resolve: Callable[[re.Match[str]], str | None], reader: ConfigReader
) -> str:
    """The text with each match replaced by what `resolve` returns, and everything else escaped."""
    parts: list[str] = []
    at = 0
    for match in pattern.finditer(text):
        replacement = resolve(match)
        if replacement is not None:
            before = text[at : match.start()]
            plain = before.rstrip("$")
            # a `$` right before the reference would escape it
            dollars = reader.define(before[len(plain) :]) if plain != before else ""
            parts += [escape_references(plain), dollars, replacement]
            at = match.end()
    return "".join((*parts, escape_references(text[at:])))


# -- files of environment variables (`envFile`): lines of NAME=value, as editors read them ---------------------------

_LINE: Final = re.compile(
    r"""
    \s* (?:export\s+)? (?P<name>[A-Za-z_][A-Za-z0-9_.-]*) \s*[=:][ \t]*
    (?: "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>[^']*)' | `(?P<back>[^`]*)` | (?P<bare>[^#]*) )
    \s*(?:\#.*)? \Z
    """,
    re.VERBOSE,
)


def parse_env_file(text: str) -> dict[str, str]:
    """The variables in a file; other lines, such as comments, are ignored. The last of several with one name counts."""

    def value_of(match: re.Match[str]) -> str:
        if match["double"] is not None:
            return match["double"].replace("\\n", "\n").replace("\\r", "\r")
        quoted = match["single"] if match["single"] is not None else match["back"]
        return quoted if quoted is not None else match["bare"].strip()

    lines = (_LINE.match(line) for line in text.splitlines())
    return {match["name"]: value_of(match) for match in lines if match is not None}


def with_env_file(env: TableEntry | None, env_file: TableEntry, reader: ConfigReader) -> TableEntry | None:
    """The `env` of a server with the variables of its file added, unless `env` has them.

    Raises InvalidValue if the path is not usable.
    """
    path = FilePath().read(env_file.value, reader)
    text = read_reference_file(env_file.value, path, reader)
    if text is None or (env is not None and not isinstance(env.value, Table)):
        return env
    own = env.value.entries if env is not None and isinstance(env.value, Table) else []
    taken = {entry.key.text for entry in own}
    span = env_file.value.span
    added = [
        TableEntry(Scalar(span, "text", name), Scalar(span, "text", reader.define(value, from_file=True)))
        for name, value in parse_env_file(text).items()
        if name not in taken
    ]
    key = env.key if env is not None else Scalar(env_file.key.span, "text", "env")
    return TableEntry(key, Table(span, [*added, *own]))
