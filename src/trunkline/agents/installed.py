"""Which agents this machine has: where the program is that PATH names, and the version it says it is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.agents.asking import Printed, ask_program
from trunkline.agents.precautions import absolute_path
from trunkline.agents.provider import Provider
from trunkline.core.errors import AGENT_NOT_FOUND, GatewayError, Problem
from trunkline.links.child_output import end, harmless
from trunkline.links.children import Children
from trunkline.links.environment import child_environment

_VERSION_S: Final = 10.0
_VERSION: Final = re.compile(r"(?<![\w.])v?(\d+\.\d+\.\d+[\w+-]*(?:\.[\w+-]+)*)")
_WORDS_SHOWN: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """`program` is an absolute path."""

    program: str
    version: str


_found: dict[tuple[str, int], Installed] = {}
"""By path and the time of its last change: asking takes a moment, and the same agent is run many times."""


async def find_installed(provider: Provider, children: Children, environ: Mapping[str, str]) -> Installed:
    """Raises GatewayError, with how to install it, where it is not there or does not say its version."""
    key = _locate(provider, environ)
    if key not in _found:
        _found[key] = Installed(program=key[0], version=await _ask_version(provider, key[0], children, environ))
    return _found[key]


def _locate(provider: Provider, environ: Mapping[str, str]) -> tuple[str, int]:
    """Its path and the time of its last change. Links stay: an agent may look at the name it was called by.

    A relative folder of PATH would be one of the project's, which may bring an agent of its own.
    """
    searched = absolute_path(environ)
    path = shutil.which(provider.program, path=searched)
    if path is None:
        passed_over = "" if searched == environ.get("PATH", "") else ", whose relative folders are not searched"
        raise _not_found(provider, f"`{provider.program}` is not in PATH{passed_over}")
    program = Path(path).absolute()
    return str(program), program.stat().st_mtime_ns


async def _ask_version(provider: Provider, program: str, children: Children, environ: Mapping[str, str]) -> str:
    env = child_environment(environ, extra={}, inherit="all")
    try:
        printed = await ask_program(children, [program, "--version"], env=env, cwd="/", timeout_s=_VERSION_S)
    except GatewayError as error:
        raise _not_found(provider, f"`{program}` cannot be started: {error.problem.message}") from None
    version = _VERSION.search(printed.stdout)
    if printed.status != 0 or version is None:
        raise _not_found(provider, f"`{program} --version` {_what_became(printed)}")
    return version.group(1)


def _what_became(printed: Printed) -> str:
    if printed.status is None:
        return f"did not end within {_VERSION_S:g} s"
    words = harmless(end((printed.stderr or printed.stdout).strip(), _WORDS_SHOWN), str)
    return f"said no version: status {printed.status}, {words or 'no output'}"


def _not_found(provider: Provider, message: str) -> GatewayError:
    return GatewayError(
        Problem(code=AGENT_NOT_FOUND, message=message, where=provider.name, hint=f"install it: {provider.install}")
    )
