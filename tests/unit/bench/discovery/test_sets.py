"""Reading query sets, and keeping what may be tuned on apart from what is reported."""

from __future__ import annotations

import json
from pathlib import Path

from bench.discovery.fastmcp_search import mounted_names
from bench.discovery.sets import KINDS, Kind, QuerySet, ToolText, read_set, read_sets


def write_set(folder: Path, queries: list[dict[str, object]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tool = {"id": "a", "server": "", "server_desc": "", "name": "a", "description": "does a", "schema": {}}
    (folder / "tools.jsonl").write_text(json.dumps(tool) + "\n")
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    return folder


def some_set(tmp_path: Path, *, marked: bool = False) -> QuerySet:
    queries = [
        {"id": f"q{number}", "query": "?", "gold": [["a"]], "split": "dev" if number < 10 else "test_in_domain"}
        for number in range(100)
    ]
    return read_set(Kind("some", "Some", seen=False, marked=marked), write_set(tmp_path / "some", queries))


def test_a_set_that_says_what_is_for_development_is_believed(tmp_path):
    found = some_set(tmp_path, marked=True)
    assert [query.id for query in found.chosen("dev", 100)] == [f"q{number}" for number in range(10)]


def test_else_about_half_is_for_development_and_no_request_is_in_both(tmp_path):
    found = some_set(tmp_path)
    dev, report = ({query.id for query in found.chosen(split, 100)} for split in ("dev", "report"))
    assert dev | report == {query.id for query in found.queries}
    assert not dev & report
    assert 30 < len(dev) < 70


def test_a_sample_is_the_same_every_time_and_part_of_a_larger_one(tmp_path):
    found = some_set(tmp_path)
    small, large = found.chosen("report", 10), found.chosen("report", 20)
    assert small == some_set(tmp_path).chosen("report", 10)
    assert len(small) == 10
    assert set(small) < set(large)


def test_sets_that_are_not_in_the_folder_are_left_out(tmp_path):
    write_set(tmp_path / KINDS[0].folder, [{"id": "q", "query": "?", "gold": [["a"]]}])
    folders = [found.kind.folder for found in read_sets(tmp_path)]
    assert KINDS[0].folder in folders
    assert KINDS[1].folder not in folders


def test_a_tool_is_written_as_a_server_would_list_it():
    tool = ToolText("i", "files", "", "read", "Reads a file", {})
    expected = {"name": "read", "description": "Reads a file", "inputSchema": {"type": "object"}}
    assert json.loads(tool.definition) == expected


def test_tools_of_one_name_get_names_of_their_own():
    tools = [ToolText(str(number), "", "", "get", "", {}) for number in range(12)]
    names = mounted_names([*tools, ToolText("x", "files", "", "get", "", {})])
    assert len(set(names)) == 13
    assert names[:3] == ["get", "get_2", "get_3"]
    assert names[11:] == ["get_1_2", "files_get"]
