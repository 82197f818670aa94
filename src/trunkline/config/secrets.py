"""Secrets written into a configuration file: warnings about them, and hiding them where the file is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trunkline.config.files import parse_text
from trunkline.config.problems import LINE_BREAK, InvalidValue, Report, TextPositions
from trunkline.config.reader import ConfigReader, has_reference
from trunkline.config.secret_detection import (
    CREDENTIAL,
    NAME_WORDS,
    is_named_secret,
    is_path_for_certain,
    is_secret_name,
    secrets_in,
)
from trunkline.config.tree import ListNode, Node, Scalar, SkippedValue, Table
from trunkline.core.errors import LITERAL_SECRET

_TOKEN: Final = "token"
_OTHERS_REFERENCE: Final = "{env:"
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}|\{env:[^}]*\}")
# beside `${NAME}` only the scheme of a header is harmless
ONLY_REFERENCES: Final = re.compile(
    r"""
    ["']?  (?:(?:Bearer|Basic|Token|Bot|ApiKey)[ ]+)?
    (?: \$\{[A-Za-z_][A-Za-z0-9_]*(?::-)?\} | \{env:[A-Za-z_][A-Za-z0-9_]*\} )+  ["']?\Z
    """,
    re.VERBOSE | re.IGNORECASE,
)
_PLAIN_REFERENCE: Final = re.compile(
    r"(?:(?:Bearer|Basic|Token|Bot|ApiKey)[ ]+)?(?:\$\{\w+\}|\{env:\w+\})", re.IGNORECASE
)
_HARMLESS: Final = re.compile(r"(?:https?://|[0-9.]*\Z|(?i:true|false|none|null)\Z)")
_UNPARSED: Final = re.compile(
    rf"""{NAME_WORDS} [\w.-]{{0,64}}+ ["']?\s*[:=]\s*
    (?P<value> "[^"\n]*"? | '[^'\n]*'? | [^\s,"'{{\[] [^,}}\]\n]* )""",
    re.VERBOSE,
)


def warn_about_secrets(table: Table, reader: ConfigReader) -> None:
    """Warn about secrets written out in the `env`, `headers`, `tokens` and `args` of one source."""
    sandbox = table.get("sandbox")
    groups = [table.get("env"), table.get("headers"), sandbox.get("env") if isinstance(sandbox, Table) else None]
    for values in groups:
        for key, value in values.entries if isinstance(values, Table) else ():
            warn_if_secret(key, value, reader)
    tokens = table.get("tokens")
    for key, value in tokens.entries if isinstance(tokens, Table) else ():
        if is_literal_secret(_TOKEN, value):
            _warn(key, _TOKEN, reader)
    args = table.get("args")
    for arg, option in _secret_args(args.items if isinstance(args, ListNode) else []):
        _warn(arg, option, reader)


def warn_if_secret(key: Scalar, value: Node, reader: ConfigReader) -> None:
    """Warn about a value that is a secret by its key or its look."""
    if is_literal_secret(key.text, value):
        _warn(key, key.text, reader)


def _warn(place: Scalar, name: str, reader: ConfigReader) -> None:
    what = f"`{name}` holds what" if name else "This argument"
    variable = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
    variable = "TOKEN" if variable in ("", "AUTHORIZATION") else variable
    hint = f"keep it in the environment: {reader.reference_to(variable)}"
    reader.warn(LITERAL_SECRET, place, f"{what} looks like a secret written into the file", hint)


def is_literal_secret(name: str, node: Node) -> bool:
    """Whether the value is a secret itself rather than a reference to the environment."""
    if not isinstance(node, Scalar) or not node.text or has_reference(node.text) or _OTHERS_REFERENCE in node.text:
        return False
    if CREDENTIAL.search(node.text) is not None:
        return True
    if not is_named_secret(name, node.text) or is_path_for_certain(node.text):
        return False
    return _HARMLESS.match(node.text) is None


def has_literal_secret(text: str, path: Path) -> bool:
    """Whether a secret is written anywhere in the text of the file at `path`. A secret's name is enough here."""
    try:
        root = parse_text(text, path, Report(str(path)))
    except InvalidValue:
        text = _PLAIN_REFERENCE.sub(",", text)
        return hide_secrets(text, None) != text
    return next(_secret_scalars(root), None) is not None


def hide_secrets(text: str, root: Node | None) -> str:
    """The file's text with a `*` for each character of what looks like a secret, so that positions stay.

    Without a tree, for text that could not be parsed, whatever follows the name of a secret is hidden.
    """
    if root is None:
        return _hide_credentials(_UNPARSED.sub(_hide_value, text))
    positions = TextPositions(text)
    parts: list[str] = []
    at = 0
    for node in sorted(_secret_scalars(root), key=lambda node: node.span):
        start = positions.offset_of(*node.span[:2])
        end = positions.offset_of(*node.span[2:])
        if start >= at:  # a value reused by an alias is hidden already
            parts += [_hide_credentials(text[at:start]), _hide_node(node, text[start:end])]
            at = end
    return "".join((*parts, _hide_credentials(text[at:])))


def _hide_node(node: Scalar, text: str) -> str:
    if not isinstance(node, SkippedValue):
        return re.sub(r"\S", "*", text)
    # this may be very large: only its last line is kept, as something else may follow on it
    *_, last = LINE_BREAK.split(text)
    return "".join(LINE_BREAK.findall(text)) + "*" * len(last)


def _hide_credentials(text: str) -> str:
    return CREDENTIAL.sub(lambda match: "*" * len(match.group()), text)


def _hide_value(match: re.Match[str]) -> str:
    value = match["value"]
    return match.group() if ONLY_REFERENCES.match(value.rstrip()) else match.group()[: -len(value)] + "*" * len(value)


def _secret_args(args: list[Node]) -> Iterator[tuple[Scalar, str]]:
    """Arguments that contain a secret, each with its option: `--token=…`, or the argument after `--token`."""
    option = ""
    for arg in args:
        if not isinstance(arg, Scalar):
            continue
        name, equals, value = arg.text.partition("=")
        if is_literal_secret(option, arg):
            yield arg, option
        elif equals and is_literal_secret(name, Scalar(arg.span, "text", value)):
            yield arg, name
        option = arg.text if arg.text.startswith("-") and not equals else ""


def _secret_scalars(root: Node) -> Iterator[Scalar]:
    """Every value in the tree that is a secret by its name or its look."""
    todo: list[tuple[str, Node]] = [("", root)]
    while todo:
        name, node = todo.pop()
        if isinstance(node, Table):
            todo.extend((name if is_secret_name(name) else key.text, value) for key, value in node.entries)
        elif isinstance(node, ListNode):
            todo.extend((name, item) for item in node.items)
            yield from (arg for arg, _ in _secret_args(node.items))
        elif (
            isinstance(node, SkippedValue)
            or is_literal_secret(name, node)
            or _has_text_beside_reference(name, node)
            or next(secrets_in("", _REFERENCE.sub("", node.text)), None) is not None
        ):
            yield node


def _has_text_beside_reference(name: str, node: Scalar) -> bool:
    """Whether a secret has text beside its reference, or a default, which may be a part of it."""
    refers = has_reference(node.text) or _OTHERS_REFERENCE in node.text
    return refers and is_secret_name(name) and ONLY_REFERENCES.match(node.text) is None
