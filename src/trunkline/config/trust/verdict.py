"""The verdict on one file: whether it counts, and what it would start if it did."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from trunkline.config.file_text import parse_text, read_text
from trunkline.config.report import FileProblem, Invalid, Report
from trunkline.config.tree import Node
from trunkline.config.trust.fingerprint import fingerprint
from trunkline.config.trust.own_programs import OwnFile
from trunkline.config.trust.shown import ShownLine, shown_lines
from trunkline.config.trust.store import TrustStore, trust_key
from trunkline.core.errors import NOT_TRUSTED, GatewayError, Severity

MOST_READS: Final = 10
"""How often a file that changes all the time is read anew before it counts as changed."""
State = Literal["trusted", "changed", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`path` is the real one. `changed` is a file that was trusted as it was before. `fault` says why the list of
    trusted files cannot be used."""

    path: Path
    state: State
    digest: str
    root: Node = field(repr=False, compare=False)
    files: tuple[OwnFile, ...] = field(repr=False, compare=False)
    fault: str = ""

    @property
    def counts(self) -> bool:
        return self.state == "trusted"

    def lines(self) -> tuple[ShownLine, ...]:
        """What it would start, reach and weaken, for its user to see."""
        return shown_lines(self.root, self.files)

    def problem(self, severity: Severity = "error") -> FileProblem:
        changed = "has changed since it was trusted" if self.state == "changed" else "is not trusted"
        fault = f" ({self.fault})" if self.fault else ""
        command = f"`trunkline trust {shlex.quote(str(self.path))}` shows what it would start, and asks"
        return FileProblem(
            code=NOT_TRUSTED,
            message=f"This file was found, not named with `-c`, and {changed}{fault}: {command}",
            where=str(self.path),
            severity=severity,
            file=str(self.path),
        )


def verdict_on(file: Path, root: Node, environ: Mapping[str, str]) -> Verdict:
    """Of the file at `file`, whose text was read as `root`: that very text is what is trusted or not. Whichever way the
    file was named, it is the same one."""
    key = trust_key(file)
    found = fingerprint(root, Path(key), environ)
    store = TrustStore(environ)
    kept = store.read()
    known = kept.files.get(key)
    state: State = "unknown" if known is None else "trusted" if known.covers(found.digest) else "changed"
    fault = f"the list of trusted files {store.path} cannot be used: {kept.fault}" if kept.fault else ""
    return Verdict(Path(key), state, found.digest, root, found.files, fault)


def read_verdict(file: Path, environ: Mapping[str, str]) -> Verdict:
    """The verdict on a file as it is now. Raises GatewayError where it cannot be read at all."""
    verdict = _read_verdict(file, environ)
    for _ in range(MOST_READS):
        if verdict.state != "changed":
            break
        # `add` may have written the file and the list between our reading the one and the other
        before, verdict = verdict, _read_verdict(file, environ)
        if verdict.digest == before.digest:
            break
    return verdict


def _read_verdict(file: Path, environ: Mapping[str, str]) -> Verdict:
    report = Report(str(file))
    try:
        return verdict_on(file, parse_text(read_text(file, report), file, report), environ)
    except Invalid:
        errors = (problem for problem in report.in_file_order() if problem.severity == "error")
        raise GatewayError(next(errors)) from None
