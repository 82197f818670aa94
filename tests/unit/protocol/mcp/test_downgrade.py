from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.protocol.mcp.translation import downgraded_result, downgraded_tools
from trunkline.protocol.mcp.versions import LEGACY

TEXT = {"type": "text", "text": "seven"}
LINK = {"type": "resource_link", "name": "notes", "uri": "file:///notes", "annotations": {"priority": 1}}
AUDIO = {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}
IMAGE = {"type": "image", "mimeType": "image/png", "data": "AAAA"}


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


def cut_down(result: dict[str, Any], version: str) -> dict[str, Any]:
    return json.loads(bytes(downgraded_result(raw(result), version)))


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize(
    "result",
    [
        {"content": [TEXT, IMAGE], "isError": True, "x-vendor": {"a": 1}},
        {"messages": [{"role": "user", "content": TEXT}]},
        {"messages": [{"role": "user", "content": [TEXT]}], "x": '"audio" "resource_link"'},
        {"content": [{"type": "text", "text": '{"structuredContent": 7}'}]},
        {"content": "no list", "x": "audio"},
        {},
    ],
)
def test_what_every_version_knows_stays_the_same_object(version: str, result: dict[str, Any]) -> None:
    given = raw(result)
    assert downgraded_result(given, version) is given


@pytest.mark.parametrize("version", LEGACY[2:])
def test_an_object_as_structured_content_is_left_where_it_is_known(version: str) -> None:
    given = raw({"content": [LINK, AUDIO], "structuredContent": {"n": [1]}})
    assert downgraded_result(given, version) is given
    view = memoryview(given)
    assert downgraded_result(view, version, given) is view


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("structure", [[1, 2], "text", 7, True, None])
def test_other_structured_content_is_dropped_and_its_text_stays(version: str, structure: Any) -> None:
    with_copy = {"content": [TEXT], "structuredContent": structure, "isError": False}
    assert cut_down(with_copy, version) == {"content": [TEXT], "isError": False}
    without = cut_down({"content": [IMAGE], "structuredContent": structure}, version)
    assert without["content"][0] == IMAGE
    assert json.loads(without["content"][1]["text"]) == structure
    alone = cut_down({"structuredContent": structure}, version)
    assert json.loads(alone["content"][0]["text"]) == structure


@pytest.mark.parametrize("version", LEGACY[:2])
def test_versions_before_structured_content_get_its_text(version: str) -> None:
    assert cut_down({"content": [TEXT], "structuredContent": {"n": 7}}, version) == {"content": [TEXT]}
    assert json.loads(cut_down({"content": [], "structuredContent": {"n": 7}}, version)["content"][0]["text"]) == {
        "n": 7
    }


@pytest.mark.parametrize("version", LEGACY[:2])
def test_versions_before_links_get_their_text(version: str) -> None:
    shown = {"type": "text", "text": "notes: file:///notes", "annotations": {"priority": 1}}
    assert cut_down({"content": [TEXT, LINK]}, version) == {"content": [TEXT, shown]}
    prompt = {"description": "d", "messages": [{"role": "user", "content": LINK}, {"role": "user", "content": TEXT}]}
    assert cut_down(prompt, version) == {
        "description": "d",
        "messages": [{"role": "user", "content": shown}, {"role": "user", "content": TEXT}],
    }
    nameless = {"type": "resource_link", "uri": "a:b", "name": 7}
    assert cut_down({"content": [nameless]}, version)["content"] == [{"type": "text", "text": "a:b"}]


def test_audio_is_a_note_for_the_first_version_only() -> None:
    shown = {"type": "text", "text": "[audio audio/wav]"}
    assert cut_down({"content": [AUDIO]}, LEGACY[0]) == {"content": [shown]}
    assert cut_down({"messages": [{"role": "user", "content": AUDIO}]}, LEGACY[0])["messages"][0]["content"] == shown
    for version in LEGACY[1:]:
        given = raw({"content": [AUDIO]})
        assert downgraded_result(given, version) is given


def test_big_numbers_and_odd_spellings_beside_a_change_survive() -> None:
    given = (
        b'{"content":[{"type":"text","text":"\\u00e9"}],"big":123456789012345678901234567890,"structuredContent":[]}'
    )
    expected = b'{"content":[{"type":"text","text":"\\u00e9"}],"big":123456789012345678901234567890}'
    assert downgraded_result(given, LEGACY[3]) == expected


@pytest.mark.parametrize("version", LEGACY)
def test_deep_nesting_is_passed_on_and_never_a_crash(version: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    for given in (
        b'{"structuredContent":%b}' % deep,
        b'{"content":[{"type":"audio","x":%b}]}' % deep,
        b'{"content":%b,"structuredContent":7,"x":"resource_link"}' % deep,
    ):
        assert downgraded_result(given, version) is given


def tools(*schemas: Any) -> bytes:
    return raw([{"name": f"t{n}", "inputSchema": {}, "outputSchema": schema} for n, schema in enumerate(schemas)])


@pytest.mark.parametrize("version", LEGACY)
def test_output_schemas_that_are_no_objects_are_left_out(version: str) -> None:
    listing = tools({"type": "object"}, {"type": "array"}, {"$ref": "#/x"}, True, {"type": ["object", "null"]})
    shown = json.loads(downgraded_tools(listing, version))
    assert [tool["name"] for tool in shown] == ["t0", "t1", "t2", "t3", "t4"]
    having = [tool["name"] for tool in shown if "outputSchema" in tool]
    assert having == (["t0"] if version in LEGACY[2:] else [])
    assert all(tool["inputSchema"] == {} for tool in shown)


@pytest.mark.parametrize("version", LEGACY)
def test_tools_without_such_schemas_stay_the_same_object(version: str) -> None:
    for listing in (raw([{"name": "t"}]), raw([{"name": "t", "inputSchema": {"x": "outputSchema"}}]), b"[]"):
        assert downgraded_tools(listing, version) is listing
    listing = tools({"type": "object"})
    assert (downgraded_tools(listing, version) is listing) == (version in LEGACY[2:])
