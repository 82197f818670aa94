"""Which agents this machine has: where the program is that PATH names, and the version it says it is."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from trunkline.agents.loose_json import mapping, object_of, text
from trunkline.agents.providers.isolation import absolute_path
from trunkline.agents.providers.provider import Provider
from trunkline.core.errors import AGENT_NOT_FOUND, AGENT_SLOW, GatewayError, Problem
from trunkline.runtime.child_output import end, harmless
from trunkline.runtime.children import Child, Children
from trunkline.runtime.environment import child_environment
from trunkline.runtime.head_and_tail import HeadAndTail
from trunkline.runtime.overdue import first_of
from trunkline.runtime.pipes import PipeFeeding, PipeReading
from trunkline.runtime.private_files import make_private_folder, read_private, write_private
from trunkline.runtime.run_folder import RunFolder

_VERSION_S: Final = 120.0
"""A minute goes by where a large program of Node's starts on a machine that is busy."""
_VERSION: Final = re.compile(r"(?<![\w.])v?(\d+\.\d+\.\d+[\w+-]*(?:\.[\w+-]+)*)")
_WORDS_SHOWN: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
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
) -> Installed:
    """Raises GatewayError: with how to install it where it is not there or does not say its version, and with another
    code where it takes too long to say it. What is known is not asked again."""
    program = _locate(provider, environ)
    there = _identity(provider, program)
    lasting = is_single_version(Path(program), provider.program)
    version = known.of(program, there, lasting=lasting)
    if version is None:
        version = await _ask_version(provider, program, children, environ, limit_s)
        if there == _identity(provider, program):  # else it was just updated
            known.keep(program, there, version, lasting=lasting)
    return Installed(program=program, version=version)


def _locate(provider: Provider, environ: Mapping[str, str]) -> str:
    """Its path. Links stay: an agent may look at the name it was called by.

    A relative folder of PATH would be one of the project's, which may bring an agent of its own.
    """
    searched = absolute_path(environ)
    path = shutil.which(provider.program, path=searched)
    if path is None:
        passed_over = "" if searched == environ.get("PATH", "") else ", whose relative folders are not searched"
        raise _not_found(provider, f"`{provider.program}` is not in PATH{passed_over}")
    return str(Path(path).absolute())


def _identity(provider: Provider, program: str) -> str:
    try:
        return file_identity(Path(program))
    except OSError as error:  # it was there a moment ago
        raise _not_found(provider, f"`{program}` cannot be looked at: {error.strerror}") from None


async def _ask_version(
    provider: Provider, program: str, children: Children, environ: Mapping[str, str], limit_s: float
) -> str:
    """Asked outside of any project, so that nothing there decides."""
    env = child_environment(environ, extra={}, inherit="all")
    try:
        printed = await query_program(children, [program, "--version"], env=env, cwd="/", timeout_s=limit_s)
    except GatewayError as error:
        raise _not_found(provider, f"`{program}` cannot be started: {error.problem.message}") from None
    if printed.status is None:
        raise too_slow_error(provider.name, [program, "--version"], limit_s)
    version = _VERSION.search(printed.stdout)
    if printed.status != 0 or version is None:
        raise _not_found(provider, f"`{program} --version` {_what_became(printed)}")
    return version.group(1)


def _what_became(printed: ProgramOutput) -> str:
    words = harmless(end((printed.stderr or printed.stdout).strip(), _WORDS_SHOWN), str)
    return f"said no version: status {printed.status}, {words or 'no output'}"


def _not_found(provider: Provider, message: str) -> GatewayError:
    return GatewayError(
        Problem(code=AGENT_NOT_FOUND, message=message, where=provider.name, hint=f"install it: {provider.install}")
    )


# Which version an agent's program said it is, kept between runs: asking a large one takes seconds, and a minute where
# the machine is busy.

_FILE: Final = "agent_versions.json"
_LARGEST_BYTES: Final = 1 << 20
_MOST: Final = 100


class VersionCache:
    """Of one run; what lasts longer is under a folder of the state, where there is one. Nothing found there, or not
    found, stops anything: then the program is asked."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._here: dict[tuple[str, str], str] = {}

    def of(self, program: str, file_identity: str, *, lasting: bool) -> str | None:
        """`lasting` says that its file alone decides which version it is."""
        version = self._here.get((program, file_identity))
        if version is not None or not lasting:
            return version
        there, version = self._read().get(program, ("", ""))
        return version if there == file_identity and version else None

    def keep(self, program: str, file_identity: str, version: str, *, lasting: bool) -> None:
        self._here[program, file_identity] = version
        if self._folder is None or not lasting:
            return
        known = self._read()
        known.pop(program, None)
        known[program] = (file_identity, version)
        latest = dict(list(known.items())[-_MOST:])
        try:
            make_private_folder(self._folder)
            write_private(self._folder / _FILE, msgspec.json.encode(latest))
        except (OSError, UnicodeEncodeError):
            return  # the next run asks again

    def _read(self) -> dict[str, tuple[str, str]]:
        data = None if self._folder is None else read_private(self._folder / _FILE, _LARGEST_BYTES)
        try:
            return {} if data is None else msgspec.json.decode(data, type=dict[str, tuple[str, str]])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}


# Whether what a program once said of its version still holds: which file it is, and whether that file alone decides.
#
# `PATH` names a link of npm's, a script, a program of its own, or the launcher of a version manager, which starts one of
# several programs, depending on the folder it is called in and on files elsewhere.

_SHIMS: Final = "shims"
"""The folder in which version managers keep launchers."""
_NATIVE: Final = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How programs for Linux and macOS begin."""
_BY_VERSION: Final = re.compile(r"v?[0-9]+(\.[0-9]+)+")
_PACKAGE: Final = "package.json"
_LARGEST_PACKAGE_BYTES: Final = 1 << 20


