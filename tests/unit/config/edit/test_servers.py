"""Which edits are made, which are refused, and their messages."""

from __future__ import annotations

import pytest
from tests.support.editing import REMOTE, SERVER, added, config, removed

from trunkline.config.edit.new_server import NewServer
from trunkline.config.edit.servers import add_server, remove_server, server_names
from trunkline.core.errors import GatewayError, Problem

TEXT = """\
mcpServers:
  files: {command: cat}
  My Server: {command: cat}
sources:
  own: {kind: mcp_stdio, command: cat}
"""


def problem_of_adding(text: str, server: NewServer = SERVER, *, name: str = "trunkline.yaml") -> Problem:
    with pytest.raises(GatewayError) as caught:
        added(text, server, name=name)
    return caught.value.problem


def problem_of_removing(text: str, server: str) -> Problem:
    with pytest.raises(GatewayError) as caught:
        removed(text, server)
    return caught.value.problem


# add -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["files", "own", "My_Server"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    problem = problem_of_adding(TEXT, NewServer(name=name, command=("cat",)))
    assert (problem.code.id, problem.code.exit) == ("TL106", 2)
    assert "--force" in problem.hint
    assert problem.where == "/nowhere/trunkline.yaml"


def test_the_place_of_the_one_that_is_there_is_told() -> None:
    assert "on line 5" in problem_of_adding(TEXT, NewServer(name="own", command=("cat",))).message


@pytest.mark.parametrize("name", ["a b", "a.b", "", "é", "trunkline"])
def test_names_that_cannot_be_a_source_s_are_refused(name: str) -> None:
    assert problem_of_adding("", NewServer(name=name, command=("cat",))).code.id == "TL111"


@pytest.mark.parametrize("text", ["\x00", "\udc80"])
def test_text_that_no_file_can_hold_is_refused(text: str) -> None:
    assert problem_of_adding("", NewServer(name="x", command=("cat", text))).code.id == "TL104"


@pytest.mark.parametrize(
    ("server", "code"),
    [
        (NewServer(name="x", url="http://"), "TL104"),
        (NewServer(name="x", url="http://u:p@x/"), "TL104"),
        (NewServer(name="x", url="http://x/", headers={"Host": "y"}), "TL104"),
        (NewServer(name="x", command=("cat", "${oops")), "TL104"),
        (NewServer(name="x", command=("two words",)), "TL104"),
        (NewServer(name="x", command=("",)), "TL105"),
    ],
)
def test_a_server_with_errors_is_not_written(server: NewServer, code: str) -> None:
    problem = problem_of_adding(TEXT, server)
    assert problem.code.id == code
    assert not problem.where, "it stands in no file"


@pytest.mark.parametrize(
    "server",
    [
        NewServer(name="me", command=("trunkline", "stdio")),
        NewServer(name="me", command=("uvx", "trunkline", "up")),
        NewServer(name="me", url="http://localhost:4747/mcp"),
    ],
)
def test_the_gateway_itself_is_not_added(server: NewServer) -> None:
    problem = problem_of_adding(TEXT, server)
    assert problem.code.id == "TL115"
    assert "itself" in problem.message


def test_a_file_that_cannot_be_read_is_not_edited() -> None:
    problem = problem_of_adding("mcpServers: [\n")
    assert problem.code.id == "TL101"
    assert problem.where.startswith("/nowhere/trunkline.yaml:")


@pytest.mark.parametrize(
    "text",
    [
        "mcpServers: [a]\n",
        "mcpServers: text\n",
        "- a\n",
        "text\n",
        "gateway: &x {}\nmcpServers: *x\n",
        "{gateway: {}, mcpServers: }\n",
    ],
)
def test_what_cannot_be_edited_safely_is_refused_with_what_to_write(text: str) -> None:
    problem = problem_of_adding(text)
    assert (problem.code.id, problem.code.exit) == ("TL115", 2)
    assert "  new:\n" in problem.hint
    assert "    command: npx\n" in problem.hint


def test_what_to_write_is_shown_in_the_format_of_the_file() -> None:
    assert '"new": {' in problem_of_adding('{"mcpServers": []}', name="trunkline.json").hint
    assert "[mcp_servers.new]\n" in problem_of_adding("mcp_servers = {}\n", name="config.toml").hint


def test_a_variable_that_is_not_set_here_is_no_obstacle() -> None:
    server = NewServer(name="x", command=("cat",), env={"TOKEN": "${TOKEN}"})
    edited = add_server(config(""), server)
    assert [problem.code.id for problem in edited.problems] == ["TL110"]
    assert edited.settings is not None
    assert add_server(config("", environ={"TOKEN": "t"}), server).problems == ()


