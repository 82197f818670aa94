"""An entry as text: YAML by indentation, JSON and YAML in braces, and TOML.

Keys and values are quoted where leaving the quotes away could mean anything else, to us or to another reader.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from json import dumps
from typing import Final, NamedTuple

from trunkline.config.plain import kind_of

Plain = str | bool | list[str] | dict[str, "Plain"]
"""What an entry is made of."""

_PLAIN: Final = re.compile(r"(?:--?)?(?:~/)?[A-Za-z_./][A-Za-z0-9_./@+=-]*\Z")
_PLAIN_WITH_COLON: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./@+=-]*(?::[A-Za-z0-9_./@+=-]+)+\Z")
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def quoted(text: str) -> str:
    """Text in double quotes, as JSON, YAML and TOML all read it."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", dumps(text, ensure_ascii=False))


def yaml_scalar(value: str | bool, *, in_braces: bool = False) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    plain = _PLAIN.match(value) or (not in_braces and _PLAIN_WITH_COLON.match(value))
    return value if plain and kind_of(value) == "text" else quoted(value)


class Flow(NamedTuple):
    """How groups in braces are written: `unit` is one step of indentation, or None for all in one line."""

    json: bool
    unit: str | None
    colon: str = ": "
    comma: str = ", "
    newline: str = "\n"

    def scalar(self, value: str | bool) -> str:
        if self.json:
            return dumps(value) if isinstance(value, bool) else quoted(value)
        return yaml_scalar(value, in_braces=True)

    def member(self, key: str, value: Plain, indent: str) -> str:
        """One key with its value; `indent` is that of its line."""
        return f"{self.scalar(key)}{self.colon}{self.value(value, indent)}"

    def value(self, value: Plain, indent: str) -> str:
        if isinstance(value, list):
            return f"[{self.comma.join(map(self.scalar, value))}]"
        if not isinstance(value, dict):
            return self.scalar(value)
        if self.unit is None:
            return f"{{{self.comma.join(self.member(key, inner, '') for key, inner in value.items())}}}"
        deeper = indent + self.unit
        lines = f",{self.newline}".join(deeper + self.member(key, inner, deeper) for key, inner in value.items())
        return f"{{{self.newline}{lines}{self.newline}{indent}}}"


def block_lines(key: str, value: Plain, indent: str, unit: str) -> list[str]:
    """One key with its value in YAML without braces; lists stay on their line."""
    if isinstance(value, dict):
        inner = (block_lines(name, item, indent + unit, unit) for name, item in value.items())
        return [f"{indent}{yaml_scalar(key)}:", *(line for lines in inner for line in lines)]
    if isinstance(value, list):
        return [f"{indent}{yaml_scalar(key)}: {Flow(json=False, unit=None).value(value, '')}"]
    return [f"{indent}{yaml_scalar(key)}: {yaml_scalar(value)}"]


def toml_lines(header: str, body: Mapping[str, Plain]) -> list[str]:
    """One table of TOML under its header."""
    return [f"[{header}]", *(f"{_toml_key(key)} = {_toml_value(value)}" for key, value in body.items())]


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quoted(key)


def _toml_value(value: Plain) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(quoted, value))}]"
    return quoted(value)
