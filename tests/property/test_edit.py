"""For any configuration file, adding a server adds only that, and removing it restores the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples
from tests.support.config_files import KINDS

from trunkline.config.edit.new_server import NewServer
from trunkline.config.edit.servers import ConfigText, add_server, remove_server, server_names
from trunkline.config.settings import Settings
from trunkline.config.tree import Table

RELAXED = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
ENVIRON = {"HOME": "/h", "NAME": "value"}

# texts that need quotes in one format or another
VALUES = st.sampled_from(
    [
        *(
            "x",
            "-y",
            "--flag=1",
            "a b",
            "",
            "no",
            "010",
            "22:22",
            "1.5",
            "~",
            "a: b",
            "a #b",
            "'",
            '"',
            "\\",
            "${NAME}",
        ),
        *(
            "@scope/pkg",
            "*",
            "&x",
            "{}",
            "[]",
            ",",
            "%",
            "é",
            "\u2028",
            "line\nbreak",
            "tab\t",
            "null",
            "true",
            "!t",
            "|",
        ),
    ]
) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0$"), max_size=6)
NAMES = st.sampled_from(["new", "NEW-1", "on", "null", "123", "-", "_x"])
TEXTS = st.dictionaries(st.sampled_from(["A", "B_2", "no"]), VALUES, max_size=2)
COMMANDS = st.builds(
    lambda name, args, env, cwd, enabled: NewServer(
        name=name, command=("npx", *args), env=env, cwd=cwd, enabled=enabled
    ),
    NAMES,
    st.lists(VALUES, max_size=3),
    TEXTS,
    st.sampled_from(["", "/srv/a b"]),
    st.booleans(),
)
URLS = st.builds(
    lambda name, headers, transport: NewServer(
        name=name, url="https://h.example/mcp?a=1&b=2", headers=headers, transport=transport
    ),
    NAMES,
    st.dictionaries(st.sampled_from(["X-A", "Authorization"]), st.sampled_from(["b", "Bearer ${NAME}", "a: b #c"])),
    st.sampled_from(["", "sse", "streamable"]),
)
SERVERS = COMMANDS | URLS


# files -----------------------------------------------------------------------------------------------------------

ENTRIES = st.sampled_from(
    [
        {"command": "cat"},
        {"command": "npx", "args": ["-y", "@a/b", "a: b"], "env": {"A": "1", "B": "${NAME}"}},
        {"url": "https://x.example/mcp", "headers": {"X-Y": "z"}},
    ]
)
GROUPS = st.dictionaries(st.sampled_from(["files", "web", "My Server", "z-1"]), ENTRIES, max_size=3)
GATEWAY = st.sampled_from([{"max_name": 20}, {"log": {"level": "debug"}, "allowed_hosts": ["a.example"]}])


@st.composite
def contents(draw: st.DrawFn) -> dict[str, Any]:
    """What a file says; every key at the top may be there or not, in any order."""
    parts: dict[str, Any] = {}
    for key in draw(st.permutations(["gateway", "mcpServers", "sources"])):
        if not draw(st.booleans()):
            continue
        if key == "gateway":
            parts[key] = draw(GATEWAY)
        elif key == "mcpServers":
            parts[key] = draw(GROUPS)
        else:
            parts[key] = {"own": {"kind": "mcp_stdio", "command": "cat"}} if draw(st.booleans()) else {}
    return parts


COMMENTS = st.sampled_from(["", "", "", "# note", "# key: {value, }", "#"])


class YamlWriter:
    """Writes a file as people do: comments and blank lines anywhere, braces here and there."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._unit = draw(st.sampled_from(["  ", "    ", " "]))
        self._lines: list[str] = []

    def write(self, value: dict[str, Any]) -> str:
        newline = self._draw(st.sampled_from(["\n", "\r\n"]))
        self._noise("")
        for key, inner in value.items():
            self._member(key, inner, "", depth=0)
        text = newline.join(self._lines)
        return text + newline if self._lines and self._draw(st.booleans()) else text

    def _member(self, key: str, value: Any, indent: str, depth: int) -> None:
        written = json.dumps(key) if " " in key or self._draw(st.booleans()) else key
        if isinstance(value, dict) and value and self._draw(st.integers(0, 3)):
            self._lines.append(f"{indent}{written}:{self._comment()}")
            self._noise(indent + self._unit)
            for name, inner in value.items():
                self._member(name, inner, indent + self._unit, depth + 1)
        elif isinstance(value, dict) and not value and self._draw(st.booleans()):
            self._lines.append(f"{indent}{written}:{self._comment()}")
        else:
            self._lines.append(f"{indent}{written}: {self._flow(value, indent)}{self._comment()}")
        self._noise(self._draw(st.sampled_from([indent, indent + self._unit])))

    def _flow(self, value: Any, indent: str) -> str:
        style = self._draw(st.integers(0, 3))
        if not isinstance(value, dict) or not value or style == 0:
            return json.dumps(value)
        members = [f"{json.dumps(key) if ' ' in key else key}: {json.dumps(inner)}" for key, inner in value.items()]
        if style == 1:
            return "{" + ", ".join(members) + self._draw(st.sampled_from(["", ",", " , "])) + "}"
        deeper = indent + self._unit
        lines = [f"{deeper}{member}," for member in members]
        if self._draw(st.booleans()):
            lines[-1] = lines[-1].removesuffix(",")
        return "\n".join(["{", *(line + self._comment() for line in lines), indent + " }"])

    def _comment(self) -> str:
        comment = self._draw(COMMENTS)
        return f"  {comment}" if comment else ""

    def _noise(self, indent: str) -> None:
        for _ in range(self._draw(st.sampled_from([0, 0, 0, 1, 2]))):
            comment = self._draw(COMMENTS)
            self._lines.append(indent + comment if comment else "")


