"""Which plugins a workflow may use, and where they are looked up."""

from __future__ import annotations

from pathlib import Path

from trunkline.config.load import load_config
from trunkline.config.settings import Settings
from trunkline.runs.plugins import Plugins, find_plugins_file, plugin_sections
from trunkline.sources import section_kinds

PLUGINS = "plugins: {git: {command: git-plugin}}\n"


def awf(folder: Path, text: str = PLUGINS) -> Path:
    file = folder / ".awf" / "plugins.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def configured(folder: Path, text: str) -> Settings:
    (folder / "trunkline.yaml").write_text(text)
    loaded = load_config(folder / "trunkline.yaml", environ={}, kinds=section_kinds())
    assert loaded.settings is not None
    return loaded.settings


def look(settings: Settings | None, workflow: Path, cwd: Path) -> Plugins:
    return plugin_sections(settings, workflow, cwd, environ={})


def test_the_file_of_the_working_folder_goes_before_the_nearest_above_the_workflow(tmp_path: Path) -> None:
    workflow = tmp_path / "a" / "b" / "w.yaml"
    workflow.parent.mkdir(parents=True)
    (tmp_path / "here").mkdir()
    assert find_plugins_file(workflow, tmp_path / "here") is None
    upper = awf(tmp_path)
    assert find_plugins_file(workflow, tmp_path / "here") == upper
    nearer = awf(tmp_path / "a")
    assert find_plugins_file(workflow, tmp_path / "here") == nearer
    here = awf(tmp_path / "here")
    assert find_plugins_file(workflow, tmp_path / "here") == here


def test_plugins_of_both_files_are_there_and_ours_win(tmp_path: Path) -> None:
    file = awf(tmp_path / "x", "plugins: {git: {command: git-plugin}, other: {command: z}}\n")
    settings = configured(
        tmp_path,
        "sources:\n  git: {kind: plugin, command: ours}\n  files: {kind: builtin, root: .}\n"
        "  lacks: {kind: plugin, command: '${NOPE}'}\n",
    )
    found = look(settings, tmp_path / "x" / "w.yaml", tmp_path)
    assert sorted(found.sections) == ["git", "lacks", "other"]
    assert found.sections["git"].command == "ours"  # type: ignore[attr-defined]
    assert found.other_kinds == {"files": "builtin"}
    assert [problem.code.id for problem in found.problems] == ["TL106"]  # both have `git`
    assert (list(found.texts), found.failed) == ([str(file)], False)


def test_a_file_that_the_configuration_was_read_with_is_not_read_against_itself(tmp_path: Path) -> None:
    awf(tmp_path)
    found = look(configured(tmp_path, "sources: {}\n"), tmp_path / "w.yaml", tmp_path)
    assert list(found.sections) == ["git"]
    assert found.problems == ()


def test_without_a_configuration_awf_alone_counts(tmp_path: Path) -> None:
    awf(tmp_path)
    assert list(look(None, tmp_path / "w.yaml", tmp_path).sections) == ["git"]
    assert look(None, tmp_path / "w.yaml", tmp_path).other_kinds == {}


def test_mistakes_in_awfs_file_are_told(tmp_path: Path) -> None:
    awf(tmp_path, "plugins: {git: {comand: x}}\n")
    found = look(None, tmp_path / "w.yaml", tmp_path)
    assert found.failed
    assert {problem.code.id for problem in found.problems} == {"TL102", "TL105"}
