"""Finds the programs and scripts below a configuration file's folder that it would start, and hashes them.

Whoever can write there decides what they do. Only what the file names is found, not what a program then loads (its
imports, a `package.json`).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.config.files import PLUGINS
from trunkline.config.reader import expand
from trunkline.config.tree import ListNode, Node, Scalar, Table

_INTERPRETER: Final = re.compile(
    r"""(?:python|pypy|node|deno|bun|tsx|ts-node|ruby|perl|php|(?:ba|da|z|k|fi|c|tc|pw)?sh|uv|go|java|lua|luajit|julia
    |Rscript|tclsh|expect|guile|elixir|escript|groovy|osascript|dotnet|[gmn]?awk|g?make|just|docker|podman)[\d.]*(?:t|-dbg)?\Z""",
    re.VERBOSE,
)
_CODE: Final = frozenset(
    (
        *(".py", ".pyz", ".sh", ".bash", ".zsh", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx"),
        *(".rb", ".pl", ".php", ".lua", ".jar", ".wasm", ".go", ".so", ".dll", ".exe", ".env"),
    )
)
_BETWEEN_WORDS: Final = re.compile(r"""[\s;&|<>()'"`=:,]+""")
_SHEBANG: Final = b"#!"
_MODULE: Final = re.compile(r"-[A-Za-z]*m(?P<name>\w[\w.]*)?\Z")
_LOADING: Final = frozenset(
    (
        *("-r", "--require", "--import", "--preload", "--loader", "--experimental-loader"),
        *("--env-file", "--env-file-if-exists", "--rcfile", "--init-file"),
    )
)
"""Options that are followed by a file which is loaded before the script."""
_WORKING_FOLDER: Final = re.compile(r"\$PWD\b|\$\{PWD\}|\$\(pwd\)|`pwd`")
_LOADED_FIRST: Final = frozenset(
    (
        *("BASH_ENV", "ENV", "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES"),
        *("NODE_OPTIONS", "PYTHONSTARTUP", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS"),
    )
)
"""Variables that name what a program loads first."""
_STARTED_IN_FOLDER: Final = ("__main__.py", "index.js", "index.mjs", "index.cjs", "index.ts")
_LEFT_OUT_ENDINGS: Final = (".js", ".mjs", ".cjs", ".ts", ".json")
"""Endings that Node.js adds to a name."""
_MOST_FOLDERS: Final = 8
_MOST_PACKAGES: Final = 64
_PIECE_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 512 * 1024 * 1024
"""Limit for all files together. Of a file beyond it only the size, times and inode count."""

SOURCE_GROUPS: Final = ("sources", "mcpServers", "plugins")
ABSENT: Final = ("none", "no plain file")
"""States of files that do not exist but would be started if they did."""
LEADS_TO: Final = "leads to "
"""Prefix of the state of an agent's folder that is a link leading out of the file's folder."""


class LocalFile(NamedTuple):
    """A file below the configuration file's folder. `state` is the hash of its bytes, or why there is none."""

    path: str
    state: str


class _Program(NamedTuple):
    """What an entry says about its program, with references expanded."""

    commands: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]
    search_path: str
    env_files: tuple[str, ...]


def local_files(root: Node, file: Path, environ: Mapping[str, str]) -> tuple[LocalFile, ...]:
    """The files below a configuration file's folder that it names; for AWF's file, below the folder of `.awf`."""
    folder = str(file.absolute().parent)
    below = str(file.absolute().parents[1]) if file.parts[-2:] == PLUGINS.parts else folder
    found: dict[str, str] = {}
    left_bytes = _MOST_BYTES
    for _, entry in entries_of(root):
        found |= {path: f"{LEADS_TO}{real}" for path, real in _links_out(entry, folder, below, environ)}
        for written in _paths(_program(entry, folder, below, environ)):
            path = written if ".." in written.split(os.sep) else os.path.normpath(written)
            if path not in found and _lies_below(path, below):
                found[path], read_bytes = file_state(path, left_bytes)
                left_bytes -= read_bytes
    return tuple(LocalFile(path, found[path]) for path in sorted(found))


def entries_of(root: Node) -> Iterator[tuple[str, Table]]:
    """The sources of a file by name, those in a list by number."""
    for group in SOURCE_GROUPS:
        node = root.get(group) if isinstance(root, Table) else None
        members = [(key.text, value) for key, value in node.entries] if isinstance(node, Table) else []
        if isinstance(node, ListNode):
            members = [(str(number), item) for number, item in enumerate(node.items, 1)]
        yield from ((name, member) for name, member in members if isinstance(member, Table))


def _links_out(entry: Table, folder: str, below: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Folders of agents that are below by name but are links leading elsewhere, and where they lead."""
    sandbox = entry.get("sandbox")
    shown = sandbox.get("folders") if isinstance(sandbox, Table) else None
    named = [key for key, _ in shown.entries] if isinstance(shown, Table) else []
    for path in map(os.path.abspath, _placed([entry.get("root"), *named], folder, environ)):
        real = os.path.realpath(path)
        if _is_inside(path, below) and not _is_inside(real, os.path.realpath(below)):
            yield path, real


def _texts(nodes: Iterable[Node | None], environ: Mapping[str, str]) -> list[str]:
    """The texts with references expanded, as far as they can be paths."""
    words = [expand(node.text, environ) for node in nodes if isinstance(node, Scalar)]
    return [word for word in words if word and _can_be_a_path(word)]


def _placed(nodes: Iterable[Node | None], folder: str, environ: Mapping[str, str]) -> list[str]:
    home = environ.get("HOME", "")
    return [os.path.join(folder, _from_home(word, home)) for word in _texts(nodes, environ)]


def _program(entry: Table, folder: str, below: str, environ: Mapping[str, str]) -> _Program:
    home = environ.get("HOME", "")

    def texts(node: Node | None) -> list[str]:
        return _texts(node.items if isinstance(node, ListNode) else [node], environ)

    started_in = [below]  # plugins of AWF start there
    if below == folder:
        with suppress(OSError):  # the working folder has been removed
            started_in = [os.getcwd()]
    env = entry.get("env")
    commands = [word for name in ("command", "path") for word in texts(entry.get(name))]
    return _Program(
        commands=tuple(os.path.join(folder, _from_home(word, home)) if _is_path(word) else word for word in commands),
        args=tuple(_WORKING_FOLDER.sub(".", word) for word in texts(entry.get("args"))),
        env=tuple(
            (name.text, _WORKING_FOLDER.sub(".", word))
            for name, value in (env.entries if isinstance(env, Table) else ())
            for word in texts(value)
        ),
        folders=tuple(dict.fromkeys([*(_placed([entry.get("cwd")], folder, environ) or started_in), folder, below])),
        search_path=next(iter(texts(env.get("PATH") if isinstance(env, Table) else None)), ""),
        env_files=tuple(_placed([entry.get("envFile")], folder, environ)),
    )


def _can_be_a_path(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:  # half a character, which JSON can have
        return False


def _is_path(word: str) -> bool:
    return "/" in word or word == "~"


def _from_home(word: str, home: str) -> str:
    return os.path.join(home, word[2:]) if word.startswith("~/") and home else word


def _paths(program: _Program) -> Iterator[str]:
    """Files that would be started, whether they exist or not."""
    yield from program.env_files
    for command in program.commands:
        if _is_path(command):
            yield command
            yield from _in_folder(command)
            continue
        for searched in program.search_path.split(os.pathsep) if program.search_path else ():
            yield from _each_placed([os.path.join(searched, command)], program.folders)
    yield from _scripts(program)


def _in_folder(folder: str) -> Iterator[str]:
    """The manifest and the programs in a plugin's folder."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if name == "plugin.yaml" or (os.path.isfile(path) and os.access(path, os.X_OK)):
            yield path


def _scripts(program: _Program) -> Iterator[str]:
    """Named files that are code, and the first file after an interpreter, whatever it is."""
    texts: list[tuple[Sequence[str], bool]] = [(program.args, any(map(is_interpreter, program.commands)))]
    texts += [(words, False) for words in map(_BETWEEN_WORDS.split, program.args) if len(words) > 1]
    texts += [(_BETWEEN_WORDS.split(value), name in _LOADED_FIRST) for name, value in program.env]
    # folders that are named count too: a program may be told to go there first (`cd tools && …`)
    placed = _each_placed(dict.fromkeys(word for words, _ in texts for word in words), program.folders)
    named = islice(filter(os.path.isdir, placed), _MOST_FOLDERS)
    folders = tuple(dict.fromkeys((*program.folders, *named)))
    for words, interpreted in texts:
        yield from _in_words(words, folders, interpreted=interpreted)


def _in_words(words: Sequence[str], folders: Sequence[str], *, interpreted: bool) -> Iterator[str]:
    """The files among words; `interpreted` says that an interpreter comes before them."""
    before = None
    for last, word in zip(("", *words), words, strict=False):
        if before is not None and before["name"] is None:
            yield from _of_module(word, folders)
        before = _MODULE.match(word)
        if before is not None and before["name"] is not None:
            yield from _of_module(before["name"], folders)
        places = list(_each_placed(dict.fromkeys((word, word.rpartition("=")[2])), folders))
        files = [path for path in places if os.path.isfile(path)]
        yield from (path for path in files if interpreted or _is_code(path))
        if interpreted and not files:
            for place in places:  # names that interpreters complete
                completed = [os.path.join(place, name) for name in _STARTED_IN_FOLDER]
                if not os.path.isdir(place):
                    completed = [place + ending for ending in _LEFT_OUT_ENDINGS]
                yield from filter(os.path.isfile, completed)
        interpreted = interpreted and (not files or last in _LOADING)
        interpreted = interpreted or is_interpreter(word) or word in (".", "source")


def code_named(command: str, args: Sequence[str], env: Mapping[str, str], folder: str) -> list[str]:
    """The files among a program's arguments and variables that are code, by their name or first bytes."""
    variables = tuple(env.items())
    program = _Program((command,), tuple(args), variables, folders=(folder,), search_path="", env_files=())
    return [path for path in _scripts(program) if path.lower().endswith(tuple(_CODE)) or _has_shebang(path)]


def is_interpreter(word: str) -> bool:
    """Whether this is a program that runs the first file in its arguments."""
    return _INTERPRETER.match(os.path.basename(word)) is not None


def _each_placed(words: Iterable[str], folders: Sequence[str]) -> Iterator[str]:
    """Each word as a path from each folder that its program may be started in."""
    yield from (os.path.join(folder, word) for word in words if word for folder in folders)


def _of_module(name: str, folders: Sequence[str]) -> Iterator[str]:
    """The files of a Python module, and of the packages around it that run first."""
    parts = name.split(".")
    counts = (*range(1, min(len(parts), _MOST_PACKAGES)), len(parts))
    packages = [os.path.join("", *parts[:count]) for count in counts]
    places = [os.path.join(package, "__init__.py") for package in packages]
    places += [f"{packages[-1]}.py", os.path.join(packages[-1], "__main__.py")]
    yield from (path for path in _each_placed(places, folders) if os.path.isfile(path))


def _is_code(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in _CODE or os.access(path, os.X_OK) or _has_shebang(path)


def _has_shebang(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_SHEBANG)) == _SHEBANG
    except OSError:
        return False


def _lies_below(path: str, folder: str) -> bool:
    """Whether a path is below the folder, by name or with links resolved."""
    pairs = ((os.path.abspath(path), os.path.abspath(folder)), (os.path.realpath(path), os.path.realpath(folder)))
    return any(_is_inside(*pair) and pair[0] != pair[1] for pair in pairs)


def _is_inside(path: str, folder: str) -> bool:
    return os.path.commonpath((path, folder)) == folder


def file_state(path: str, most_bytes: int) -> tuple[str, int]:
    """The hash of a file, or why there is none, and how many bytes were read."""
    try:
        # without O_NONBLOCK, opening a named pipe would wait for somebody to write into it
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return "none", 0
    except OSError:
        return "not readable", 0
    try:
        return _state_of_open(descriptor, most_bytes)
    except OSError:
        return "not readable", 0
    finally:
        os.close(descriptor)


def _state_of_open(descriptor: int, most_bytes: int) -> tuple[str, int]:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return "no plain file", 0
    if status.st_size > most_bytes:
        return f"large {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}", 0
    digest, size = hashlib.sha256(), 0
    while piece := os.read(descriptor, _PIECE_BYTES):
        digest.update(piece)
        size += len(piece)
        if size > most_bytes:  # it grew while it was read
            return "not readable", size
    return digest.hexdigest(), size
