"""Shell commands with references: each value is put in as text, quoted for the place where it stands, never as code.

The text is followed as `sh` and bash both read it, no further than that takes. Where they may differ, or a value would
be code whatever its quotes, a reference is refused rather than guessed at.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from trunkline.agents.workflow.shell_patterns import (
    ALWAYS_NUMBERS,
    ARRAYS,
    ASSIGNED,
    BEFORE_COMMAND,
    BRACKETS,
    COMMANDS,
    DECLARED,
    DECLARING,
    ELEMENT,
    FAR,
    FILE,
    FLAGS,
    FORMATTED,
    NAMING,
    NEAR,
    NUMBERS,
    SET_TO,
    TESTED,
    calculating_parts,
    evaluated_variables,
    reaches_interpreter,
)
from trunkline.agents.workflow.template import Reference, Template

Style = Literal["word", "quotes", "single", "document", "verbatim", "number", "comment", "raw"]
_HOLE: Final = "\ufdd0"
_RAW: Final = "\ufdd1"
"""What stands for references in the text that is followed. Unicode promises that no text has them."""
_UNGUESSABLE_BYTES: Final = 16
_DOLLAR: Final = "it stands directly after `$`"
_ESCAPED: Final = "it stands directly after a backslash"
_BACKTICKS: Final = "it stands in backticks, which quote in ways of their own: write `$(…)`"
_TABS: Final = "it stands in a document after `<<-`, which takes tabs out of it: write `<<`"
_BRACES: Final = "it stands in `${…}`"
_ARITHMETIC: Final = (
    "bash calculates there, or takes it for the name of a variable, and runs what is in it; only numbers are safe"
)


@dataclass(frozen=True, slots=True)
class Slot:
    """A reference, and how its value is put in. `refused` says why it cannot be."""

    reference: Reference
    style: Style = "word"
    refused: str = ""


@dataclass(frozen=True, slots=True)
class ShellTemplate:
    """What a shell runs, with `sh` or bash."""

    parts: tuple[str | Slot, ...]
    to_interpreter: bool = False
    """Whether a value goes to something that runs it as code all the same, like `eval`."""
    evaluated_variables: frozenset[str] = frozenset()
    """Variables in which bash runs what it finds."""
    evaluated_references: frozenset[Reference] = frozenset()
    """References whose values are put into such a variable."""

    def render(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        return "".join(part if isinstance(part, str) else _put(part, inputs, outputs) for part in self.parts)

    def slots(self) -> tuple[Slot, ...]:
        return tuple(part for part in self.parts if isinstance(part, Slot))


def shell_template(template: Template, numbers: Collection[str] = ()) -> ShellTemplate:
    """The template as a command, with a way for each of its references. `numbers` are the inputs that are numbers."""
    text = "".join(map(_skeleton, template.parts))
    lexer = _Lexer(text)
    lexer.run()
    references = iter(template.references())
    parts: list[str | Slot] = []
    for at, piece in _cut(text, lexer.insertions):
        if piece == _RAW:
            parts.append(Slot(next(references), "raw"))
        elif piece == _HOLE:
            parts.append(_slot(next(references), *lexer.places[at], numbers))
        else:
            parts.append(piece)
    variables = evaluated_variables(text)
    evaluated_references = {
        part.reference
        for before, part in pairwise(["", *parts])
        if isinstance(part, Slot)
        and isinstance(before, str)
        and _is_value_of(before, variables)
        and not _is_number(part.reference, numbers)
    }
    return ShellTemplate(tuple(parts), reaches_interpreter(text, _HOLE), variables, frozenset(evaluated_references))


def _is_value_of(before: str, variables: frozenset[str]) -> bool:
    match = SET_TO.search(before[-FAR:])
    return match is not None and match[1] in variables


def _is_number(reference: Reference, numbers: Collection[str]) -> bool:
    return reference.kind == "inputs" and reference.name in numbers


def _slot(reference: Reference, style: Style, refused: str, numbers: Collection[str]) -> Slot:
    if style == "number" and not _is_number(reference, numbers):
        refused = refused or _ARITHMETIC
    return Slot(reference, style, refused)


def _skeleton(part: str | Reference) -> str:
    if isinstance(part, str):
        return part.replace(_HOLE, "\ufffd").replace(_RAW, "\ufffd")
    return _RAW if part.raw else _HOLE


def _cut(text: str, insertions: Mapping[int, str]) -> list[tuple[int, str]]:
    """The text in pieces with their places, each reference by itself, and what is inserted."""
    pieces: list[tuple[int, str]] = []
    for match in re.finditer(f"[{_HOLE}{_RAW}]|[^{_HOLE}{_RAW}]+", text):
        start, piece = match.start(), match.group()
        inner = [at for at in insertions if start <= at < match.end()]
        for at in sorted(inner, reverse=True):
            piece = piece[: at - start] + insertions[at] + piece[at - start :]
        pieces.append((start, piece))
    return pieces


def _put(slot: Slot, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    value = Template((slot.reference,)).render(inputs, outputs)
    match slot.style:
        case "word":
            return _quoted(value)
        case "quotes":  # a part of the word with quotes of its own: nothing before it can run into the value
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
    """Quoted in any case: a bare `if`, `a=b` or `2` before `>` would mean something to the shell."""
    return "'" + value.replace("'", "'\"'\"'") + "'"


# -- following the shell ----------------------------------------------------------------------------------------------

_PLAIN: Final = rf"[^{{}}()\"'`\\$<>{_HOLE}]*"
_PLAIN_BRACES: Final = rf"\$\{{{_PLAIN}(?:\$\w+(?!\w){_PLAIN})*\}}"


class _Lost(Exception):
    """From here on it is not sure how a shell reads the text."""


@dataclass(slots=True)
class _Open:
    """Code, of the whole or in `$(…)` and the like, or double quotes. `parentheses` are those that are open in code,
    `array` how many were when one began that holds the elements of an array."""

    kind: Literal["code", "quotes"]
    begins: int = 0
    is_file: bool = False
    """Whether it is that of `<(…)`, which is the name of a file."""
    parentheses: int = 0
    array: int = 0
    naming: bool = False
    """Whether the command is one that calculates with names."""
    declares_from: int = 0
    """Where the arguments begin of one that declares variables."""
    declares_at: int = 0
    """How many parentheses were open there."""

    def end_command(self) -> None:
        self.naming, self.declares_from = False, 0


class _Lexer:
    """`places` are the references by where they are in the text: how they are put in, and why they cannot be;
    `insertions` change the text at other places."""

    def __init__(self, text: str) -> None:
        self.places: dict[int, tuple[Style, str]] = {}
        self.insertions: dict[int, str] = {}
        self._text = text
        self._at = 0
        self._open = [_Open("code")]
        self._documents: list[tuple[re.Match[str], int]] = []
        """Those whose text comes after the end of the line, and how deep they are."""
        self._brackets_end = 0
        self._calculated: list[tuple[int, int]] = []
        """From where to where bash calculates."""
        self._arrays = frozenset(name for match in ARRAYS.finditer(text) for name in match.groups() if name)
        declared = (match[1].split() for match in NUMBERS.finditer(text))
        self._numbers = frozenset((*ALWAYS_NUMBERS, *(name for names in declared for name in names)))

    def run(self) -> None:
        try:
            while self._at < len(self._text):
                self._step(_IN_CODE if self._open[-1].kind == "code" else _IN_QUOTES)
        except _Lost:
            line = self._text.count("\n", 0, self._at) + 1
            for at in range(len(self._text)):  # those that have no place yet
                self._mark(at, "word", f"what stands before it on line {line} is more than can be followed")
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

    def _mark(self, at: int, style: Style, refused: str = "") -> None:
        if self._text[at] == _HOLE and style in ("word", "quotes", "single") and self._is_calculated(at):
            style = "number"
        if self._text[at] == _HOLE:
            self.places.setdefault(at, (style, refused))

    def _is_calculated(self, at: int) -> bool:
        """Whether it is an argument of a command that calculates with it."""
        inside = False
        for opened in reversed(self._open):
            if opened.naming and FILE.search(self._text, max(0, at - NEAR), at) is None:
                return True
            if opened.declares_from and not self._is_declared(opened, at, inside):
                return True
            if opened.is_file:
                return False
            if opened.kind == "code":
                inside, at = True, opened.begins
        return False

    def _is_declared(self, opened: _Open, at: int, inside: bool) -> bool:
        """Whether it is no more than the value of a variable that is declared, or what a command in it is given."""
        flags = FLAGS.match(self._text, opened.declares_from)
        said = set("" if flags is None else flags.group())
        if said & {"i", "n"}:
            return False
        if inside or opened.parentheses > opened.declares_at:
            return True
        match = DECLARED.search(self._text, max(opened.declares_from, at - FAR), at)
        name = match and (match["name"] or match["first"] or match["second"])
        return name is not None and not said & {"a", "A"} and name not in self._arrays

    def _is_command(self, at: int) -> bool:
        return BEFORE_COMMAND.search(self._text[max(0, at - NEAR) : at]) is not None

    def _calculate(self, pattern: re.Pattern[str], at: int) -> None:
        match = pattern.match(self._text, at)
        if match is not None:
            self._calculated.append(match.span())

    def _mark_all(self, match: re.Match[str], style: Style, refused: str = "") -> None:
        for at in range(*match.span()):
            self._mark(at, style, refused)

    # -- what is met, and what follows from it ------------------------------------------------------------------------

    def lost(self, match: re.Match[str]) -> None:
        raise _Lost

    def skip(self, match: re.Match[str]) -> None:
        if self._documents and "\n" in match.group():
            raise _Lost

    def reference(self, match: re.Match[str]) -> None:
        self._mark_all(match, "word" if self._open[-1].kind == "code" else "quotes")

    def after_backslash(self, match: re.Match[str]) -> None:
        self._mark_all(match, "word", _ESCAPED)

    def after_dollar(self, match: re.Match[str]) -> None:
        self._mark_all(match, "word", _DOLLAR)

    def single_quotes(self, match: re.Match[str]) -> None:
        self.skip(match)
        self._mark_all(match, "single")

    def double_quotes(self, match: re.Match[str]) -> None:
        if self._open[-1].kind == "quotes":
            self._open.pop()
        else:
            self._open.append(_Open("quotes"))

    def array(self, match: re.Match[str]) -> None:
        self._at = match.start() + len("=(")
        self._open[-1].parentheses += 1
        self._open[-1].array = self._open[-1].parentheses

    def bracket(self, match: re.Match[str]) -> None:
        at = match.start()
        if self._open[-1].array:
            self._calculate(ELEMENT, at)
        elif self._text[at - 1 : at] not in ("[", "]"):
            self._calculate(TESTED, at)
        brackets = BRACKETS.match(self._text, at) if at >= self._brackets_end else None
        if brackets is not None:
            self._brackets_end = brackets.end()
            self._calculated += calculating_parts(brackets)

    def comment(self, match: re.Match[str]) -> None:
        self._mark_all(match, "comment")

    def backticks(self, match: re.Match[str]) -> None:
        self.skip(match)
        self._mark_all(match, "word", _BACKTICKS)

    def braces(self, match: re.Match[str]) -> None:
        self._mark_all(match, "word", _BRACES)
        raise _Lost

    def command(self, match: re.Match[str]) -> None:
        self._open.append(_Open("code", match.start()))

    def file(self, match: re.Match[str]) -> None:
        self._open.append(_Open("code", match.start(), is_file=True))

    def parenthesis(self, match: re.Match[str]) -> None:
        top = self._open[-1]
        if match.group() == "(":
            top.parentheses += 1
        elif top.parentheses:
            top.array = 0 if top.array == top.parentheses else top.array
            top.parentheses -= 1
        elif len(self._open) > 1:
            if any(depth == len(self._open) for _, depth in self._documents):
                raise _Lost
            self._open.pop()

    def word(self, match: re.Match[str]) -> None:
        if match.group() == "case" and len(self._open) > 1:
            raise _Lost  # its patterns end with parentheses that close nothing
        word, end = match.group(), match.end()
        follows = self._text[end : end + 1]
        if word in self._numbers and follows in ("=", "+"):
            self._calculate(ASSIGNED, match.start())
        elif follows == "[" and self._is_command(match.start()):
            if "]" not in self._text[end:].partition("\n")[0]:
                raise _Lost  # bash looks for it on the lines that follow
            self._calculate(ELEMENT, match.start())
        elif follows in (" ", "\t") and word in COMMANDS and self._is_command(match.start()):
            self._begin_command(word, match.start(), end)

    def _begin_command(self, word: str, start: int, end: int) -> None:
        if word in NAMING:
            self._open[-1].naming = True
        elif word in DECLARING:
            self._open[-1].declares_from, self._open[-1].declares_at = end, self._open[-1].parentheses
        else:
            self._calculate(FORMATTED if word == "printf" else TESTED, start)

    def command_end(self, match: re.Match[str]) -> None:
        self._open[-1].end_command()

    def arithmetic(self, match: re.Match[str]) -> None:
        self._mark_all(match, "number")

    def document(self, match: re.Match[str]) -> None:
        self._documents.append((match, len(self._open)))

    def line_end(self, match: re.Match[str]) -> None:
        """Where the documents of the line begin, one after the other."""
        self._open[-1].end_command()
        documents, self._documents = self._documents, []
        for document, depth in documents:
            if depth != len(self._open):
                raise _Lost
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
        if _HOLE in self._text[begin : last.start()]:
            # No value can hold a line that ends the document where nobody knows what that line is. It begins with what
            # lines seldom begin with: after the beginning of that line, dash loses a byte that is not ASCII.
            prefix = f"__{secrets.token_hex(_UNGUESSABLE_BYTES)}_"
            self.insertions[document.start("word") if document["word"] else document.start("bare")] = prefix
            if last["word"]:
                self.insertions[last.start("word")] = prefix

    def _follow_document(self, begin: int, end: int) -> None:
        """One in which `$`, backticks and backslashes mean what they mean in double quotes."""
        if self._text[begin:end].endswith("\\\n"):
            raise _Lost  # whether the line after it ends the document is not the same in all shells
        for match in _IN_DOCUMENT.finditer(self._text, begin, end):
            if match["lost"]:
                for at in range(match.start(), end):
                    self._mark(at, "word", "the text of the document before it is more than can be followed")
                raise _Lost
            refused = _ESCAPED if match["escaped"] else _DOLLAR if match["variable"] else ""
            self._mark_all(match, "document", refused)


_Table = tuple[tuple[re.Pattern[str], Callable[[_Lexer, re.Match[str]], None]], ...]


def _table(*rows: tuple[str, Callable[[_Lexer, re.Match[str]], None]]) -> _Table:
    return tuple((re.compile(pattern, re.DOTALL), act) for pattern, act in rows)


_SUM_CHARACTER: Final = r"[^()'\"\\`;#$\n]|(?<=\d)#|\$\w|\$\{\w+\}"
_SUM: Final = rf"(?:{_SUM_CHARACTER}|\((?:{_SUM_CHARACTER})*\))*"
_EXPANSIONS: Final = (
    (r"\$\$[({]", _Lexer.lost),
    (r"\$\$", _Lexer.skip),
    (r"\$(?:\\\n)+[({'\"\[$]|\$\((?:\\\n)+\(", _Lexer.lost),
    (rf"\\{_HOLE}", _Lexer.after_backslash),
    (r"\\.", _Lexer.skip),
    (_HOLE, _Lexer.reference),
    ('"', _Lexer.double_quotes),
    (rf"\${_HOLE}", _Lexer.after_dollar),
    (rf"\$\(\({_SUM}\)\)", _Lexer.arithmetic),
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
    (rf"\$'(?:[^'\\{_HOLE}]|\\[^'{_HOLE}])*'", _Lexer.skip),  # `$'…'` of bash, which ends there in every shell
    (r"'|\$'", _Lexer.lost),
    *_EXPANSIONS,
    (rf"for[ \t]*\(\((?:{_SUM};){{2}}{_SUM}\)\)", _Lexer.arithmetic),
    (rf"\(\({_SUM}\)\)", _Lexer.arithmetic),
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
    (r"(?<![^ \t\n;&|(])#[^\n]*", _Lexer.comment),
    (r"\n", _Lexer.line_end),
    (r"[()]", _Lexer.parenthesis),
    (r"\w+", _Lexer.word),
)
_IN_DOCUMENT: Final = re.compile(
    rf"(?P<escaped>\\{_HOLE})|\\.|(?P<variable>\$\w*{_HOLE})|{_PLAIN_BRACES}|\$\([^()\"'`\\#\n{_HOLE}]*\)"
    rf"|(?P<lost>`|\$[({{\[])|{_HOLE}",
    re.DOTALL,
)
