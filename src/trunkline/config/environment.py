"""References to the environment inside text values: `${NAME}`, `${NAME:-default}`, and `$${` for a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)\}|\$\{")
_BODY: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?\Z", re.DOTALL)

Fault = Literal["unset", "malformed"]


def has_reference(text: str) -> bool:
    return any(match.group() != "$${" for match in _REFERENCE.finditer(text))


def expand(text: str, environ: Mapping[str, str], on_fault: Callable[[Fault, str], None]) -> str:
    """Replace every reference. A fault gets its kind and the name (or the text that is no reference); it leaves nothing.

    As in a shell, the default of `:-` also stands in for a variable that is set but empty.
    """
    if "${" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        if match.group() == "$${":
            return "${"
        body = _BODY.match(match["body"] or "")
        if body is None:
            on_fault("malformed", match.group())
            return ""
        value = environ.get(body["name"])
        default: str | None = body["default"]
        if default is not None:
            return value or default
        if value is None:
            on_fault("unset", body["name"])
            return ""
        return value

    return _REFERENCE.sub(replace, text)
