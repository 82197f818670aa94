"""Adding and removing in JSON, and in YAML that is written like it."""

from __future__ import annotations

import pytest
from tests.support.editing import REMOTE, SERVER, added, removed

from trunkline.config.edit.new_server import NewServer

TWO_SPACES = '{\n  "mcpServers": {\n    "a": {\n      "command": "cat"\n    }\n  }\n}\n'
TABS = TWO_SPACES.replace("  ", "\t")
FOUR_SPACES = TWO_SPACES.replace("  ", "    ")
ONE_LINE = '{"mcpServers": {"a": {"command": "cat"}}}'
COMPACT = '{"mcpServers":{"a":{"command":"cat"}}}\n'
SHORT_ENTRIES = '{\n  "mcpServers": {\n    "a": {"command": "cat"}\n  }\n}'
WINDOWS = TWO_SPACES.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("before", "new"),
    [
        (TWO_SPACES, ',\n    "new": {\n      "command": "npx",\n      "args": ["-y", "@a/b"]\n    }'),
        (TABS, ',\n\t\t"new": {\n\t\t\t"command": "npx",\n\t\t\t"args": ["-y", "@a/b"]\n\t\t}'),
        (
            FOUR_SPACES,
            ',\n        "new": {\n            "command": "npx",\n            "args": ["-y", "@a/b"]\n        }',
        ),
        (ONE_LINE, ', "new": {"command": "npx", "args": ["-y", "@a/b"]}'),
        (COMPACT, ',"new":{"command":"npx","args":["-y","@a/b"]}'),
        (SHORT_ENTRIES, ',\n    "new": {"command": "npx", "args": ["-y", "@a/b"]}'),
        (WINDOWS, ',\r\n    "new": {\r\n      "command": "npx",\r\n      "args": ["-y", "@a/b"]\r\n    }'),
    ],
)
def test_a_new_server_is_written_like_its_neighbour(before: str, new: str) -> None:
    after = added(before, name="trunkline.json")
    end = before.index("}", before.index("cat")) + 1
    assert after == before[:end] + new + before[end:]
    assert removed(after, "new", name="trunkline.json") == before
    assert removed(after, "a", name="trunkline.json").count("{") == before.count("{")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "mcpServers": {\n    "web": {\n      "url": "https://x.example/mcp"\n    }\n  }\n}\n'),
        ("{}\n", '{\n  "mcpServers": {\n    "web": {\n      "url": "https://x.example/mcp"\n    }\n  }\n}\n'),
        ('{"sources":{}}', '{"sources":{},"mcpServers":{"web":{"url":"https://x.example/mcp"}}}'),
        (
            '{\n\t"sources": {}\n}',
            '{\n\t"sources": {},\n\t"mcpServers": {\n\t\t"web": {\n\t\t\t"url": "https://x.example/mcp"\n\t\t}\n\t}\n}',
        ),
        ('{"mcpServers": {}}', '{"mcpServers": {"web": {"url": "https://x.example/mcp"}}}'),
        ('{"mcpServers": null}', '{"mcpServers": {"web": {"url": "https://x.example/mcp"}}}'),
        (
            '{\n  "mcpServers": {}\n}\n',
            '{\n  "mcpServers": {\n    "web": {\n      "url": "https://x.example/mcp"\n    }\n  }\n}\n',
        ),
    ],
)
def test_the_first_server_of_a_file(before: str, after: str) -> None:
    assert added(before, REMOTE, name="trunkline.json") == after


THREE = """\
{
  // all of them
  "servers": {
    "a": {"command": "cat"}, // one
    /* two, and more */
    "b": {"command": "cat"}, // two
    "c": {"command": "cat"} // three, with a comma
    // no more
  }
}
"""


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("a", '    "a": {"command": "cat"}, // one\n'),
        ("b", '    "b": {"command": "cat"}, // two\n'),
    ],
)
def test_comments_of_others_stay(name: str, gone: str) -> None:
    assert removed(THREE, name, name="mcp.json") == THREE.replace(gone, "")


def test_the_comma_before_the_last_one_goes_with_it() -> None:
    without = '    "c": {"command": "cat"} // three, with a comma\n'
    assert removed(THREE, "c", name="mcp.json") == THREE.replace(without, "").replace("}, // two", "} // two")


def test_a_new_one_goes_behind_the_comments_of_the_last_one() -> None:
    after = added(THREE, NewServer(name="new", command=("cat",)), name="mcp.json")
    assert after == THREE.replace("} // three", "}, // three").replace(
        "// no more\n", '// no more\n    "new": {"type": "stdio", "command": "cat"}\n'
    )
    assert removed(after, "new", name="mcp.json") == THREE


@pytest.mark.parametrize(
    "text", ['{"servers": {"a": {"command": "cat"},}}', '{"servers": {"a": {"command": "cat"} , }}']
)
def test_a_final_comma_stays_a_final_comma(text: str) -> None:
    after = added(text, name="mcp.json")
    assert after.rstrip("} ").endswith(",")
    assert removed(after, "new", name="mcp.json") == text
    assert added(removed(text, "a", name="mcp.json"), name="mcp.json").count('"new"') == 1


@pytest.mark.parametrize("comma", ["", ","])
def test_a_comment_about_the_server_before_stays_with_it(comma: str) -> None:
    servers = '{"mcpServers": {\n  "a": {"command": "cat"}'
    before = servers + ', // one, two\n  "b": {"command": "cat"}' + comma + "}}"
    assert removed(before, "b", name="mcp.json") == servers + comma + " // one, two\n  }}"


def test_comments_in_a_group_that_is_emptied_stay() -> None:
    text = '{"mcpServers": {\n  // mine\n  "a": {"command": "cat"},\n}}'
    assert removed(text, "a", name="mcp.json") == '{"mcpServers": {\n  // mine\n  \n}}'


def test_yaml_in_braces() -> None:
    text = "mcpServers: {\n  a: {command: cat},  # one, two\n  b: {command: cat}   # three\n}\n"
    after = added(text)
    assert after == text.replace("cat}   # three", 'cat},   # three\n  new: {command: npx, args: [-y, "@a/b"]}')
    assert removed(after, "new") == text
    assert removed(text, "a") == "mcpServers: {\n  b: {command: cat}   # three\n}\n"


def test_a_replaced_server_stays_where_it_is() -> None:
    server = NewServer(name="a", command=("tac",))
    for text in (TWO_SPACES, TABS, ONE_LINE, COMPACT, SHORT_ENTRIES):
        assert added(text, server, name="trunkline.json", force=True) == text.replace("cat", "tac")


def test_text_that_json_must_escape_is_escaped() -> None:
    server = NewServer(name="x", command=("cat", 'a "b"', "c\\d", "é\u2028\x7f\t"))
    assert '["a \\"b\\"", "c\\\\d", "é\\u2028\\u007f\\t"]' in added("{}", server, name="trunkline.json")


def test_what_was_added_can_be_taken_back() -> None:
    assert removed(added(THREE, SERVER, name="mcp.json"), "new", name="mcp.json") == THREE
