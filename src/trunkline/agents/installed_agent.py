"""Finds installed agents: the program in PATH, and the version that it reports."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.agents.json_cache import JsonCache
from trunkline.agents.lenient_json import mapping, object_of, text
from trunkline.agents.providers.isolation import absolute_path
from trunkline.agents.providers.provider import Provider
from trunkline.core.errors import AGENT_NOT_FOUND, AGENT_SLOW, GatewayError, Problem
from trunkline.runtime.child_io import HeadTailBuffer, PipeReader, PipeWriter, safe_text, tail_text
from trunkline.runtime.children import Children, child_environment
from trunkline.runtime.deadlines import wait_first
from trunkline.runtime.temporary_folders import RunFolder

_VERSION_S: Final = 120.0
"""A large Node program may take a minute to start on a busy machine."""
_VERSION: Final = re.compile(r"(?<![\w.])v?(\d+\.\d+\.\d+[\w+-]*(?:\.[\w+-]+)*)")
_WORDS_SHOWN: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledAgent:
    """`program` is an absolute path."""

    program: str
    version: str


async def find_installed(
    provider: Provider,
    children: Children,
    environ: Mapping[str, str],
    known: VersionCache,
    *,
    limit_s: float = _VERSION_S,
) -> InstalledAgent:
    """The agent's program and version, cached in `known`. Raises GatewayError, with the code AGENT_SLOW if the
    program takes too long to answer."""
    program = _locate(provider, environ)
    identity = _identity(provider, program)
    is_stable = is_single_version(Path(program), provider.program)
    version = known.get(program, identity, is_stable=is_stable)
    if version is None:
        version = await _ask_version(provider, program, children, environ, limit_s)
        if identity == _identity(provider, program):  # otherwise it was just updated
            known.put(program, identity, version, is_stable=is_stable)
    return InstalledAgent(program=program, version=version)


def _locate(provider: Provider, environ: Mapping[str, str]) -> str:
    """The program's absolute path. Links are not resolved: an agent may look at the name it was called by. Relative
    folders of PATH are not searched: the project may bring an agent of its own."""
    searched = absolute_path(environ)
    path = shutil.which(provider.program, path=searched)
    if path is None:
        passed_over = "" if searched == environ.get("PATH", "") else ", whose relative folders are not searched"
        raise _not_found(provider, f"`{provider.program}` is not in PATH{passed_over}")
    return str(Path(path).absolute())


def _identity(provider: Provider, program: str) -> str:
    try:
        return file_identity(Path(program))
    except OSError as error:  # it existed a moment ago
        raise _not_found(provider, f"`{program}` cannot be read: {error.strerror}") from None


async def _ask_version(
    provider: Provider, program: str, children: Children, environ: Mapping[str, str], limit_s: float
) -> str:
    """Run `--version` outside of any project, so that no file there has a say."""
    env = child_environment(environ, extra={}, inherit="all")
    try:
        printed = await query_program(children, [program, "--version"], env=env, cwd="/", timeout_s=limit_s)
    except GatewayError as error:
        raise _not_found(provider, f"`{program}` cannot be started: {error.problem.message}") from None
    if printed.status is None:
        raise too_slow_error(provider.name, [program, "--version"], limit_s)
    version = _VERSION.search(printed.stdout)
    if printed.status != 0 or version is None:
        words = safe_text(tail_text((printed.stderr or printed.stdout).strip(), _WORDS_SHOWN), str) or "no output"
        message = f"`{program} --version` reported no version: status {printed.status}, {words}"
        raise _not_found(provider, message)
    return version.group(1)


def _not_found(provider: Provider, message: str) -> GatewayError:
    return GatewayError(
        Problem(code=AGENT_NOT_FOUND, message=message, where=provider.name, hint=f"install it: {provider.install}")
    )


class VersionCache:
    """The versions that programs have reported: asking a large one takes seconds, or a minute on a busy machine. What
    is known of a program is kept for this run, and in `folder`, where there is one, for the next."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = JsonCache[tuple[str, str]](folder, "agent_versions.json", tuple[str, str])
        self._of_this_run: dict[tuple[str, str], str] = {}

    def get(self, program: str, identity: str, *, is_stable: bool) -> str | None:
        """`is_stable` says that the program's file alone decides the version."""
        version = self._of_this_run.get((program, identity))
        if version is not None or not is_stable:
            return version
        known_as, version = self._file.read().get(program, ("", ""))
        return version if known_as == identity and version else None

    def put(self, program: str, identity: str, version: str, *, is_stable: bool) -> None:
        self._of_this_run[program, identity] = version
        if is_stable:
            self._file.put(program, (identity, version))


