"""The lookup of a workflow's plugins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.trust import trust

from trunkline.agents.runs.plugins import WorkflowPlugins, plugin_sections, source_kind
from trunkline.config.files import ConfigFile, find_plugins
from trunkline.config.load import load_config
from trunkline.config.settings import Settings
from trunkline.sources import section_kinds

PLUGINS = "plugins: {git: {command: git-plugin}}\n"


def awf(folder: Path, text: str = PLUGINS) -> Path:
    file = folder / ".awf" / "plugins.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def configured(folder: Path, text: str) -> Settings:
    (folder / "trunkline.yaml").write_text(text)
    environ = {"HOME": str(folder / "home")}
    if (folder / ".awf").is_dir():
        trust(folder / ".awf" / "plugins.yaml", environ)
    loaded = load_config(ConfigFile.named(folder / "trunkline.yaml"), environ=environ, kinds=section_kinds())
    assert loaded.settings is not None
    return loaded.settings


def look(settings: Settings | None, workflow: Path, cwd: Path) -> WorkflowPlugins:
    environ = {"HOME": str(workflow.parent / "home")}
    for folder in (*workflow.parents, cwd):
        if (folder / ".awf" / "plugins.yaml").is_file():
            trust(folder / ".awf" / "plugins.yaml", environ)
    return plugin_sections(settings, find_plugins(workflow, cwd, workflow.parent), environ=environ)


def test_the_nearest_file_above_the_workflow_goes_before_that_of_the_working_folder(tmp_path: Path) -> None:
    def found() -> Path | None:
        file = find_plugins(workflow, tmp_path / "here", tmp_path / "home")
        return None if file is None else file.path

    workflow = tmp_path / "a" / "b" / "w.yaml"
    workflow.parent.mkdir(parents=True)
    (tmp_path / "here").mkdir()
    assert found() is None
    here = awf(tmp_path / "here")
    assert found() == here
    upper = awf(tmp_path)
    assert found() == upper
    nearer = awf(tmp_path / "a")
    assert found() == nearer


def test_a_configuration_that_was_found_elsewhere_does_not_take_the_names_beside_the_workflow(tmp_path: Path) -> None:
    """A repository must not put its own plugin in the place of the user's."""
    awf(tmp_path / "mine", "plugins: {git: {command: mine}}\n")
    text = "sources: {git: {kind: plugin, command: theirs}, more: {kind: plugin, command: theirs}}\n"
    (tmp_path / "repository").mkdir()
    settings = configured(tmp_path / "repository", text)
    for origin, expected in (("found", "mine"), ("named", "theirs"), ("own", "theirs")):
        given = replace(settings, origin=origin)  # type: ignore[arg-type]
        found = look(given, tmp_path / "mine" / "w.yaml", tmp_path / "repository")
        assert found.sections["git"].command == expected  # type: ignore[attr-defined]
        assert sorted(found.sections) == ["git", "more"]


def test_plugins_of_a_file_that_is_not_trusted_are_not_there(tmp_path: Path) -> None:
    file = awf(tmp_path)
    environ = {"HOME": str(tmp_path)}
    plugins = ConfigFile(file, "found")
    found = plugin_sections(None, plugins, environ=environ)
    assert (dict(found.sections), found.awf.failed) == ({}, True)
    assert [(problem.code.id, problem.where) for problem in found.awf.problems] == [("TL116", str(file))]
    looked = plugin_sections(None, plugins, environ=environ, inspect_only=True)
    assert (list(looked.sections), looked.awf.failed) == (["git"], False)


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
    assert {name: source_kind(found.sources[name]) for name in found.sources.keys() - found.sections} == {
        "files": "builtin"
    }
    assert [problem.code.id for problem in found.awf.problems] == ["TL106"]  # both have `git`
    assert ([problem.file for problem in found.awf.problems], found.awf.failed) == ([str(file)], False)


def test_a_file_that_the_configuration_was_read_with_is_not_read_against_itself(tmp_path: Path) -> None:
    awf(tmp_path)
    found = look(configured(tmp_path, "sources: {}\n"), tmp_path / "w.yaml", tmp_path)
    assert list(found.sections) == ["git"]
    assert found.awf.problems == ()


def test_without_a_configuration_awf_alone_counts(tmp_path: Path) -> None:
    awf(tmp_path)
    found = look(None, tmp_path / "w.yaml", tmp_path)
    assert list(found.sections) == list(found.sources) == ["git"]


def test_mistakes_in_awfs_file_are_told(tmp_path: Path) -> None:
    awf(tmp_path, "plugins: {git: {comand: x}}\n")
    found = look(None, tmp_path / "w.yaml", tmp_path)
    assert found.awf.failed
    assert {problem.code.id for problem in found.awf.problems} == {"TL102", "TL105"}
