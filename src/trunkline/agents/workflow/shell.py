"""Shell commands with references: each value is inserted as text, quoted for its position, never as code.

The text is followed as both `sh` and bash read it, no further than needed. If they may differ, or a value would be
code whatever its quotes, a reference is refused rather than guessed at.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from trunkline.agents.workflow import shell_patterns
from trunkline.agents.workflow.template import Reference, Template

Quoting = Literal["word", "quotes", "single", "document", "verbatim", "number", "comment", "raw"]
_VALUE_MARK: Final = "\ufdd0"
_RAW_MARK: Final = "\ufdd1"
"""Stand for references in the text that is followed: Unicode noncharacters, which no text contains."""
_UNGUESSABLE_BYTES: Final = 16
_DOLLAR: Final = "it comes directly after `$`"
_ESCAPED: Final = "it comes directly after a backslash"
_BACKTICKS: Final = "it is inside backticks, which have quoting rules of their own: write `$(…)`"
_TABS: Final = "it is in a here document after `<<-`, which strips its tabs: write `<<`"
_BRACES: Final = "it is inside `${…}`"
_ARITHMETIC: Final = "bash evaluates it there, as arithmetic or a name, and runs commands in it; only numbers are safe"


@dataclass(frozen=True, slots=True)
class QuotedReference:
    """A reference, and how its value is inserted. `refused` says why it cannot be."""

    reference: Reference
    style: Quoting = "word"
    refused: str = ""


@dataclass(frozen=True, slots=True)
class ShellTemplate:
    """A command for `sh` or bash."""

    parts: tuple[str | QuotedReference, ...]
    to_interpreter: bool = False
    """Whether a value goes to something that runs it as code, like `eval`."""
    evaluated_variables: frozenset[str] = frozenset()
    """Variables that bash evaluates as code."""
    evaluated_references: frozenset[Reference] = frozenset()
    """References whose values are put into such a variable."""

    def render(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        return "".join(part if isinstance(part, str) else _insert(part, inputs, outputs) for part in self.parts)

    def references(self) -> tuple[QuotedReference, ...]:
        return tuple(part for part in self.parts if isinstance(part, QuotedReference))


def shell_template(template: Template, numbers: Collection[str] = ()) -> ShellTemplate:
    """The template as a command, with a quoting style for each reference. `numbers` are the numeric inputs."""
    text = ""
    for part in template.parts:
        if isinstance(part, str):
            text += part.replace(_VALUE_MARK, "\ufffd").replace(_RAW_MARK, "\ufffd")
        else:
            text += _RAW_MARK if part.raw else _VALUE_MARK
    lexer = _Lexer(text)
    lexer.run()
    references = iter(template.references())
    parts: list[str | QuotedReference] = []
    for at, piece in _cut(text, lexer.insertions):
        if piece == _RAW_MARK:
            parts.append(QuotedReference(next(references), "raw"))
        elif piece == _VALUE_MARK:
            reference, (style, refused) = next(references), lexer.places[at]
            if style == "number" and not _is_number(reference, numbers):
                refused = refused or _ARITHMETIC
            parts.append(QuotedReference(reference, style, refused))
        else:
            parts.append(piece)
    variables = shell_patterns.evaluated_variables(text)
    evaluated_references: set[Reference] = set()
    for before, part in pairwise(["", *parts]):
        if isinstance(part, QuotedReference) and isinstance(before, str) and not _is_number(part.reference, numbers):
            set_to = shell_patterns.SET_TO.search(before[-shell_patterns.FAR :])
            if set_to is not None and set_to[1] in variables:
                evaluated_references.add(part.reference)
    to_interpreter = shell_patterns.reaches_interpreter(text, _VALUE_MARK)
    return ShellTemplate(tuple(parts), to_interpreter, variables, frozenset(evaluated_references))


def _is_number(reference: Reference, numbers: Collection[str]) -> bool:
    return reference.kind == "inputs" and reference.name in numbers


def _cut(text: str, insertions: Mapping[int, str]) -> list[tuple[int, str]]:
    """The text in pieces with their positions, each reference by itself, with the insertions."""
    pieces: list[tuple[int, str]] = []
    for match in re.finditer(f"[{_VALUE_MARK}{_RAW_MARK}]|[^{_VALUE_MARK}{_RAW_MARK}]+", text):
        start, piece = match.start(), match.group()
        inner = [at for at in insertions if start <= at < match.end()]
        for at in sorted(inner, reverse=True):
            piece = piece[: at - start] + insertions[at] + piece[at - start :]
        pieces.append((start, piece))
    return pieces


def _insert(quoted: QuotedReference, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    value = Template((quoted.reference,)).render(inputs, outputs)
    match quoted.style:
        case "word":
            return _quoted(value)
        case "quotes":  # with quotes of its own, nothing before it can run into the value
            return f'"{_quoted(value)}"'
        case "single":
            return _quoted(value)[1:-1]
        case "document":
            return re.sub(r"([\\$`])", r"\\\1", value)
        case "comment":
            return ""
        case _:
            return value


def _quoted(value: str) -> str:
    """Always quoted: a bare `if`, `a=b` or `2` before `>` would mean something to the shell."""
    return "'" + value.replace("'", "'\"'\"'") + "'"


# -- following the shell ----------------------------------------------------------------------------------------------

_PLAIN: Final = rf"[^{{}}()\"'`\\$<>{_VALUE_MARK}]*"
_PLAIN_BRACES: Final = rf"\$\{{{_PLAIN}(?:\$\w+(?!\w){_PLAIN})*\}}"


class _AmbiguousSyntax(Exception):
    """From here on it is unclear how a shell reads the text."""


@dataclass(slots=True)
class _Level:
    """An open level: code, of the whole or in `$(…)` and the like, or double quotes. `parentheses` counts those open in
    code; `array` is that count where the elements of an array began."""

    kind: Literal["code", "quotes"]
    begins: int = 0
    is_file: bool = False
    """Whether it is `<(…)`, which becomes the name of a file."""
    parentheses: int = 0
    array: int = 0
    naming: bool = False
    """Whether the command evaluates names."""
    declares_from: int = 0
    """Where the arguments of a declaring command begin."""
    declares_at: int = 0
    """How many parentheses were open there."""

    def end_command(self) -> None:
        self.naming, self.declares_from = False, 0


class _Lexer:
    """Follows a command. `places` are the references by position: how they are inserted, and why they cannot be;
    `insertions` change the text at other positions."""

    def __init__(self, text: str) -> None:
        self.places: dict[int, tuple[Quoting, str]] = {}
        self.insertions: dict[int, str] = {}
        self._text = text
        self._at = 0
        self._open = [_Level("code")]
        self._documents: list[tuple[re.Match[str], int]] = []
        """Here documents that begin after this line, and their depth."""
        self._brackets_end = 0
        self._calculated: list[tuple[int, int]] = []
        """The ranges that bash evaluates as arithmetic."""
        self._arrays = frozenset(
            name for match in shell_patterns.ARRAYS.finditer(text) for name in match.groups() if name
        )
        declared = (match[1].split() for match in shell_patterns.NUMBERS.finditer(text))
        self._numbers = frozenset((*shell_patterns.ALWAYS_NUMBERS, *(name for names in declared for name in names)))

    def run(self) -> None:
        try:
            while self._at < len(self._text):
                self._step(_IN_CODE if self._open[-1].kind == "code" else _IN_QUOTES)
        except _AmbiguousSyntax:
            line = self._text.count("\n", 0, self._at) + 1
            for at in range(len(self._text)):  # those without a place so far
                self._mark(at, "word", f"the code before it, on line {line}, is too complex to follow")
        for start, end in self._calculated:
            for at in range(start, end):
                if at in self.places and self.places[at][0] != "comment":
                    self.places[at] = ("number", self.places[at][1])

    def _step(self, table: _Table) -> None:
        for pattern, act in table:
            match = pattern.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
                act(self, match)
                return
        self._at += 1

    def _mark(self, at: int, style: Quoting, refused: str = "") -> None:
        if self._text[at] == _VALUE_MARK and style in ("word", "quotes", "single") and self._is_calculated(at):
            style = "number"
        if self._text[at] == _VALUE_MARK:
            self.places.setdefault(at, (style, refused))

    def _is_calculated(self, at: int) -> bool:
        """Whether it is an argument of a command that evaluates it."""
        inside = False
        for opened in reversed(self._open):
            if opened.naming and shell_patterns.FILE.search(self._text, max(0, at - shell_patterns.NEAR), at) is None:
                return True
            if opened.declares_from and not self._is_declared(opened, at, inside):
                return True
            if opened.is_file:
                return False
            if opened.kind == "code":
                inside, at = True, opened.begins
        return False

    def _is_declared(self, opened: _Level, at: int, inside: bool) -> bool:
        """Whether it is only the value of a declared variable, or an argument of a command inside it."""
        flags = shell_patterns.FLAGS.match(self._text, opened.declares_from)
        letters = set("" if flags is None else flags.group())
        if letters & {"i", "n"}:
            return False
        if inside or opened.parentheses > opened.declares_at:
            return True
        match = shell_patterns.DECLARED.search(self._text, max(opened.declares_from, at - shell_patterns.FAR), at)
        name = match and (match["name"] or match["first"] or match["second"])
        return name is not None and not letters & {"a", "A"} and name not in self._arrays

    def _is_command(self, at: int) -> bool:
        return shell_patterns.BEFORE_COMMAND.search(self._text[max(0, at - shell_patterns.NEAR) : at]) is not None

    def _calculate(self, pattern: re.Pattern[str], at: int) -> None:
        match = pattern.match(self._text, at)
        if match is not None:
            self._calculated.append(match.span())

    def mark_all(self, match: re.Match[str], style: Quoting, refused: str = "") -> None:
        for at in range(*match.span()):
            self._mark(at, style, refused)

    # -- actions of the tables below ------------------------------------------------------------------------

    def lost(self, match: re.Match[str]) -> None:
        raise _AmbiguousSyntax

    def skip(self, match: re.Match[str]) -> None:
        if self._documents and "\n" in match.group():
            raise _AmbiguousSyntax

    def reference(self, match: re.Match[str]) -> None:
        self.mark_all(match, "word" if self._open[-1].kind == "code" else "quotes")

    def single_quotes(self, match: re.Match[str]) -> None:
        self.skip(match)
        self.mark_all(match, "single")

    def double_quotes(self, match: re.Match[str]) -> None:
        if self._open[-1].kind == "quotes":
            self._open.pop()
        else:
            self._open.append(_Level("quotes"))

    def array(self, match: re.Match[str]) -> None:
        self._at = match.start() + len("=(")
        self._open[-1].parentheses += 1
        self._open[-1].array = self._open[-1].parentheses

    def bracket(self, match: re.Match[str]) -> None:
        at = match.start()
        if self._open[-1].array:
            self._calculate(shell_patterns.ELEMENT, at)
        elif self._text[at - 1 : at] not in ("[", "]"):
            self._calculate(shell_patterns.TESTED, at)
        brackets = shell_patterns.BRACKETS.match(self._text, at) if at >= self._brackets_end else None
        if brackets is not None:
            self._brackets_end = brackets.end()
            self._calculated += shell_patterns.calculating_parts(brackets)

    def backticks(self, match: re.Match[str]) -> None:
        self.skip(match)
        self.mark_all(match, "word", _BACKTICKS)

    def braces(self, match: re.Match[str]) -> None:
        self.mark_all(match, "word", _BRACES)
        raise _AmbiguousSyntax

    def command(self, match: re.Match[str]) -> None:
        self._open.append(_Level("code", match.start()))

    def file(self, match: re.Match[str]) -> None:
        self._open.append(_Level("code", match.start(), is_file=True))

    def parenthesis(self, match: re.Match[str]) -> None:
        top = self._open[-1]
        if match.group() == "(":
            top.parentheses += 1
        elif top.parentheses:
            top.array = 0 if top.array == top.parentheses else top.array
            top.parentheses -= 1
        elif len(self._open) > 1:
            if any(depth == len(self._open) for _, depth in self._documents):
                raise _AmbiguousSyntax
            self._open.pop()

    def word(self, match: re.Match[str]) -> None:
        if match.group() == "case" and len(self._open) > 1:
            raise _AmbiguousSyntax  # its patterns end with unbalanced parentheses
        word, end = match.group(), match.end()
        follows = self._text[end : end + 1]
        if word in self._numbers and follows in ("=", "+"):
            self._calculate(shell_patterns.ASSIGNED, match.start())
        elif follows == "[" and self._is_command(match.start()):
            if "]" not in self._text[end:].partition("\n")[0]:
                raise _AmbiguousSyntax  # bash looks for it on the lines that follow
            self._calculate(shell_patterns.ELEMENT, match.start())
        elif follows in (" ", "\t") and word in shell_patterns.COMMANDS and self._is_command(match.start()):
            self._begin_command(word, match.start(), end)

    def _begin_command(self, word: str, start: int, end: int) -> None:
        if word in shell_patterns.NAMING:
            self._open[-1].naming = True
        elif word in shell_patterns.DECLARING:
            self._open[-1].declares_from, self._open[-1].declares_at = end, self._open[-1].parentheses
        else:
            self._calculate(shell_patterns.FORMATTED if word == "printf" else shell_patterns.TESTED, start)

    def command_end(self, match: re.Match[str]) -> None:
        self._open[-1].end_command()

    def document(self, match: re.Match[str]) -> None:
        self._documents.append((match, len(self._open)))

    def line_end(self, match: re.Match[str]) -> None:
        """Read the here documents of the line, one after the other."""
        self._open[-1].end_command()
        documents, self._documents = self._documents, []
        for document, depth in documents:
            if depth != len(self._open):
                raise _AmbiguousSyntax
            self._read_document(document)

    def _read_document(self, document: re.Match[str]) -> None:
        tabs = r"\t*" if document["tabs"] else ""
        word = document["word"] or document["bare"]
        last = re.compile(rf"^{tabs}(?P<word>{re.escape(word)})$|\Z", re.MULTILINE).search(self._text, self._at)
        assert last is not None
        begin, self._at = self._at, last.end()
        for at in range(begin, last.start()) if tabs else ():
            self._mark(at, "verbatim", _TABS)
        if document["bare"] and not document["escape"]:
            self._follow_document(begin, last.start())
        for at in range(begin, last.start()):
            self._mark(at, "verbatim")
        if _VALUE_MARK in self._text[begin : last.start()]:
            # An unguessable delimiter: no value can contain the line that ends the document. It begins with what lines
            # seldom begin with, as dash loses a non-ASCII byte after the beginning of the delimiter.
            prefix = f"__{secrets.token_hex(_UNGUESSABLE_BYTES)}_"
            self.insertions[document.start("word") if document["word"] else document.start("bare")] = prefix
            if last["word"]:
                self.insertions[last.start("word")] = prefix

    def _follow_document(self, begin: int, end: int) -> None:
        """Follow a here document in which `$`, backticks and backslashes work as in double quotes."""
        if self._text[begin:end].endswith("\\\n"):
            raise _AmbiguousSyntax  # whether the line after it ends the document is not the same in all shells
        for match in _IN_DOCUMENT.finditer(self._text, begin, end):
            if match["lost"]:
                for at in range(match.start(), end):
                    self._mark(at, "word", "the here document before it is too complex to follow")
                raise _AmbiguousSyntax
            refused = _ESCAPED if match["escaped"] else _DOLLAR if match["variable"] else ""
            self.mark_all(match, "document", refused)


_Table = tuple[tuple[re.Pattern[str], Callable[[_Lexer, re.Match[str]], None]], ...]


def _table(*rows: tuple[str, Callable[[_Lexer, re.Match[str]], None]]) -> _Table:
    return tuple((re.compile(pattern, re.DOTALL), act) for pattern, act in rows)


def _marks(style: Quoting, refused: str = "") -> Callable[[_Lexer, re.Match[str]], None]:
    return lambda lexer, match: lexer.mark_all(match, style, refused)


_SUM_CHARACTER: Final = r"[^()'\"\\`;#$\n]|(?<=\d)#|\$\w|\$\{\w+\}"
_SUM: Final = rf"(?:{_SUM_CHARACTER}|\((?:{_SUM_CHARACTER})*\))*"
_EXPANSIONS: Final = (
    (r"\$\$[({]", _Lexer.lost),
    (r"\$\$", _Lexer.skip),
    (r"\$(?:\\\n)+[({'\"\[$]|\$\((?:\\\n)+\(", _Lexer.lost),
    (rf"\\{_VALUE_MARK}", _marks("word", _ESCAPED)),
    (r"\\.", _Lexer.skip),
    (_VALUE_MARK, _Lexer.reference),
    ('"', _Lexer.double_quotes),
    (rf"\${_VALUE_MARK}", _marks("word", _DOLLAR)),
    (rf"\$\(\({_SUM}\)\)", _marks("number")),
    (r"\$\(\(", _Lexer.lost),
    (r"\$\(", _Lexer.command),
    (r"`(?:[^`\\]|\\.)*`", _Lexer.backticks),
    (_PLAIN_BRACES, _Lexer.skip),
    (r"\$\{[^}]*\}?", _Lexer.braces),
    (r"`|\$\[", _Lexer.lost),
)
_IN_QUOTES: Final = _table(*_EXPANSIONS, ("\n", _Lexer.skip))
_IN_CODE: Final = _table(
    (r"\\[ \t\n;&|(]#", _Lexer.lost),
    (r"\\(?=[A-Za-z])", _Lexer.skip),  # `\unset` is `unset`
    (r"'[^']*'", _Lexer.single_quotes),
    # `$'…'` of bash, which ends there in every shell
    (rf"\$'(?:[^'\\{_VALUE_MARK}]|\\[^'{_VALUE_MARK}])*'", _Lexer.skip),
    (r"'|\$'", _Lexer.lost),
    *_EXPANSIONS,
    (rf"for[ \t]*\(\((?:{_SUM};){{2}}{_SUM}\)\)", _marks("number")),
    (rf"\(\({_SUM}\)\)", _marks("number")),
    (r"\(\(", _Lexer.lost),
    (r"<<<", _Lexer.skip),
    (
        r"<<(?P<tabs>-?)[ \t]*"
        r"(?:(?P<quote>['\"])(?P<word>[\w.+-]+)(?P=quote)|(?P<escape>\\?)(?P<bare>[\w.+-]+))(?=[ \t\n;&|<>()]|\Z)",
        _Lexer.document,
    ),
    (r"<<|(?<=[)<>])#", _Lexer.lost),
    (r"[<>]&[ \t]*(?:\d+-?|-)(?=[ \t\n;&|()<>]|\Z)", _Lexer.skip),
    (r"[<>]&", _Lexer.lost),  # bash expands the word after it twice, whatever its quotes
    (r"=\((?:'[^'()]*'|\"[^\"()$`\\]*\"|[^()<>;&|'\"`$\\]|\$\w+(?!\w))*\)", _Lexer.array),
    (r"=\(", _Lexer.lost),  # after a mistake in an array bash goes on with the next line, in quotes or not
    (r"[<>(=](?:\\\n)+[<>&(]", _Lexer.lost),
    (r"[<>]\(", _Lexer.file),
    (r"\[", _Lexer.bracket),
    (r"[;&|]", _Lexer.command_end),
    (r"(?<![^ \t\n;&|(])#[^\n]*", _marks("comment")),
    (r"\n", _Lexer.line_end),
    (r"[()]", _Lexer.parenthesis),
    (r"\w+", _Lexer.word),
)
_IN_DOCUMENT: Final = re.compile(
    rf"(?P<escaped>\\{_VALUE_MARK})|\\.|(?P<variable>\$\w*{_VALUE_MARK})|{_PLAIN_BRACES}|\$\([^()\"'`\\#\n{_VALUE_MARK}]*\)"
    rf"|(?P<lost>`|\$[({{\[])|{_VALUE_MARK}",
    re.DOTALL,
)
