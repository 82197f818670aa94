from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.config.sandbox import SandboxSettings
from trunkline.config.sources import ToolSelection
from trunkline.core.errors import BAD_VALUE, MISSING_KEY
from trunkline.sources import section_kinds
from trunkline.sources.builtin import BuiltinSection


def section(**keys: object) -> BuiltinSection:
    return BuiltinSection(root=Path("/srv"), **keys)  # type: ignore[arg-type]


def allowing(*names: str) -> BuiltinSection:
    return section(tools=ToolSelection(allow=names))


def load(folder: Path, text: str):
    (folder / "trunkline.yaml").write_text(text)
    return load_config(ConfigFile.named(folder / "trunkline.yaml"), environ={}, kinds=section_kinds())


def test_a_root_is_a_path_from_the_folder_of_the_file(tmp_path: Path) -> None:
    loaded = load(tmp_path, "sources:\n  local: {kind: builtin, root: sub}\n")
    assert loaded.settings is not None, loaded.problems
    found = loaded.settings.sources["local"]
    assert isinstance(found, BuiltinSection)
    assert (found.root, found.prefix, found.sandbox) == (tmp_path / "sub", "", SandboxSettings())


def test_a_prefix_can_be_given(tmp_path: Path) -> None:
    loaded = load(tmp_path, "sources:\n  local: {kind: builtin, root: ., prefix: fs}\n")
    assert loaded.settings is not None
    assert loaded.settings.sources["local"].prefix == "fs"


@pytest.mark.parametrize(
    ("keys", "code"), [("kind: builtin", MISSING_KEY), ("kind: builtin, root: ., sandbox: maybe", BAD_VALUE)]
)
def test_what_cannot_be_used_is_said(tmp_path: Path, keys: str, code: object) -> None:
    loaded = load(tmp_path, f"sources:\n  local: {{{keys}}}\n")
    assert loaded.settings is None
    assert [problem.code for problem in loaded.problems] == [code]


@pytest.mark.parametrize(
    ("allow", "runs"), [(("*",), False), (("B*",), False), (("Bas?",), False), (("Bash",), True), (("*", "Bash"), True)]
)
def test_commands_run_only_where_bash_is_named(allow: tuple[str, ...], runs: bool) -> None:
    assert allowing(*allow).runs_commands is runs


def test_bash_can_be_switched_on_by_a_program() -> None:
    given = section().with_commands()
    assert given.runs_commands
    assert given.tools.allow == ("*", "Bash")


def test_a_server_is_replaced_when_bash_comes_or_goes_and_for_no_other_choice_of_tools() -> None:
    assert not allowing("*").same_connection(allowing("*", "Bash"))
    assert not allowing("Bash", "Read").same_connection(allowing("Read"))
    assert allowing("Bash", "Read").same_connection(allowing("Bash"))
    assert allowing("Read").same_connection(allowing("Write"))
    assert not section().same_connection(section(sandbox=SandboxSettings(mode="off")))
    assert not section().same_connection(BuiltinSection(root=Path("/other")))
