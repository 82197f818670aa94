"""Any text gives settings or problems with a position, and never anything else."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import jsonschema
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples
from tests.support.client_files import load_named
from tests.support.config_files import KINDS, load_text
from tools.write_config_schema import config_schema

from trunkline.config.json_parser import parse_json
from trunkline.config.load import LoadedConfig
from trunkline.config.problems import LINE_BREAK, InvalidValue, Report, render, render_json
from trunkline.config.toml_parser import parse_toml
from trunkline.config.tree import ListNode, Node, Table

SCHEMA = jsonschema.Draft202012Validator(config_schema(KINDS))
ENVIRON = {"HOME": "/h", "NAME": "value"}
SUFFIXES = st.sampled_from([".yaml", ".json"])
RELAXED = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])

# pieces a configuration is made of, so that random text gets past the first character
NAMES = ["gateway", "mcpServers", "sources", "kind", "mcp_stdio", "command", "url", "env", "args", "token", "limits"]
SYNTAX = [
    ": ",
    ":",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    '"',
    "'",
    "#",
    "&a ",
    "*a",
    "<<",
    "!!str ",
    "|",
]
ODDITIES = [
    "${NAME}",
    "${",
    "$${",
    "no",
    "22:22",
    "010",
    "~",
    "true",
    "1e400",
    "\t",
    "\r",
    "\ufeff",
    "\x00",
    "\u2028",
    "é",
]
PIECES = st.sampled_from([*NAMES, *SYNTAX, *ODDITIES])
SOUP = st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join)


def check_invariants(loaded: LoadedConfig, text: str) -> None:
    failed = any(problem.severity == "error" for problem in loaded.problems)
    assert (loaded.settings is None) == failed
    lines = LINE_BREAK.split(text)
    for problem in loaded.problems:
        if problem.span is not None:
            assert 1 <= problem.span.line <= len(lines) + 1
            assert problem.span.column >= 1
            assert problem.where.endswith(f":{problem.span.line}:{problem.span.column}")
    assert render(loaded.problems, loaded.text).count(": error TL") >= failed
    assert len(json.loads(render_json(loaded.problems))) == len(loaded.problems)


@RELAXED
@given(SOUP | st.text(), SUFFIXES)
def test_any_text_loads_or_has_problems(text: str, suffix: str) -> None:
    check_invariants(load_text(text, suffix=suffix, environ=ENVIRON), text)


@RELAXED
@given(st.binary(), SUFFIXES)
def test_any_bytes_load_or_have_problems(data: bytes, suffix: str) -> None:
    check_invariants(load_text(data, suffix=suffix, environ=ENVIRON), data.decode("utf-8", "replace"))


GOOD = """\
gateway: {listen: "127.0.0.1:1", token: "${NAME}", log: {level: info}, limits: {sessions: 5}}
mcpServers:
  files: {command: npx, args: [-y, x], env: {A: "1"}, timeout: 5000}
sources:
  web: {kind: mcp_http, url: "http://x/", headers: {A: b}, tools: {allow: ["*"], rename: {a: b}}}
"""


@RELAXED
@given(st.integers(0, len(GOOD)), st.integers(0, 12), PIECES | st.text(max_size=4))
def test_a_damaged_file_loads_or_has_problems(at: int, removed: int, inserted: str) -> None:
    text = GOOD[:at] + inserted + GOOD[at + removed :]
    check_invariants(load_text(text, environ=ENVIRON), text)


WORDS = st.sampled_from(
    ["x", "http://x/", "127.0.0.1:1", "0.0.0.0:1", "${NAME}", "${NOPE}", "all", "auto", "info", "search", "shared"]
)
SCALARS = WORDS | st.sampled_from(["", "a b"]) | st.none() | st.booleans() | st.integers(-1, 5000) | st.floats(0, 100)
LISTS = st.lists(SCALARS, max_size=3)
GROUPS = st.dictionaries(st.sampled_from(["a", "allow", "level", "sessions", "ttl", "b c"]), SCALARS, max_size=2)
ANYTHING = SCALARS | LISTS | GROUPS


def group(**likely: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A group of keys whose values are mostly of the right sort."""
    return st.fixed_dictionaries({}, optional={name: value | ANYTHING for name, value in likely.items()})


