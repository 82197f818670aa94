"""Adding and removing in YAML that is written by indentation."""

from __future__ import annotations

import pytest
from tests.support.editing import REMOTE, SERVER, added, config, removed

from trunkline.config.edit.new_server import NewServer
from trunkline.config.edit.servers import add_server

NEW = '  new:\n    command: npx\n    args: [-y, "@a/b"]\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"mcpServers:\n{NEW}"),
        ("# mine\n", f"# mine\nmcpServers:\n{NEW}"),
        ("# mine", f"# mine\nmcpServers:\n{NEW}"),
        ("---\n", f"---\nmcpServers:\n{NEW}"),
        ("mcpServers:\n", f"mcpServers:\n{NEW}"),
        ("mcpServers:", f"mcpServers:\n{NEW}".rstrip("\n")),
        ("mcpServers: {}\n", f"mcpServers:\n{NEW}"),
        ("mcpServers: { }  # none\n", f"mcpServers:  # none\n{NEW}"),
        ("mcpServers: null\n", f"mcpServers:\n{NEW}"),
        ("mcpServers:  # none\n  # a: {}\n\nsources:\n", f"mcpServers:  # none\n  # a: {{}}\n{NEW}\nsources:\n"),
        ("gateway: {max_name: 20}\n", f"gateway: {{max_name: 20}}\nmcpServers:\n{NEW}"),
        ("sources:\n\ngateway:\n", f"sources:\n\ngateway:\n\nmcpServers:\n{NEW}"),
    ],
)
def test_the_first_server_of_a_file(before: str, after: str) -> None:
    assert added(before) == after


def test_a_new_server_stands_behind_the_others_and_their_comments() -> None:
    servers = "mcpServers:\n  a:\n    command: cat\n    # args: []\n  # b:\n  #   command: tac\n"
    text = f"{servers}# all about sources\nsources:\n"
    assert added(text) == f"{servers}{NEW}# all about sources\nsources:\n"


def test_the_file_s_own_indentation_is_used() -> None:
    text = "gateway:\n    max_name: 20\nmcpServers:\n    a:\n        command: cat\n"
    assert added(text) == text + '    new:\n        command: npx\n        args: [-y, "@a/b"]\n'


def test_servers_in_braces_get_a_neighbour_in_braces() -> None:
    text = "mcpServers:\n  a: {command: cat}\n"
    assert added(text) == text + '  new: {command: npx, args: [-y, "@a/b"]}\n'
    assert added(text, REMOTE) == text + '  web: {url: "https://x.example/mcp"}\n'


def test_servers_that_stand_apart_keep_standing_apart() -> None:
    text = "mcpServers:\n  a:\n    command: cat\n\n  b:\n    command: tac\n\nsources:\n"
    assert added(text) == text.replace("\nsources", f"\n{NEW}\nsources")


def test_windows_line_breaks_stay() -> None:
    text = "mcpServers:\r\n  a:\r\n    command: cat\r\n"
    assert added(text) == text + NEW.replace("\n", "\r\n")


def test_a_file_that_does_not_end_its_last_line_still_does_not() -> None:
    assert added("mcpServers:\n  a:\n    command: cat") == f"mcpServers:\n  a:\n    command: cat\n{NEW}".rstrip("\n")


def test_block_texts_and_long_values_are_not_cut() -> None:
    text = "mcpServers:\n  a:\n    command: cat\n    description: |\n      one\n\n      two\n\nsources:\n"
    assert added(text) == text.replace("two\n", f"two\n{NEW}")
    assert removed(text, "a") == "mcpServers:\n\nsources:\n"


def test_every_option_of_a_server_is_written() -> None:
    server = NewServer(
        name="all",
        command=("/opt/a b", "8080", "no"),
        env={"TOKEN": "${TOKEN}", "A": "x: y"},
        cwd="/srv",
        enabled=False,
    )
    assert add_server(config("", environ={"TOKEN": "t"}), server).text == (
        "mcpServers:\n"
        "  all:\n"
        '    command: "/opt/a b"\n'
        '    args: ["8080", "no"]\n'
        "    env:\n"
        '      TOKEN: "${TOKEN}"\n'
        '      A: "x: y"\n'
        "    cwd: /srv\n"
        "    disabled: true\n"
    )
    remote = NewServer(name="r", url="http://x/sse", headers={"X-A": "b"}, transport="sse")
    assert added("", remote) == (
        "mcpServers:\n  r:\n    type: sse\n    url: http://x/sse\n    headers:\n      X-A: b\n"
    )


FIVE = """\
mcpServers:
  # the first
  a:
    command: cat   # why cat

  b: {command: cat}
  c:  # mostly
    command: cat
    # args: [x]
  # the last
  d:
    command: cat
sources:
  e: {kind: mcp_stdio, command: cat}
"""


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("a", "  a:\n    command: cat   # why cat\n\n"),
        ("b", "  b: {command: cat}\n"),
        ("c", "  c:  # mostly\n    command: cat\n    # args: [x]\n"),
        ("d", "  d:\n    command: cat\n"),
        ("e", "  e: {kind: mcp_stdio, command: cat}\n"),
    ],
)
def test_a_removed_server_takes_its_own_lines_and_no_others(name: str, gone: str) -> None:
    assert removed(FIVE, name) == FIVE.replace(gone, "")


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_a_replaced_server_stays_where_it_is(name: str) -> None:
    server = NewServer(name=name, command=("tac",))
    text = added(FIVE, server, force=True)
    assert [line.strip() for line in text.splitlines() if "tac" in line] in (["command: tac"], ["b: {command: tac}"])
    assert removed(text, name) == removed(FIVE, name)


def test_a_replaced_source_stays_a_source() -> None:
    text = added(FIVE, NewServer(name="e", url="http://x/mcp", transport="sse", enabled=False), force=True)
    assert text == FIVE.replace(
        "{kind: mcp_stdio, command: cat}", '{kind: mcp_http, url: "http://x/mcp", transport: sse, enabled: false}'
    )


def test_the_last_server_leaves_an_empty_group() -> None:
    assert removed("mcpServers:\n  # mine\n  a:\n    command: cat\n", "a") == "mcpServers:\n  # mine\n"


def test_a_name_that_yaml_would_misread_is_quoted() -> None:
    for name in ("on", "null", "12", "-"):
        text = added("", NewServer(name=name, command=("cat",)))
        assert f'  "{name}":\n' in text
        assert removed(text, name) == "mcpServers:\n"


def test_what_was_added_can_be_taken_back() -> None:
    assert removed(added(FIVE, SERVER), "new") == FIVE