# A cached version holds as long as the program's file stays the same, if that file alone decides the version. What
# `PATH` names may be a link of npm's, a script, a native program, or the launcher of a version manager, which starts
# one of several programs depending on the working folder and on files elsewhere.

_SHIMS: Final = "shims"
"""The folder where version managers keep launchers."""
_NATIVE: Final = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""The first bytes of native programs for Linux and macOS."""
_BY_VERSION: Final = re.compile(r"v?[0-9]+(\.[0-9]+)+")
_PACKAGE: Final = "package.json"
_LARGEST_PACKAGE_BYTES: Final = 1 << 20


def file_identity(program: Path) -> str:
    """Changes with every change of the file that the name leads to, or of its npm package. Raises OSError."""
    real = Path(os.path.realpath(program))
    package = _package_of(real)
    files = (real,) if package is None else (real, package / _PACKAGE)
    return "\n".join(_stamp(file) for file in files)


def is_single_version(program: Path, name: str) -> bool:
    """Whether this file can only be one version: whatever else it starts came with it."""
    real = Path(os.path.realpath(program))
    if program.parent.name == _SHIMS:
        return False
    try:
        with real.open("rb") as file:
            beginning = file.read(4)
    except OSError:
        return False
    if beginning in _NATIVE:  # a version manager links its own program under other names
        return real.name.startswith(name) or _BY_VERSION.fullmatch(real.name) is not None
    package = _package_of(real)
    return package is not None and _is_command_of(package, name, real)


def _stamp(file: Path) -> str:
    status = file.stat()
    return f"{file} {status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _package_of(real: Path) -> Path | None:
    return next((folder for folder in real.parents if (folder / _PACKAGE).is_file()), None)


def _is_command_of(package: Path, name: str, real: Path) -> bool:
    try:
        with (package / _PACKAGE).open("rb") as file:
            written = file.read(_LARGEST_PACKAGE_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return False
    commands = object_of(written).get("bin")
    place = text(commands) or text(mapping(commands).get(name))
    return bool(place) and Path(os.path.realpath(package / place)) == real


_LARGEST_ANSWER_BYTES: Final = 16 << 20
_TERM_S: Final = 0.5
_GONE_S: Final = 2.0
_HOMES: Final = ("CODEX_HOME", "GEMINI_CLI_HOME", "TMPDIR")
"""Variables set to an empty folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOutput:
    """What a program printed. `status` is None if it did not exit in time."""

    status: int | None
    stdout: str
    stderr: str


async def query_program(
    children: Children, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout_s: float
) -> ProgramOutput:
    """Run a program to its end, without input. Raises GatewayError if it cannot be started. It gets empty folders
    for its files: some agents write there even when they only print their version."""
    folder = RunFolder(children, argv[0])
    try:
        homes = dict.fromkeys(_HOMES, str(folder.path))
        child = await children.spawn(argv, env={**env, **homes}, cwd=cwd, label=argv[0])
        output = HeadTailBuffer(head_bytes=_LARGEST_ANSWER_BYTES, tail_bytes=1)
        errors = HeadTailBuffer(head_bytes=1, tail_bytes=2048)
        PipeWriter(child.stdin, b"")
        reading = (PipeReader(child.stdout, output.add), PipeReader(child.stderr, errors.add))
        try:
            await wait_first([child.exited], timeout_s)
            status = child.exited.result() if child.exited.done() and not child.lost else None
            if not child.exited.done():
                child.terminate(term_s=_TERM_S)
            await asyncio.wait([child.gone], timeout=_TERM_S + _GONE_S)
        finally:
            child.terminate(term_s=_TERM_S)  # has an effect only if this was cancelled
            for one in reading:
                one.close()
        stderr = (errors.head + errors.tail).decode(errors="replace")
        return ProgramOutput(status=status, stdout=output.head.decode(errors="replace"), stderr=stderr)
    finally:
        folder.remove()


def too_slow_error(agent: str, argv: Sequence[str], limit_s: float) -> GatewayError:
    """The error for a program that did not answer in time, which says nothing against its installation."""
    return GatewayError(
        Problem(
            code=AGENT_SLOW,
            message=f"`{' '.join(argv)}` took longer than {limit_s:.3g} s",
            where=agent,
            hint="try again when the machine is less busy, or run that command in a terminal to see what it waits for",
        )
    )