ON_OFF = st.booleans()
TEXTS = st.dictionaries(st.sampled_from(["A", "X-B"]), WORDS, max_size=2)
SERVER = group(
    command=WORDS,
    url=WORDS,
    args=LISTS,
    env=TEXTS,
    headers=TEXTS,
    disabled=ON_OFF,
    timeout=st.integers(1),
    trust=ON_OFF,
)
SOURCE = st.sampled_from(["mcp_stdio", "mcp_http", "app"]).flatmap(
    lambda kind: (
        group(command=WORDS, args=LISTS, env=TEXTS, enabled=ON_OFF, cwd=WORDS, timeout=st.floats(0, 9)).map(
            lambda keys: {"kind": kind, **keys}
        )
        if kind == "mcp_stdio"
        else group(url=WORDS, headers=TEXTS, transport=WORDS, grace=st.integers(0, 9), tools=GROUPS).map(
            lambda keys: {"kind": kind, **keys}
        )
    )
)
GATEWAY = group(
    listen=WORDS, token=WORDS, max_name=st.integers(1, 200), log=GROUPS, limits=GROUPS, socket=WORDS, disclosure=WORDS
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "gateway": GATEWAY,
        "mcpServers": st.dictionaries(st.sampled_from(["a", "b", "c d"]), SERVER, max_size=2),
        "sources": st.dictionaries(st.sampled_from(["a", "z", "c.d"]), SOURCE, max_size=2),
    },
)


@RELAXED
@given(CONFIGS)
def test_what_loads_is_right_by_the_schema(value: Any) -> None:
    """An editor never underlines what the gateway takes without a word."""
    as_json, as_yaml = json.dumps(value), yaml.safe_dump(value)
    for text, suffix in ((as_json, ".json"), (as_yaml, ".yaml")):
        loaded = load_text(text, suffix=suffix, environ=ENVIRON)
        check_invariants(loaded, text)
        if not loaded.problems:
            SCHEMA.validate(value)


def plain(node: Node) -> Any:
    if isinstance(node, Table):
        return {key.text: plain(value) for key, value in node.entries}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return node.text if node.kind == "text" else json.loads(node.text)


KEYS = st.text().filter(lambda name: "\0" not in name)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


@RELAXED
@given(JSON_VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_json_is_read_as_the_standard_library_reads_it(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert plain(parse_json(text, Report("f"))) == value


@RELAXED
@given(st.text(alphabet='{}[]",:0123456789.eE+- \n\ttruefalsn\\u/', max_size=30))
def test_json_the_standard_library_refuses_is_refused(text: str) -> None:
    try:
        json.loads(text)
        valid = True
    except (ValueError, RecursionError):
        valid = not text.strip(" \t\n\r")  # an empty file is an empty configuration
    report = Report("f")
    try:
        parse_json(text, report)
    except InvalidValue:
        assert not valid
    else:
        assert valid


# -- files of clients ---------------------------------------------------------------------------------------------

FILES = [
    ".mcp.json",
    ".claude.json",
    "claude_desktop_config.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".gemini/settings.json",
    "opencode.jsonc",
    "config.toml",
    "other.json",
]
CLIENT_PIECES = [
    *("mcpServers", "servers", "mcp", "mcp_servers", "[mcp_servers.a]\n", "inputs", "projects", "command", "url"),
    *("${env:NAME}", "${input:x}", "{env:NAME}", "{file:x}", "$NAME", "//", "/*", "*/", " = ", '"""', "'''", "[["),
]


@RELAXED
@given(st.lists(PIECES | st.sampled_from(CLIENT_PIECES) | st.text(max_size=3), max_size=40), st.sampled_from(FILES))
def test_any_text_of_a_client_loads_or_has_problems(pieces: list[str], name: str) -> None:
    text = "".join(pieces).replace("\r", "\n")
    check_invariants(load_named(name, text, environ=ENVIRON), text)


REFERENCES = st.sampled_from(
    [
        "${NAME}",
        "${env:NOPE}",
        "{env:NAME}",
        "$NAME",
        "${input:i}",
        "{file:f}",
        "${file:f}",
        "${workspaceFolder}",
        "$${NAME}",
    ]
)
CLIENT_TEXTS = st.lists(WORDS | REFERENCES, max_size=3).map("".join)
CLIENT_SERVER = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["stdio", "http", "sse", "local", "remote", "${file:f}"]),
        "command": CLIENT_TEXTS | st.lists(CLIENT_TEXTS, max_size=3) | ANYTHING,
        "args": st.lists(CLIENT_TEXTS, max_size=3) | ANYTHING,
        "url": CLIENT_TEXTS | ANYTHING,
        "httpUrl": CLIENT_TEXTS,
        "env": st.dictionaries(st.sampled_from(["A", "API_KEY"]), CLIENT_TEXTS | ANYTHING, max_size=2) | ANYTHING,
        "environment": st.dictionaries(st.sampled_from(["A", "API_KEY"]), CLIENT_TEXTS, max_size=2) | ANYTHING,
        "headers": st.dictionaries(st.just("Authorization"), CLIENT_TEXTS, max_size=1) | ANYTHING,
        "envFile": st.just("f") | CLIENT_TEXTS | ANYTHING,
        "timeout": st.integers(0, 100_000) | GROUPS | ANYTHING,
        "enabled": ON_OFF | ANYTHING,
        "disabled": ON_OFF | ANYTHING,
    },
)
SECRET = "hunter2" * 3


