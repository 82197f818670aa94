"""Any text gives settings or problems with a place, and never anything else."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.config_files import KINDS, load_text

from trunkline.config.json_text import read_json
from trunkline.config.load import Loaded
from trunkline.config.render import render, render_json
from trunkline.config.report import Invalid, Report
from trunkline.config.schema import config_schema
from trunkline.config.tree import LINE_BREAK, Items, Node, Table

SCHEMA = jsonschema.Draft202012Validator(config_schema(KINDS))
ENVIRON = {"HOME": "/h", "NAME": "value"}
SUFFIXES = st.sampled_from([".yaml", ".json"])
RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

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


def check_invariants(loaded: Loaded, text: str) -> None:
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
    if isinstance(node, Items):
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
    assert plain(read_json(text, Report("f"))) == value


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
        read_json(text, report)
    except Invalid:
        assert not valid
    else:
        assert valid


def test_the_file_to_damage_is_good() -> None:
    assert load_text(GOOD, environ=ENVIRON).problems == ()
