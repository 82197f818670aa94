from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.support.config_files import codes, settings_of

from trunkline.config.files import ConfigFile
from trunkline.config.load import LoadedConfig, load_config
from trunkline.sources import section_kinds
from trunkline.sources.service import DeclaredTool, ServiceSection


def load_text(text: str) -> LoadedConfig:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trunkline.yaml")
        path.write_text(text)
        return load_config(ConfigFile.named(path), environ={"SECRET": "hunter22"}, kinds=section_kinds())


def service(text: str) -> str:
    return f"sources: {{a: {{kind: service, {text}}}}}"


def read(text: str) -> ServiceSection:
    section = settings_of(load_text(service(text))).sources["a"]
    assert isinstance(section, ServiceSection)
    return section


def test_an_endpoint_is_all_that_is_needed() -> None:
    section = read("endpoint: 'http://127.0.0.1:8090'")
    assert (section.timeout, section.declare, section.tokens) == (30, (), {})
    assert section.guard.path_traversal is True


def test_the_guard_is_on_unless_it_is_switched_off_by_name() -> None:
    assert read("endpoint: 'http://h', guard: {}").guard.path_traversal is True
    assert read("endpoint: 'http://h', guard: {path_traversal: false}").guard.path_traversal is False


def test_a_declared_tool_is_what_mcp_calls_a_tool() -> None:
    (tool,) = read(
        "endpoint: 'http://h', declare: [{name: invoice, description: Bills, inputSchema: {type: object, x: [1]}}]"
    ).declare
    assert tool == DeclaredTool(name="invoice", description="Bills", inputSchema={"type": "object", "x": [1]})


@pytest.mark.law
def test_tokens_are_secrets() -> None:
    section = read("endpoint: 'http://h', tokens: {'*': '${SECRET}'}")
    assert "tokens" not in repr(section)
    assert codes(load_text(service("endpoint: 'http://h', tokens: {'*': abcdefgh}"))) == ["TL121"]


def test_a_token_that_is_not_set_is_none() -> None:
    assert read("endpoint: 'http://h', tokens: {'*': '${NO_SUCH_TOKEN:-}'}").tokens == {"*": ""}


def test_what_cannot_be_an_endpoint_a_token_or_a_tool_is_refused() -> None:
    for text in (
        "endpoint: 'ftp://h'",
        "endpoint: 'http://h?x=1'",
        "endpoint: 'http://u:p@h'",
        "endpoint: h",
        "endpoint: 'http://h', sessions: shared",
        "endpoint: 'http://h', tokens: {'*': 'two words'}",
        "endpoint: 'http://h', declare: [{name: ''}]",
    ):
        assert "TL104" in codes(load_text(service(text))), text
    assert codes(load_text(service("timeout: 1"))) == ["TL105"]
    assert codes(load_text(service("endpoint: 'http://h', declare: [{name: a, inputschema: {}}]"))) == ["TL102"]
