"""What a project tells agents reaches every isolated one, and nothing else does: the real programs, scripted models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_kinds import CLAUDE, CODEX, GEMINI, MODEL, OPENCODE, settle
from tests.support.agent_runs import AgentKind
from tests.support.agent_sessions import SessionStage
from tests.support.models.script import Use, calls
from tests.support.pairs import pairs

from trunkline.core.errors import INSTRUCTIONS_LEFT_OUT

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.law, pytest.mark.timeout(120)]

OWN = {"claude": "CLAUDE.md", "gemini": "GEMINI.md"}
SHARED = "AGENTS.md"
EVERY = (SHARED, "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", ".claude/rules/rule.md")
OTHERS = (".github/copilot-instructions.md", ".cursorrules", "CONTEXT.md", "below/AGENTS.md", "below/CLAUDE.md")
SECRET = "only-in-a-file-of-the-user"
IMPORTS = "@secret.txt @./secret.txt @.gemini/.env @../secret.txt @~/secret.txt {file:secret.txt} {env:MY_KEY} !`env`"
SAYS = f"The word is plover.\N{ZERO WIDTH SPACE}\n\n{IMPORTS}\n"
ALONE = {
    "claude": ["-p"],
    "codex": ["exec", "--skip-git-repo-check"],
    "gemini": ["-m", "gemini-2.5-pro", "-p"],
    "opencode": ["run"],
}


@dataclass(frozen=True)
class Shown:
    """The first request to the model, and the warnings that the user got."""

    first: str
    warned: str


class Stage(SessionStage):
    """A project below the top of a repository, whose folders above have files for every agent. The agent's user has
    secrets: in a file, and in a variable that Gemini has in a file too."""

    def __init__(self, folder: Path, kind: AgentKind) -> None:
        super().__init__(folder, kind)
        settle(self)
        self.environ["MY_KEY"] = SECRET
        self.home_file(".gemini/.env", f"MY_KEY={SECRET}\n")
        self.home_file("secret.txt", SECRET)
        (folder / "secret.txt").write_text(SECRET)
        self.project_file("secret.txt", SECRET)
        (folder / ".git").mkdir()
        (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        for name in EVERY:
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("PLANTED above\n")

    async def shown(self, command: str, *, off: bool = False) -> Shown:
        """One run, in which the agent does one thing that it can."""
        prefix = {"claude": "mcp__trunkline-run__", "codex": "mcp__trunkline_run/", "gemini": "mcp_trunkline-run_"}
        bash = Use(f"{prefix.get(self.kind.provider, 'trunkline-run_')}Bash", {"command": "echo there"})
        if self.kind is MODEL:
            bash = Use("Bash", {"command": "echo there"})
        if command == "agent":
            args, options = [*ALONE[self.kind.provider], "Do as planned"], ["--no-instructions"] if off else []
            session = await self.session(calls(bash), args=args, options=options)
            assert session.status == 0, session.stderr
            session.left_nothing()
            return Shown(str(session.model.requests[0].body), session.stderr)
        options: dict[str, Any] = {"model": "gemini-2.5-pro"} if self.kind is GEMINI else {}
        options |= {"instructions": False} if off else {}
        run = await self.run(calls(bash), options=options, mcp_proxy={"enable": True})
        run.succeeded()
        return Shown(str(run.model.requests[0].body), str(run.of("warned")))


@dataclass(frozen=True)
class Case:
    kind: AgentKind
    command: str
    planted: str

    def __str__(self) -> str:
        return f"{self.kind.provider}-{self.command}-{self.planted}"


KINDS = (CLAUDE, CODEX, GEMINI, OPENCODE, MODEL)
PLANTED = ("file", "link to the environment", "link to a file of the user")
EVERY_CASE = [
    Case(kind, command, planted)
    for kind in KINDS
    for command in ("run", "agent")
    for planted in PLANTED
    if kind is not MODEL or command == "run"
]
CASES = list(
    dict.fromkeys(
        [
            Case(CODEX, "run", PLANTED[1]),
            *pairs(EVERY_CASE, lambda case: (case.kind.provider, case.command, case.planted == "file")),
        ]
    )
)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_an_isolated_agent_is_told_what_its_project_says_in_one_file_and_no_other_is_read(
    tmp_path: Path, case: Case
) -> None:
    stage = Stage(tmp_path, case.kind)
    own = OWN.get(case.kind.provider, SHARED)
    for name in (*EVERY, *OTHERS):
        if name != own and (case.kind, name) != (CODEX, "AGENTS.override.md"):
            stage.project_file(name, "PLANTED beside\n")
    match case.planted:
        case "file":
            stage.project_file(own, SAYS)
        case "link to a file of the user":
            (stage.project / own).symlink_to("../secret.txt")
        case _:
            (stage.project / own).symlink_to("/proc/self/environ")
    shown = await stage.shown(case.command)
    assert SECRET not in shown.first
    assert "PLANTED" not in shown.first
    assert (shown.first.count("The word is plover."), "plover.<U+200B>" in shown.first) == (
        (1, True) if case.planted == "file" else (0, False)
    )
    assert (INSTRUCTIONS_LEFT_OUT.id in shown.warned) == (case.planted != "file")


@pytest.mark.parametrize(("kind", "command"), [(MODEL, "run"), (CODEX, "run"), (CLAUDE, "agent")])
async def test_instructions_can_be_turned_off(tmp_path: Path, kind: AgentKind, command: str) -> None:
    stage = Stage(tmp_path, kind)
    for name in EVERY:
        stage.project_file(name, SAYS)
    shown = await stage.shown(command, off=True)
    assert ("plover" in shown.first, "PLANTED" in shown.first, INSTRUCTIONS_LEFT_OUT.id in shown.warned) == (False,) * 3