@pytest.mark.law
def test_a_secret_that_is_written_out_is_warned_about_and_hidden() -> None:
    server = NewServer(name="x", command=("cat",), env={"API_TOKEN": "hunter2hunter2"})
    edited = add_server(config(TEXT), server)
    assert [(problem.code.id, problem.severity) for problem in edited.problems] == [("TL121", "warning")]
    assert "hunter2" in edited.text
    assert "hunter2" not in edited.shown
    assert edited.settings is not None


def test_only_the_problems_of_the_new_server_are_told() -> None:
    text = "mcpServers:\n  a: {command: cat, env: {TOKEN: hunter2hunter2}}\n"
    assert [p.code.id for p in config(text).load().problems] == ["TL121"]
    assert add_server(config(text), SERVER).problems == ()


def test_a_file_with_other_errors_can_be_edited() -> None:
    text = "gatewy: {}\nmcpServers:\n  a: {command: cat, timout: 5}\n"
    edited = add_server(config(text), SERVER)
    assert edited.settings is None
    assert edited.problems == ()
    assert removed(edited.text, "new") == text


def test_the_edit_says_what_it_did_and_where() -> None:
    edited = add_server(config(TEXT), SERVER)
    assert (edited.action, edited.place, edited.line) == ("added", "mcpServers", 4)
    edited = add_server(config(TEXT), NewServer(name="own", command=("tac",)), force=True)
    assert (edited.action, edited.place, edited.line) == ("replaced", "sources", 5)
    edited = remove_server(config(TEXT), "files")
    assert (edited.action, edited.place, edited.line) == ("removed", "mcpServers", 2)
    assert edited.settings is not None
    assert list(edited.settings.sources) == ["My_Server", "own"]


def test_force_adds_what_is_not_there() -> None:
    assert added(TEXT, SERVER, force=True) == added(TEXT, SERVER)


# remove ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["My Server", "My_Server"])
def test_a_server_is_found_by_the_name_in_the_file_and_by_the_one_it_goes_by(name: str) -> None:
    assert removed(TEXT, name) == TEXT.replace("  My Server: {command: cat}\n", "")


def test_near_names_are_told() -> None:
    problem = problem_of_removing(TEXT, "file")
    assert (problem.code.id, problem.code.exit) == ("TL301", 1)
    assert problem.hint == "did you mean `files`?"
    assert problem_of_removing(TEXT, "xyz").hint == "servers: `files`, `My Server`, `own`"
    assert problem_of_removing("", "xyz").hint == "the file has no servers"


def test_the_cause_of_an_error_can_be_removed() -> None:
    text = "mcpServers:\n  a: {command: cat}\n  b: {comand: cat}\n"
    edited = remove_server(config(text), "b")
    assert edited.text == "mcpServers:\n  a: {command: cat}\n"
    assert edited.settings is not None


def test_what_others_refer_to_is_not_removed() -> None:
    problem = problem_of_removing("mcpServers:\n  a: &x {command: cat}\n  b: *x\n", "a")
    assert problem.code.id == "TL115"
    assert "by hand" in problem.hint


def test_servers_behind_an_alias_are_left_alone() -> None:
    text = "sources: &x\n  own: {kind: mcp_stdio, command: cat}\nmcpServers: {}\n"
    aliased = "mcpServers: &x\n  a: {command: cat}\nsources: *x\n"
    assert removed(text, "own") == "sources: &x\nmcpServers: {}\n"
    assert problem_of_removing(aliased, "a").code.id == "TL115"


def test_one_that_refers_to_another_can_be_removed() -> None:
    text = "mcpServers:\n  a: &x {command: cat}\n  b: *x\n"
    assert removed(text, "b") == "mcpServers:\n  a: &x {command: cat}\n"


def test_keys_in_unusual_form_are_refused() -> None:
    text = "mcpServers:\n  ? a\n  : {command: cat}\n  b: {command: cat}\n"
    assert problem_of_removing(text, "a").code.id == "TL115"
    assert removed(text, "b") == "mcpServers:\n  ? a\n  : {command: cat}\n"


# names -----------------------------------------------------------------------------------------------------------


def test_the_servers_of_a_file_are_listed_as_they_are_written() -> None:
    assert server_names(config(TEXT)) == ["files", "My Server", "own"]
    assert server_names(config("")) == []
    assert server_names(config(added("", REMOTE))) == ["web"]
