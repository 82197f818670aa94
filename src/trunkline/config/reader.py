"""The context that values are read in: report, environment and base folder; and references to the environment.

References are written `${NAME}` or `${NAME:-default}`; `$${` is a literal `${`.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, cast

from trunkline.config.problems import InvalidValue, Report, TextSpan
from trunkline.config.tree import UNUSABLE, Node, Scalar, ambiguity, describe
from trunkline.core.errors import AMBIGUOUS_SCALAR, BAD_VALUE, ENV_NOT_SET, WRONG_TYPE, Code

_OPEN: Final = "${"
_BODY: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?\Z", re.DOTALL)

ReferenceFault = Literal["unset", "malformed"]


def has_reference(text: str) -> bool:
    return _OPEN in text and any(reference for _, reference in _split_references(text))


def escape_references(text: str) -> str:
    """Text that is read as it is, whatever it looks like."""
    return text.replace("${", "$${")


def expand(
    text: str,
    environ: Mapping[str, str],
    on_fault: Callable[[ReferenceFault, str], object] = lambda _fault, _what: None,
    on_value: Callable[[str, str], object] = lambda _name, _value: None,
) -> str:
    """Replace every reference. `on_fault` gets the unset names and malformed references, which become empty text;
    `on_value` gets the variables that were replaced.

    As in a shell, the default after `:-` also replaces a variable that is set but empty.
    """
    if _OPEN not in text:
        return text

    def value_of(reference: str) -> str:
        body = _BODY.match(reference[2:-1]) if reference.endswith("}") else None
        if body is None:
            on_fault("malformed", reference)
            return ""
        value = environ.get(body["name"])
        default: str | None = body["default"]
        if value is None and default is None:
            on_fault("unset", body["name"])
        if value:
            on_value(body["name"], value)
        return value or default or ""

    pieces = _split_references(text)
    return "".join(literal + (value_of(reference) if reference else "") for literal, reference in pieces)


def _split_references(text: str) -> Iterator[tuple[str, str]]:
    """Literal texts, each with the reference that follows it (none at the end).

    In one pass: searching each `}` with a regular expression would be slow on a text full of `${`.
    """
    literal, at = "", 0
    while (start := text.find(_OPEN, at)) >= 0:
        if text[at:start].endswith("$"):
            literal += text[at : start - 1] + _OPEN
            at = start + len(_OPEN)
            continue
        end = text.find("}", start) + 1 or len(text)
        yield literal + text[at:start], text[start:end]
        literal, at = "", end
    yield literal + text[at:], ""


_EDITOR_REFERENCE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}\Z")
OUR_REFERENCE: Final = "${NAME}"
ReferencedVariable = tuple[str, str]
"""A variable and its value."""


class ConfigReader:
    """The context in which the values of one file are read. With `strict`, missing variables and files are errors."""

    def __init__(self, report: Report, environ: Mapping[str, str], folder: Path, *, strict: bool = False) -> None:
        self.report = report
        self.folder = folder
        self.obstacles: list[str] | None = None
        """While a source is read: what keeps this source, but no other, from starting. None elsewhere."""
        self.reference = OUR_REFERENCE
        """How this file refers to the variable NAME; empty if it cannot."""
        self.unset_hints: dict[str, str] = {}
        """Hints for certain variables when they are not set."""
        self.referenced_variables: set[ReferencedVariable] = set()
        """Variables that were referred to, with their values."""
        self.files: set[Path] = set()
        """Files that values were taken from."""
        self._strict = strict
        self._defined: dict[str, str] = {}
        self._absent: set[str] = set()
        self._own: set[str] = set()
        # a ChainMap writes to its first mapping only
        self._environ = ChainMap(self._defined, cast("MutableMapping[str, str]", environ))

    @contextmanager
    def reading_source(self) -> Generator[None, None, None]:
        """Read one source: an error ends the reading of this source only, and what it lacks goes to `obstacles`."""
        self.obstacles = None if self._strict else []
        try:
            yield
        except InvalidValue:
            pass  # reported already; the next source is read all the same
        finally:
            self.obstacles = None

    def error(self, code: Code, node: Node | TextSpan, message: str, hint: str = "") -> InvalidValue:
        return self.report.error(code, node if isinstance(node, TextSpan) else node.span, message, hint)

    def warn(self, code: Code, node: Node | TextSpan, message: str, hint: str = "") -> None:
        self.report.warn(code, node if isinstance(node, TextSpan) else node.span, message, hint)

    def wrong_type(self, node: Node, wanted: str, hint: str = "") -> InvalidValue:
        if isinstance(node, Scalar) and node.kind in ("refused", "switch"):
            return self._ambiguous(node)
        return self.error(WRONG_TYPE, node, f"Expected {wanted}, not {describe(node)}", hint)

    def _ambiguous(self, node: Scalar) -> InvalidValue:
        if node.kind == "refused":
            return InvalidValue()
        return self.error(AMBIGUOUS_SCALAR, node, *ambiguity(node.text))

    def is_reference(self, node: Node) -> bool:
        return isinstance(node, Scalar) and node.kind == "text" and has_reference(node.text)

    def text(self, node: Scalar) -> str:
        """The node's text with its references replaced."""
        if node.kind in ("refused", "switch"):
            raise self._ambiguous(node)
        faults: list[tuple[ReferenceFault, str]] = []

        def remember(variable: str, value: str) -> None:
            if variable not in self._own:
                self.referenced_variables.add((variable, value))

        text = expand(node.text, self._environ, lambda fault, what: faults.append((fault, what)), remember)
        if UNUSABLE.search(text) is not None:
            raise self.error(BAD_VALUE, node, "The text contains a NUL character or is not valid Unicode")
        for fault, what in faults:
            self._report_fault(node, fault, what)
        if faults:
            raise InvalidValue
        return text

    def peek(self, node: Node | None) -> str:
        """The same without reporting anything; empty if there is no text."""
        return expand(node.text, self._environ) if isinstance(node, Scalar) else ""

    def is_set(self, variable: str) -> bool:
        return variable in self._environ

    def define(self, value: str, *, from_file: bool = False) -> str:
        """A reference to this value, so that no message shows it. With `from_file` it may be a secret."""
        name = self._new_name()
        if not from_file:
            self._own.add(name)
        self._defined[name] = value
        return f"${{{name}}}"

    def missing_reference(self) -> str:
        """A reference to something missing that has been reported already: no text with it can be used."""
        name = self._new_name()
        self._absent.add(name)
        return f"${{{name}}}"

    def _new_name(self) -> str:
        number = len(self._defined) + len(self._absent) + 1
        while (name := f"_trunkline_{number}") in self._environ or name in self._absent:
            number += 1
        return name

    def reference_to(self, variable: str) -> str:
        """How hints show a reference to a variable in this file."""
        return f"`{self.reference.replace('NAME', variable)}`" if self.reference else f"`{variable}`"

    def obstacle(self, code: Code, node: Node, message: str, hint: str = "") -> None:
        """Report something missing, such as a variable: an error, or within a source an obstacle of that source."""
        if self.obstacles is None:
            self.error(code, node, message, hint)
        else:
            self.obstacles.append(message)
            self.warn(code, node, message, hint)

    def path(self, written: str) -> Path:
        """A path: `~` is the home folder, and relative paths start at the file's folder."""
        if written == "~" or written.startswith("~/"):
            return self.home / written[2:]
        return self.folder / written

    @property
    def home(self) -> Path:
        home = self._environ.get("HOME")
        try:
            return Path(home) if home else Path.home()
        except RuntimeError:  # a user without a home folder, as in some containers
            return self.folder

    def _report_fault(self, node: Scalar, fault: ReferenceFault, what: str) -> None:
        if fault == "malformed":
            other = _EDITOR_REFERENCE.match(what)
            hint = f"did you mean `${{{other[1]}}}`?" if other else "write `$${` for a literal `${`"
            self.error(BAD_VALUE, node, f"`{what}` is not a reference like `${{NAME}}` or `${{NAME:-default}}`", hint)
            return
        if what in self._absent:
            return
        default = f", or give a default: `${{{what}:-…}}`" if self.reference == OUR_REFERENCE else ""
        hint = self.unset_hints.get(what, f"set it{default}")
        self.obstacle(ENV_NOT_SET, node, f"Environment variable `{what}` is not set", hint)
