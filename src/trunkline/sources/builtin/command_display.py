"""The commands of Bash as they are displayed to users: without secrets, and cut to a readable length."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec

from trunkline.config.call_arguments import accepted_names
from trunkline.config.secret_detection import may_be_named_secret, secrets_in
from trunkline.core.call import Call, Json
from trunkline.sources.builtin import BASH, BuiltinSection
from trunkline.sources.builtin.bash import BashTool

_NAMES: Final = tuple(spelling for spelling, name in accepted_names(BashTool.arguments).items() if name == "command")
_HIDDEN: Final = "***"
_LONGEST_SHOWN: Final = 2000
_LONGEST_READ: Final = 4 * _LONGEST_SHOWN
"""Secrets are looked for in more than is shown, as half of one would not be recognised."""
_PASSWORDS: Final = re.compile(
    r"""
    (?: (?<!\S)(?:-u|-U|--user|--proxy-user)[ =]?["']?[^\s:/"']{1,100}:   # curl -u name:password
      | \bsshpass\s{1,9}-p\s{0,9}["']?
      | \b(?:mysql|mariadb)\w{0,20}\s(?:[^\n|;&]{0,200}\s)?-p["']?
      | \blogin\s(?:[^\n|;&]{0,200}\s)?-p[ ]["']?                       # docker, podman, helm
      | :_(?:authToken|auth|password)[ =]["']?                         # npm
      | \bset\s+[\w.:/-]{0,100}(?:secret|token|passw)[\w.]{0,100}[ ]["']?   # aws configure, npm config
    ) ([^\s"']+)
    """,
    re.VERBOSE,
)
"""Where well-known programs take a password that is not named as one."""
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(.+?)(?=-----END|\Z)", re.DOTALL)


class CommandDisplay:
    """`redact` removes the secrets of the configuration; others are recognised by their form and their names. `kind_of`
    tells the kind of a source."""

    def __init__(self, kind_of: Callable[[str], str], redact: Callable[[str], str]) -> None:
        self._kind_of = kind_of
        self._redact = redact

    def __call__(self, call: Call) -> str:
        """The command that a call runs, with its line breaks; empty if it runs none."""
        if call.tool != BASH or self._kind_of(call.source) != BuiltinSection.kind:
            return ""
        command = self._redact(_command_in(call.params)[:_LONGEST_READ])
        shown = _without_secrets(command).strip()
        return shown if len(shown) <= _LONGEST_SHOWN else shown[: _LONGEST_SHOWN - 1] + "…"


class _CallParams(msgspec.Struct):
    arguments: dict[str, msgspec.Raw] = {}


def _command_in(params: Json) -> str:
    try:
        arguments = msgspec.json.decode(params, type=_CallParams).arguments
        given = next((arguments[name] for name in _NAMES if name in arguments), None)
        return "" if given is None else msgspec.json.decode(given, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""  # the tool reports what is wrong with its arguments


def _without_secrets(command: str) -> str:
    found = set(secrets_in("", command))
    found |= {match[1] for match in _PASSWORDS.finditer(command) if may_be_named_secret(match[1])}
    found |= {match[1] for match in _PRIVATE_KEY.finditer(command)}
    syntax = shell_syntax_positions(command)
    hidden = bytearray(len(command))
    for secret in found:
        at = command.find(secret)
        while at >= 0:
            # a value ends where syntax begins, so what is run is shown: `TOKEN=… git push`, `TOKEN=$(curl …)`
            whole = at + len(secret)
            end = next((position for position in range(at, whole) if position in syntax), whole)
            hidden[at:end] = b"\1" * (end - at)
            at = command.find(secret, at + len(secret))
    return "".join(
        _HIDDEN if is_hidden else "".join(character for character, _ in run)
        for is_hidden, run in groupby(zip(command, hidden, strict=True), key=itemgetter(1))
    )


# -- syntax of the shell ----------------------------------------------------------------------------------------------

_IN_QUOTES: Final = re.compile(r'\\.|"|(?P<acts>\$\(|`)', re.DOTALL)
_IN_CODE: Final = re.compile(
    r"\$'(?:\\.|[^'\\])*'?|'[^']*'?|(?<![^\s;&|(])#[^\n]*|<<<"
    r"|<<-?[ \t]*(?P<literal>[\\'\"]?)(?P<last>[\w.-]+)['\"]?"
    r"|\\.|\"|(?P<acts>\$\(|`|[\s;&|<>()])",
    re.DOTALL,
)
_IN_DOCUMENT: Final = re.compile(r"\\.|(?P<acts>\$\(|`)", re.DOTALL)


def shell_syntax_positions(command: str) -> frozenset[int]:
    """The positions of characters by which a shell does more than take text: between words and commands, and where
    `$(…)` runs one. Precise enough to tell text from code, for people who read the command."""
    found: set[int] = set()
    opened: list[str] = []
    documents: list[re.Match[str]] = []
    at = 0
    while match := (_IN_QUOTES if opened[-1:] == ['"'] else _IN_CODE).search(command, at):
        at, token = match.end(), match.group()
        if token == '"':
            opened = opened[:-1] if opened[-1:] == ['"'] else [*opened, '"']
        elif match.groupdict().get("last"):
            documents.append(match)
        elif match["acts"]:
            found.update(range(*match.span()))
            if token.endswith("("):
                opened.append("(")
            elif token == ")":
                opened = opened[:-1]
            elif token == "\n":
                for document in documents:
                    at = _read_document(command, at, document, found)
                documents = []
    return frozenset(found)


def _read_document(command: str, at: int, begun: re.Match[str], found: set[int]) -> int:
    """The end of the here-document that begins here."""
    start, is_last = at, False
    while at < len(command) and not is_last:
        line = command[at:].partition("\n")[0]
        is_last = line.lstrip("\t") == begun["last"]
        at += len(line) + 1
    if not begun["literal"]:
        for match in _IN_DOCUMENT.finditer(command, start, at):
            if match["acts"]:
                found.update(range(*match.span()))
    return at
