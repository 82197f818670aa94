"""The JSON Schema of the configuration file, for editors, made from the same sections the file is read with.

`python -m trunkline.config.schema` prints it; the copy in docs/ is checked against it by a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from trunkline.config.clients import mcp_servers_schema
from trunkline.config.load import CLIENTS, GATEWAY, SCHEMA, SOURCES
from trunkline.config.section import section_schema
from trunkline.config.settings import GatewaySettings
from trunkline.config.sources import SourceKinds
from trunkline.config.value_types import REFERENCE_PATTERN, JsonSchema


def config_schema(kinds: SourceKinds) -> JsonSchema:
    """The schema of a whole file whose sources may be of these kinds."""
    sections = {name: section_schema(load()) for name, load in kinds.items()}
    for name, schema in sections.items():
        schema["properties"] = {"kind": {"const": name}, **schema["properties"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trunkline configuration",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            SCHEMA: {"type": "string", "description": "Where this schema is, for editors"},
            GATEWAY: {"description": "Everything that is not about one source", **section_schema(GatewaySettings)},
            CLIENTS: {"description": "MCP servers as clients write them", **mcp_servers_schema()},
            SOURCES: {
                "description": "Sources of tools, by name",
                "type": ["object", "null"],
                "propertyNames": {"pattern": "^[A-Za-z0-9_-]+$", "not": {"const": "trunkline"}},
                "additionalProperties": _source_schema(sections),
            },
        },
        "$defs": {
            "reference": {
                "type": "string",
                "pattern": REFERENCE_PATTERN,
                "description": "A reference to the environment: `${NAME}` or `${NAME:-default}`",
            },
            **sections,
        },
    }


def _source_schema(names: Iterable[str]) -> JsonSchema:
    """Chosen by `kind`, so that an editor names the key that is wrong and not every kind that does not fit."""
    kind = {"enum": list(names), "description": "What sort of source this is"}
    return {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": kind},
        "allOf": [
            {
                "if": {"required": ["kind"], "properties": {"kind": {"const": name}}},
                "then": {"$ref": f"#/$defs/{name}"},
            }
            for name in names
        ],
    }


def main() -> None:
    import json
    import sys

    # by name, as the table of kinds itself does it: this package must not depend on the kinds
    sources: Any = import_module("trunkline.sources")
    table: Mapping[str, str] = sources.KINDS

    def loader(name: str) -> Any:
        return lambda: sources.load_kind(name).section

    schema = config_schema({name: loader(name) for name in table})
    sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
