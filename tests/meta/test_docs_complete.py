"""The documentation covers every command, key, route, code, tool, metric and log event."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support.docs_pages import DOCS, PAGES, ROOT, blocks
from tools.write_command_docs import commands
from tools.write_config_docs import kind_section, rows

from trunkline.cli.connect import CLIENTS
from trunkline.config.clients import ClientEntry
from trunkline.config.dialects.formats import DIALECTS
from trunkline.config.settings import GatewaySettings
from trunkline.core.errors import CODES
from trunkline.core.source import State
from trunkline.frontends.http.routes import ROUTES
from trunkline.gateway.operations import LIVE_KEYS
from trunkline.search.own_tool_definitions import TOOLS
from trunkline.sources import KINDS

SOURCES = sorted((ROOT / "src" / "trunkline").rglob("*.py"))


def text(*names: str) -> str:
    pages = [DOCS / name for name in names] if names else PAGES
    return "\n".join(path.read_text(encoding="utf-8") for path in pages)


def missing(wanted: Iterable[str], page: str) -> list[str]:
    """Those that do not stand in the page, each in backticks or as a word of an example."""
    return [name for name in wanted if not re.search(rf"(?<![\w.]){re.escape(name)}(?![\w])", page)]


def found_in_source(pattern: str) -> set[str]:
    matches = (re.findall(pattern, path.read_text(encoding="utf-8")) for path in SOURCES)
    return {name for names in matches for name in names}


def test_every_command_has_a_section_with_its_options_and_an_example() -> None:
    page = text("commands.md")
    for name in commands():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"<!-- begin: {name} -->" in section, name
        assert f"$ trunkline {name}" in section or f"| trunkline {name}" in section, f"`{name}` has no example"


def test_every_key_of_the_gateway_is_there() -> None:
    names = [name for name, _, _ in rows(GatewaySettings)]
    assert missing([f"`{name}`" for name in names], text("configuration.md")) == []
    assert len(names) > 30


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_source_has_a_page_and_every_key_of_it_is_there(kind: str) -> None:
    page = text("configuration.md", f"sources/{kind.replace('_', '-')}.md")
    assert missing([f"`{name}`" for name, _, _ in rows(kind_section(kind))], page) == []
    assert f"`{kind}`" in text("configuration.md")


def test_every_key_of_mcp_servers_is_there() -> None:
    assert missing([f"`{name}`" for name in ClientEntry.declared], text("configuration.md")) == []


def test_the_keys_that_a_reload_changes_are_named() -> None:
    (row,) = [line for line in text("operating.md").splitlines() if line.startswith("| `gateway.token`")]
    named = {name.removeprefix("gateway.") for name in re.findall(r"`([\w.]+)`", row)}
    assert named == LIVE_KEYS


def test_every_route_is_there() -> None:
    page = text("frontends/http.md")
    assert [route.path for route in ROUTES if f"`{route.method} {route.path}`" not in page] == []


def test_every_code_is_explained_and_those_that_pages_name_exist() -> None:
    assert missing(CODES, text("errors.md")) == []
    named = set(re.findall(r"\bTL\d{3}\b", text()))
    assert named - CODES.keys() == set()


def test_every_one_of_our_own_tools_is_there() -> None:
    page = text("meta-tools.md")
    assert [tool.name for tool in TOOLS if f"`{tool.name}`" not in page] == []


def test_every_state_of_a_server_is_explained() -> None:
    assert missing([f"`{state}`" for state in State.__args__], text("commands.md")) == []


def test_every_client_is_named_where_clients_are_connected() -> None:
    assert missing([f"`{name}`" for name in CLIENTS], text("getting-started.md")) == []


def test_every_dialect_of_client_files_has_an_example() -> None:
    names = {block.file for block in blocks(DOCS / "client-files.md", "json", "jsonc", "toml")}
    assert len(names) == len(DIALECTS)


def test_every_metric_is_there() -> None:
    counted = found_in_source(r'[.]_?count\("(\w+)"') | found_in_source(r'metrics\.counter\("(\w+)"')
    names = {f"trunkline_{name}_total" for name in counted}
    names |= {f"trunkline_{name}" for name in found_in_source(r'metrics\.gauge\("(\w+)"')}
    names |= found_in_source(r'"(trunkline_[a-z_]+)", "?[a-z]')
    assert missing([f"`{name}`" for name in names], text("operating.md")) == []
    assert len(names) > 15


def test_every_event_of_the_log_is_there() -> None:
    events = found_in_source(r'note\(\s*"(?:info|warning|error|debug)",\s*"(\w+)"')
    events |= found_in_source(r'LogEvent\("?\w+"?, "(\w+)"') | {"call"}
    assert missing([f"`{event}`" for event in events], text("operating.md")) == []
    assert {"health", "reloaded", "reload_refused", "operator"} <= events


def test_environment_variables_of_ours_are_there() -> None:
    own = found_in_source(r'"(TRUNKLINE_[A-Z_]+)"') - {"TRUNKLINE_CHILD"}  # which marks processes of ours
    public = [name for name in own if not name.startswith("TRUNKLINE_DEMO")]
    assert missing([f"`{name}`" for name in public], text("commands.md")) == []


def test_the_documents_for_programs_are_named_in_the_index() -> None:
    index = text("README.md")
    for path in sorted(DOCS.glob("*.json")):
        json.loads(path.read_text(encoding="utf-8"))
        assert f"({path.name})" in index


def test_something_that_is_missing_is_found() -> None:
    assert missing(["`start_wait`", "`gone`"], "`start_wait` is there, and `gone_not`") == ["`gone`"]


def test_no_page_is_empty() -> None:
    assert [path for path in PAGES if Path(path).stat().st_size < 500] == []