@st.composite
def yaml_files(draw: st.DrawFn) -> str:
    return YamlWriter(draw).write(draw(contents()))


@st.composite
def json_files(draw: st.DrawFn, indents: tuple[int | str | None, ...] = (None, 1, 2, 4)) -> str:
    indent = draw(st.sampled_from(indents))
    compact = indent is None and draw(st.booleans())
    text = json.dumps(draw(contents()), indent=indent, separators=(",", ":") if compact else None)
    return draw(st.sampled_from(["", "\n"])).join(["", text, ""]) if draw(st.booleans()) else text


# properties ------------------------------------------------------------------------------------------------------


def file(text: str, name: str) -> ConfigText:
    return ConfigText(Path("/etc", name), text, ENVIRON, KINDS)


def load(config: ConfigText) -> Settings:
    loaded = config.load()
    assert loaded.settings is not None, ([str(problem) for problem in loaded.problems], config.text)
    return loaded.settings


def check_adding(before: ConfigText, server: NewServer) -> None:
    had = load(before)
    added = replace(before, text=add_server(before, server).text)
    has = load(added)
    assert {name: has.sources[name] for name in had.sources} == dict(had.sources)
    assert has.sources.keys() - had.sources.keys() == {server.name}
    check_server(has.sources[server.name], server)
    assert has.gateway == had.gateway
    back = replace(before, text=remove_server(added, server.name).text)
    assert load(back) == had
    if has_servers(before):
        assert back.text == before.text


def has_servers(config: ConfigText) -> bool:
    """Whether a new server joins others: where it is the first, removing it leaves an empty group behind."""
    root = config.tree()
    group = root.get("mcpServers") if isinstance(root, Table) else None
    return isinstance(group, Table) and bool(group.entries)


def check_server(section: Any, server: NewServer) -> None:
    expanded = {key: value.replace("${NAME}", "value") for key, value in (server.env | server.headers).items()}
    if server.url:
        assert (section.url, section.headers) == (server.url, expanded)
        assert section.transport == (server.transport or "auto")
    else:
        assert (section.command, section.env) == (server.command[0], expanded)
        assert section.args == tuple(argument.replace("${NAME}", "value") for argument in server.command[1:])
        assert section.enabled is server.enabled


@RELAXED
@given(yaml_files(), SERVERS)
def test_a_server_added_to_yaml_is_one_more_and_nothing_else(text: str, server: NewServer) -> None:
    check_adding(file(text, "trunkline.yaml"), server)


@RELAXED
@given(json_files((None, 1, 2, 4, "\t")), SERVERS)
def test_a_server_added_to_json_is_one_more_and_nothing_else(text: str, server: NewServer) -> None:
    check_adding(file(text, "trunkline.json"), server)


@RELAXED
@given(json_files(), SERVERS)
def test_json_as_a_yaml_file_is_edited_as_well(text: str, server: NewServer) -> None:
    check_adding(file(text, "trunkline.yaml"), server)


@RELAXED
@given(yaml_files() | json_files(), st.data())
def test_a_removed_server_is_gone_and_no_other(text: str, data: st.DataObject) -> None:
    before = file(text, "trunkline.yaml")
    names = server_names(before)
    if not names:
        return
    name = data.draw(st.sampled_from(names))
    had, has = load(before), load(replace(before, text=remove_server(before, name).text))
    gone = had.sources.keys() - has.sources.keys()
    assert gone == {name.replace(" ", "_")}
    assert all(had.sources[kept] == has.sources[kept] for kept in has.sources)


@RELAXED
@given(yaml_files() | json_files(), SERVERS, SERVERS)
def test_replacing_a_server_with_what_it_was_gives_the_file_back(text: str, one: NewServer, other: NewServer) -> None:
    first = add_server(file(text, "trunkline.yaml"), one)
    once = file(first.text, "trunkline.yaml")
    changed = add_server(once, replace(other, name=one.name), force=True)
    assert changed.action == "replaced"
    again = add_server(replace(once, text=changed.text), one, force=True)
    assert again.text == first.text
