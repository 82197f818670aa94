"""Write and Edit at the protected paths, by whichever way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.builtin_tools import Workbench

from trunkline.sources.builtin.edit import EditTool
from trunkline.sources.builtin.protection.protected_paths import ProtectedPaths
from trunkline.sources.builtin.read import ReadTool
from trunkline.sources.builtin.tool import ToolFault
from trunkline.sources.builtin.write import WriteTool

WAYS = [
    "trunkline.json",
    ".claude/settings.json",
    ".claude/deep/er/x",
    "sub/.mcp.json",
    "SUB/.Claude/x",
    "src/../.envrc",
    ".git/hooks/pre-commit",
    ".git/config",
    ".git",
    "module/.git",
    "bare/HEAD",
    ".vscode/tasks.json",
    "way/settings.json",
    "up/mcp",
    "target/settings.json",
    "flow.yaml",
]


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    folder = tmp_path / "root"
    (folder / "target").mkdir(parents=True)
    (folder / ".gemini").symlink_to("target")
    (folder / "way").symlink_to(".gemini")
    (folder / ".codex").mkdir()
    (folder / "up").symlink_to(".codex")
    return Workbench(folder, protected=ProtectedPaths(files=[["flow.yaml"]]))


@pytest.mark.law
@pytest.mark.parametrize("path", WAYS)
async def test_a_protected_path_is_not_written_nor_are_folders_made_for_it(bench: Workbench, path: str) -> None:
    before = sorted(bench.folder.rglob("*"))
    for written in (path, str(bench.folder / path)):
        with pytest.raises(ToolFault, match="protected path"):
            await bench.use(WriteTool, path=written, content="x")
        with pytest.raises(ToolFault, match="protected path"):
            await bench.use(EditTool, path=written, old_string="", new_string="x")
    left = [entry for entry in bench.folder.rglob("*") if entry not in before]
    assert [entry.name for entry in left if entry.name not in ("sub", "SUB", "bare", "module")] == []


async def test_a_protected_path_is_read_as_ever(bench: Workbench) -> None:
    bench.write(".claude/settings.json", "{}")
    assert "{}" in await bench.text(ReadTool, path=".claude/settings.json")


async def test_what_is_beside_the_places_is_written_as_ever(bench: Workbench) -> None:
    for path in ("a/b/new.txt", ".vscode/notes.md", "conf/config", "hooks/use.ts", ".gitignore"):
        await bench.use(WriteTool, path=path, content="x")
        assert (bench.folder / path).read_text() == "x"


async def test_another_name_of_a_protected_file_leaves_that_file_alone(bench: Workbench) -> None:
    settings = bench.write(".claude/settings.json", "mine")
    (bench.folder / "twin").hardlink_to(settings)
    await bench.use(WriteTool, path="twin", content="theirs")
    assert settings.read_text() == "mine"


async def test_files_that_name_programs_are_not_written_in_a_repository_of_any_name(bench: Workbench) -> None:
    bench.write("store/HEAD", "ref: refs/heads/main\n")
    for path in ("store/config", "store/hooks/post-update", "store/commondir"):
        with pytest.raises(ToolFault, match="protected path"):
            await bench.use(WriteTool, path=path, content="x")
