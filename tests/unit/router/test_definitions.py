from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.support.fault.tools import FANCY

from trunkline.core.tool import ItemDefinition, Snapshot, ToolDefinition
from trunkline.router.definitions import DefinitionStore, fingerprint
from trunkline.sources.sections import McpHttpSection, McpStdioSection

SNAPSHOT = Snapshot(
    tools=(
        ToolDefinition("s", "fancy", FANCY),
        ToolDefinition("s", 'we"ird é\n', b'{"name":"we\\"ird \\u00e9\\n","x":1.10}'),
    ),
    prompts=(ItemDefinition("s", "greet", b'{"name":"greet","x":1.10}'),),
    resources=(
        ItemDefinition("s", "test://a b", b'{"uri":"test://a b"}'),
        ItemDefinition("s", "\u00e9", b'{"uri":"\\u00e9"}'),
    ),
    templates=(ItemDefinition("s", "test://{x}", b'{"uriTemplate":"test://{x}"}'),),
    instructions="be nice",
    server_info=b'{"name":"x","version":"1","extra":123456789012345678901234567890}',
    capabilities=b'{"tools":{"listChanged":true}}',
    protocol_version="2025-06-18",
)


def test_what_was_saved_comes_back_byte_for_byte(tmp_path: Path) -> None:
    definitions = DefinitionStore(tmp_path / "deep" / "folder")
    assert definitions.save("s", "key", SNAPSHOT)
    assert definitions.load("s", "key") == SNAPSHOT


def test_tools_come_back_under_the_name_the_source_has_now(tmp_path: Path) -> None:
    definitions = DefinitionStore(tmp_path)
    definitions.save("s", "key", SNAPSHOT)
    loaded = definitions.load("renamed", "key")
    assert loaded is not None
    assert {tool.source for tool in loaded.tools} == {"renamed"}


def test_a_later_snapshot_replaces_the_earlier_and_leaves_no_scratch_file(tmp_path: Path) -> None:
    definitions = DefinitionStore(tmp_path)
    definitions.save("s", "key", SNAPSHOT)
    later = replace(SNAPSHOT, tools=())
    assert definitions.save("s", "key", later)
    assert definitions.load("s", "key") == later
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".last"]


@pytest.mark.law
def test_only_the_user_may_read_what_is_kept(tmp_path: Path) -> None:
    definitions = DefinitionStore(tmp_path / "d")
    definitions.save("s", "key", SNAPSHOT)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "d" / "key.json").stat().st_mode) == 0o600


def test_nothing_is_known_of_a_key_that_was_never_saved(tmp_path: Path) -> None:
    assert DefinitionStore(tmp_path).load("s", "key") is None
    assert DefinitionStore(tmp_path / "missing").load("s", "key") is None


GOOD = {
    "format": 2,
    "tools": [["a", {"name": "a"}]],
    "prompts": [],
    "resources": [["r://x", {"uri": "r://x"}]],
    "templates": [],
    "instructions": "",
    "server_info": {},
    "capabilities": {},
    "protocol_version": "",
}


def test_the_sample_file_of_the_next_test_is_good_before_it_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_bytes(msgspec.json.encode(GOOD))
    assert DefinitionStore(tmp_path).load("s", "key") is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 5000,
        msgspec.json.encode({**GOOD, "format": 1}),
        msgspec.json.encode({**GOOD, "format": 1, "tools": [{"name": "a"}], "names": ["a"]}),
        msgspec.json.encode({**GOOD, "tools": [["a", "no object"]]}),
        msgspec.json.encode({**GOOD, "resources": [["a"]]}),
        msgspec.json.encode({**GOOD, "prompts": [["a", []]]}),
        msgspec.json.encode({**GOOD, "tools": None}),
        msgspec.json.encode(GOOD).replace(b'{"name":"a"}', b'{"name":"a","name":"b"}'),
    ],
)
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key.json").write_bytes(content)
    assert DefinitionStore(tmp_path).load("s", "key") is None


def test_a_folder_that_cannot_be_written_is_reported_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert DefinitionStore(tmp_path / "file").save("s", "key", SNAPSHOT) is False
    assert DefinitionStore(tmp_path / "file").load("s", "key") is None


# Fingerprints --------------------------------------------------------------------------------------------------------

STDIO = McpStdioSection(command="run", args=("--a", "1"), env={"K": "v", "L": "w"}, prefix="s")
HTTP = McpHttpSection(url="http://localhost/mcp", headers={"X": "secret"}, prefix="s")


def test_the_same_configuration_has_the_same_fingerprint() -> None:
    again = McpStdioSection(command="run", args=("--a", "1"), env={"L": "w", "K": "v"}, prefix="s")
    assert fingerprint("s", STDIO) == fingerprint("s", again)


@pytest.mark.parametrize(
    "other",
    [
        replace(STDIO, command="walk"),
        replace(STDIO, args=("--a", "2")),
        replace(STDIO, args=("--a 1",)),
        replace(STDIO, args=()),
        replace(STDIO, env={"K": "v", "L": "x"}),
        replace(STDIO, env={"K": "v"}),
        replace(STDIO, cwd=Path("/elsewhere")),
        HTTP,
    ],
)
def test_any_change_of_the_command_gives_another_fingerprint(other: object) -> None:
    assert fingerprint("s", other) != fingerprint("s", STDIO)


def test_secret_parts_of_an_http_server_count_as_well() -> None:
    assert fingerprint("s", replace(HTTP, headers={"X": "other"})) != fingerprint("s", HTTP)
    assert fingerprint("s", replace(HTTP, url="http://localhost/other")) != fingerprint("s", HTTP)
    assert fingerprint("t", HTTP) != fingerprint("s", HTTP)


@pytest.mark.law
def test_a_fingerprint_tells_nothing_of_what_went_into_it() -> None:
    assert "secret" not in fingerprint("s", HTTP)
    assert len(fingerprint("s", HTTP)) == 32


def test_what_nobody_used_for_longest_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.router.definitions._MOST_FILES", 10)
    definitions = DefinitionStore(tmp_path)
    for number in range(10):
        definitions.save("s", f"key{number}", SNAPSHOT)
        os.utime(tmp_path / f"key{number}.json", (number, number))
    assert definitions.load("s", "key0") is not None
    definitions.save("s", "key5", SNAPSHOT)
    assert len(list(tmp_path.glob("*.json"))) == 10, "one that is there already takes no room"
    definitions.save("s", "new", SNAPSHOT)
    left = {path.stem for path in tmp_path.glob("*.json")}
    assert left == {"key0", "key3", "key4", "key5", "key6", "key7", "key8", "key9", "new"}
    for number in range(20):
        definitions.save(f"s{number}", "new", SNAPSHOT)
    assert len(list(tmp_path.glob("*.last"))) <= 10
