"""Which agents this machine has: where the program is that PATH names, and the version it says it is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.agents.asking import Printed, ask_program, too_slow
from trunkline.agents.known_versions import KnownVersions
from trunkline.agents.launchers import decides_alone, identity
from trunkline.agents.precautions import absolute_path
from trunkline.agents.provider import Provider
from trunkline.core.errors import AGENT_NOT_FOUND, GatewayError, Problem
from trunkline.runtime.child_output import end, harmless
from trunkline.runtime.children import Children
from trunkline.runtime.environment import child_environment

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
    known: KnownVersions,
    *,
    limit_s: float = _VERSION_S,
) -> Installed:
    """Raises GatewayError: with how to install it where it is not there or does not say its version, and with another
    code where it takes too long to say it. What is known is not asked again."""
    program = _locate(provider, environ)
    there = _identity(provider, program)
    lasting = decides_alone(Path(program), provider.program)
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
        return identity(Path(program))
    except OSError as error:  # it was there a moment ago
        raise _not_found(provider, f"`{program}` cannot be looked at: {error.strerror}") from None


async def _ask_version(
    provider: Provider, program: str, children: Children, environ: Mapping[str, str], limit_s: float
) -> str:
    """Asked outside of any project, so that nothing there decides."""
    env = child_environment(environ, extra={}, inherit="all")
    try:
        printed = await ask_program(children, [program, "--version"], env=env, cwd="/", timeout_s=limit_s)
    except GatewayError as error:
        raise _not_found(provider, f"`{program}` cannot be started: {error.problem.message}") from None
    if printed.status is None:
        raise too_slow(provider.name, [program, "--version"], limit_s)
    version = _VERSION.search(printed.stdout)
    if printed.status != 0 or version is None:
        raise _not_found(provider, f"`{program} --version` {_what_became(printed)}")
    return version.group(1)


def _what_became(printed: Printed) -> str:
    words = harmless(end((printed.stderr or printed.stdout).strip(), _WORDS_SHOWN), str)
    return f"said no version: status {printed.status}, {words or 'no output'}"


def _not_found(provider: Provider, message: str) -> GatewayError:
    return GatewayError(
        Problem(code=AGENT_NOT_FOUND, message=message, where=provider.name, hint=f"install it: {provider.install}")
    )
