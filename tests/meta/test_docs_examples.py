"""The files shown in the documentation are valid for the real loader, or at least for a parser."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml
from tests.support.docs_pages import Block, all_blocks, title_of

from trunkline.agents.workflow.load import load_workflow_text
from trunkline.config.load import LoadedConfig, load_text
from trunkline.sources import section_kinds

_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Z_][A-Z0-9_]*)|\{env:([A-Z_][A-Z0-9_]*)\}|\$([A-Z_][A-Z0-9_]*)")
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def load(block: Block, name: str) -> LoadedConfig:
    """Every variable is set, each to a value of its own."""
    names = {name for match in _REFERENCE.finditer(block.text) for name in match.groups() if name}
    names |= set(re.findall(r'(?:env_var|env_vars|env_http_headers) = \W*"([A-Z_]+)"', block.text))
    names |= {f"INPUT_{name.upper().replace('-', '_')}" for name in re.findall(r"\$\{input:([\w-]+)\}", block.text)}
    environ = {"HOME": "/home/me", **{name: f"value-of-{name.lower()}" for name in names}}
    return load_text(block.text, Path("/home/me/work") / name, environ=environ, kinds=section_kinds())


def problems(loaded: LoadedConfig) -> list[str]:
    return [str(problem) for problem in loaded.problems]


OURS = [(path, block) for path, block in all_blocks("yaml") if not block.other]
OTHERS = [(path, block) for path, block in all_blocks("yaml") if block.other]
WORKFLOWS = [(path, block) for path, block in OTHERS if "states:" in block.text]
CLIENTS = [(path, block) for path, block in all_blocks("json", "jsonc", "toml") if block.file]


def place(path: Path, block: Block) -> str:
    return f"{title_of(path)}:{block.line}"


def test_a_configuration_is_taken_without_a_word() -> None:
    for path, block in OURS:
        loaded = load(block, block.file or "trunkline.yaml")
        assert problems(loaded) == [], place(path, block)
        assert loaded.settings is not None, place(path, block)
    assert len(OURS) > 20


def test_the_file_of_a_client_is_taken_and_has_servers() -> None:
    for path, block in CLIENTS:
        loaded = load(block, block.file)
        assert problems(loaded) == [], place(path, block)
        assert loaded.settings is not None and loaded.settings.sources, place(path, block)
    assert CLIENTS


def test_the_file_of_another_program_is_yaml() -> None:
    for path, block in OTHERS:
        assert yaml.safe_load(block.text), place(path, block)


def test_a_workflow_is_taken_without_a_word_unless_it_is_meant_to_be_broken() -> None:
    for path, block in WORKFLOWS:
        loaded = load_workflow_text(block.text, Path("/home/me/work/w.yaml"), environ={"OPENAI_API_KEY": "k"})
        assert bool(loaded.problems) == block.file.startswith("broken"), place(path, block)
    assert len(WORKFLOWS) > 2


def test_json_is_json() -> None:
    wrong = []
    for path, block in all_blocks("json", "jsonc"):
        try:
            json.loads(_COMMENT.sub("", block.text) if block.language == "jsonc" else block.text)
        except ValueError as error:
            wrong.append(f"{place(path, block)}: {error}")
    assert wrong == []


def test_toml_is_toml() -> None:
    wrong = []
    for path, block in all_blocks("toml"):
        try:
            tomllib.loads(block.text)
        except ValueError as error:
            wrong.append(f"{place(path, block)}: {error}")
    assert wrong == []


def test_blocks_say_what_they_are() -> None:
    known = {"console", "python", "yaml", "json", "jsonc", "toml", "text", "sh", "ini", "dockerfile"}
    unknown = [
        (title_of(path), block.line, block.language) for path, block in all_blocks("") if block.language not in known
    ]
    assert unknown == []
