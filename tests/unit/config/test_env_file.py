"""Files of environment variables."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.config_files import codes, found, load_text, settings_of

from trunkline.config.dialects.references import parse_env_file
from trunkline.config.problems import render


def test_every_way_to_write_a_variable() -> None:
    text = """
# a comment
PLAIN=value
  SPACED = a b   # and a comment
export EXPORTED=1
COLON: yes
DOUBLE="a # b\\n\\"c\\""
SINGLE='a\\n#b'
BACK=`x "y" 'z'`
EMPTY=
TWICE=1
TWICE=2
no variable
=nothing
URL=https://x/?a=b
"""
    assert parse_env_file(text) == {
        "PLAIN": "value",
        "SPACED": "a b",
        "EXPORTED": "1",
        "COLON": "yes",
        "DOUBLE": 'a # b\n\\"c\\"',
        "SINGLE": "a\\n#b",
        "BACK": "x \"y\" 'z'",
        "EMPTY": "",
        "TWICE": "2",
        "URL": "https://x/?a=b",
    }


def test_the_variables_of_a_file_join_those_that_are_written_out(tmp_path: Path) -> None:
    (tmp_path / "f.env").write_text("A=file\nB=${A}\n")
    loaded = load_text("mcpServers: {a: {command: x, envFile: f.env, env: {A: own}}}", folder=tmp_path)
    assert codes(loaded) == []
    assert settings_of(loaded).sources["a"].env == {"A": "own", "B": "${A}"}  # type: ignore[attr-defined]
    loaded = load_text("mcpServers: {a: {command: x, envFile: f.env}}", folder=tmp_path)
    assert settings_of(loaded).sources["a"].env == {"A": "file", "B": "${A}"}  # type: ignore[attr-defined]


def test_a_file_that_cannot_be_read_is_reported_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * 65_537)
    (tmp_path / "binary").write_bytes(b"A=\xff")
    for name in ("none", "pipe", "large", "binary", "."):
        text = f"mcpServers:\n  a: {{command: x, envFile: {name}}}\n"
        assert found(load_text(text, folder=tmp_path)) == [("TL100", 2, 28)], name
    loaded = load_text("mcpServers: {a: {command: x, envFile: none, disabled: true}}", folder=tmp_path)
    assert [problem.severity for problem in loaded.problems] == ["warning"]
    assert settings_of(loaded).sources["a"].enabled is False


def test_what_is_wrong_with_the_path_or_the_variables_is_reported(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("A=1\nTOKEN=hunter2\0\n")
    assert codes(load_text("mcpServers: {a: {command: x, envFile: 5}}")) == ["TL103"]
    assert codes(load_text("mcpServers: {a: {command: x, envFile: ''}}")) == ["TL104"]
    assert codes(load_text("mcpServers: {a: {command: x, envFile: f, env: 5}}", folder=tmp_path)) == ["TL103"]
    loaded = load_text("mcpServers: {a: {command: x, envFile: f}}", folder=tmp_path)
    assert codes(loaded) == ["TL104"]
    assert "hunter2" not in render(loaded.problems, loaded.text)