def file_identity(program: Path) -> str:
    """Another one after every change of the file that the name leads to, or of its npm package. Raises OSError."""
    real = Path(os.path.realpath(program))
    package = _package_of(real)
    files = (real, *(() if package is None else (package / _PACKAGE,)))
    return "\n".join(_stamp(file) for file in files)


def is_single_version(program: Path, name: str) -> bool:
    """Whether this file, as it is, can only be one version: what else it may start came with it."""
    real = Path(os.path.realpath(program))
    if program.parent.name == _SHIMS:
        return False
    try:
        with real.open("rb") as file:
            beginning = file.read(4)
    except OSError:
        return False
    if beginning in _NATIVE:  # a version manager links its own program under the names of others
        return real.name.startswith(name) or _BY_VERSION.fullmatch(real.name) is not None
    package = _package_of(real)
    return package is not None and _is_command_of(package, name, real)


def _stamp(file: Path) -> str:
    status = file.stat()
    return f"{file} {status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _package_of(real: Path) -> Path | None:
    return next((folder for folder in real.parents if (folder / _PACKAGE).is_file()), None)


def _is_command_of(package: Path, name: str, real: Path) -> bool:
    """Whether the package itself says that this file is the command."""
    try:
        with (package / _PACKAGE).open("rb") as file:
            written = file.read(_LARGEST_PACKAGE_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return False
    commands = object_of(written).get("bin")
    place = text(commands) or text(mapping(commands).get(name))
    return bool(place) and Path(os.path.realpath(package / place)) == real


# Asking an agent's program something that it prints and ends: its version, its catalog of models.

_LARGEST_ANSWER_BYTES: Final = 16 << 20
_TERM_S: Final = 0.5
_GONE_S: Final = 2.0
_HOMES: Final = ("CODEX_HOME", "GEMINI_CLI_HOME", "TMPDIR")
"""What is set to an empty folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOutput:
    """What a program printed before it ended. `status` is None where it did not end in time."""

    status: int | None
    stdout: str
    stderr: str


async def query_program(
    children: Children, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout_s: float
) -> ProgramOutput:
    """Run it to its end, without input. Raises GatewayError where it cannot be started.

    What it leaves behind goes: some agents write into their folders even when they only say their version.
    """
    folder = RunFolder(children, argv[0])
    try:
        homes = dict.fromkeys(_HOMES, str(folder.path))
        return await _ask(children, argv, env={**env, **homes}, cwd=cwd, timeout_s=timeout_s)
    finally:
        folder.remove()


async def _ask(
    children: Children, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout_s: float
) -> ProgramOutput:
    child = await children.spawn(argv, env=env, cwd=cwd, label=argv[0])
    output = HeadAndTail(head_bytes=_LARGEST_ANSWER_BYTES, tail_bytes=1)
    errors = HeadAndTail(head_bytes=1, tail_bytes=2048)
    PipeFeeding(child.stdin, b"")
    reading = (PipeReading(child.stdout, output.add), PipeReading(child.stderr, errors.add))
    try:
        await first_of([child.exited], timeout_s)
        status = child.exited.result() if child.exited.done() and not child.lost else None
        await _see_off(child)
    finally:
        child.terminate(term_s=_TERM_S)  # changes nothing unless this was cancelled
        for one in reading:
            one.close()
    return ProgramOutput(status=status, stdout=output.head.decode(errors="replace"), stderr=_text(errors))


async def _see_off(child: Child) -> None:
    if not child.exited.done():
        child.terminate(term_s=_TERM_S)
    await asyncio.wait([child.gone], timeout=_TERM_S + _GONE_S)


def _text(errors: HeadAndTail) -> str:
    return (errors.head + errors.tail).decode(errors="replace")


def too_slow_error(agent: str, argv: Sequence[str], limit_s: float) -> GatewayError:
    """For one that did not answer in time, which says nothing against how it is installed."""
    return GatewayError(
        Problem(
            code=AGENT_SLOW,
            message=f"`{' '.join(argv)}` took longer than {limit_s:.3g} s",
            where=agent,
            hint="try again when the machine is less busy, or run that command in a terminal to see what it waits for",
        )
    )
