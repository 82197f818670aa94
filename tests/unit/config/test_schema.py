"""The JSON Schema for editors."""

from __future__ import annotations

import json

import jsonschema
import yaml
from tests.support.config_files import KINDS, load_text
from tools.write_config_schema import DOCUMENT, config_schema, main

from trunkline.config.settings import GatewaySettings

SCHEMA = config_schema(KINDS)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_checked_in_schema_is_what_the_sections_give() -> None:
    assert main(["--check"]) == 0, "run `make generated`"
    assert json.loads(DOCUMENT.read_text()) == SCHEMA


def test_it_is_a_schema_itself() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_key_has_its_doc() -> None:
    todo = [SCHEMA["properties"]["gateway"], *(SCHEMA["$defs"][kind] for kind in KINDS)]
    while todo:
        for name, schema in todo.pop()["properties"].items():
            assert name == "kind" or schema["description"], name
            todo += [schema] if "properties" in schema else []


def test_defaults_are_right_by_the_schema() -> None:
    properties = SCHEMA["properties"]["gateway"]["properties"]
    defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    assert {"listen", "max_name", "state_dir", "start_wait"} <= defaults.keys() <= GatewaySettings.declared.keys()
    VALIDATOR.validate({"gateway": defaults})
    assert load_text(yaml.safe_dump({"gateway": defaults})).settings is not None


def test_it_takes_what_loads_and_underlines_what_does_not() -> None:
    good = """
gateway: {listen: "127.0.0.1:1", max_name: "${N:-20}", log: {level: "${L:-info}"}, socket: ~}
mcpServers: {"a b": {command: x, args: [1, true, x], autoApprove: []}}
sources:
  a: {kind: mcp_stdio, command: x, inherit_env: all, cwd: ~}
  b: {kind: mcp_http, url: "http://x", enabled: "${E:-true}"}
"""
    assert load_text(good).settings is not None
    VALIDATOR.validate(yaml.safe_load(good))
    for bad in (
        "gatewy: {}",
        "gateway: {max_name: 5}",
        "gateway: {disclosure: some}",
        "sources: {a: {kind: mcp_stdio}}",
        "sources: {a: {kind: nothing}}",
        "sources: {a: {kind: mcp_http, url: 'http://x', command: y}}",
        "sources: {a.b: {kind: mcp_stdio, command: x}}",
        "mcpServers: {a: {command: 5}}",
    ):
        assert load_text(bad).settings is None, bad
        assert not VALIDATOR.is_valid(yaml.safe_load(bad)), bad