@RELAXED
@given(st.dictionaries(st.sampled_from(["a", "servers", "c d"]), CLIENT_SERVER, max_size=2), st.sampled_from(FILES[:7]))
def test_any_servers_of_a_client_load_or_have_problems_and_no_problem_shows_a_secret(servers: Any, name: str) -> None:
    group = {"vscode/mcp.json": "servers", "opencode.jsonc": "mcp"}.get(name.lstrip("."), "mcpServers")
    text = json.dumps({"state": {"token": SECRET}, group: servers}, indent=1)
    loaded = load_named(name, text, environ={**ENVIRON, "NAME": SECRET}, beside={"f": f"A={SECRET}\n"})
    check_invariants(loaded, text)
    assert SECRET not in render(loaded.problems, loaded.text) + render_json(loaded.problems)


TOML_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=5)
TOML_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TOML_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TOML_TEXT, inner, max_size=3),
    max_leaves=8,
)


def written_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def written_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written_json(key)} = {written_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[ # ]\n" + ",\n".join(map(written_toml, value)) + "]"
    return written_json(value)


def places_of(node: Node) -> list[tuple[int, int, str]]:
    if isinstance(node, Table):
        inner = [place for _, value in node.entries for place in places_of(value)]
        return [(key.span.line, key.span.column, written_json(key.text)) for key, _ in node.entries] + inner
    if isinstance(node, ListNode):
        return [place for item in node.items for place in places_of(item)]
    written = written_json(node.text) if node.kind == "text" else node.text
    return [(node.span.line, node.span.column, written)]


@RELAXED
@given(st.dictionaries(TOML_TEXT.filter(lambda key: "\0" not in key), TOML_VALUES, max_size=4))
def test_toml_is_read_as_the_standard_library_reads_it_and_every_place_is_right(values: dict[str, Any]) -> None:
    text = "".join(f"{written_json(key)} = {written_toml(value)}\n" for key, value in values.items())
    assert tomllib.loads(text) == values
    report = Report("f")
    tree = parse_toml(text, report)
    if report.failed:  # a key with a NUL
        return
    assert plain(tree) == values
    starts = [0, *(line_break.end() for line_break in LINE_BREAK.finditer(text))]
    for line, column, written in places_of(tree):
        assert text.startswith(written, starts[line - 1] + column - 1)


def test_the_file_to_damage_is_good() -> None:
    assert load_text(GOOD, environ=ENVIRON).problems == ()
