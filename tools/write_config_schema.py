"""Writes docs/trunkline.schema.json, the JSON Schema of the configuration file for editors, from the sections that the
file is read with; with `--check`, says whether it is current."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tools.docs_regions import DOCS, write_json

from trunkline.config.clients import ClientEntry
from trunkline.config.load import CLIENTS, GATEWAY, SCHEMA, SOURCES
from trunkline.config.section import section_schema
from trunkline.config.settings import GatewaySettings
from trunkline.config.sources import SourceKinds
from trunkline.config.value_types import JsonSchema
from trunkline.sources import section_kinds

DOCUMENT = DOCS / "trunkline.schema.json"


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
            CLIENTS: {"description": "MCP servers as clients write them", **_servers_schema()},
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
                "pattern": r"\$\{[A-Za-z_]",
                "description": "A reference to the environment: `${NAME}` or `${NAME:-default}`",
            },
            **sections,
        },
    }


def _servers_schema() -> JsonSchema:
    """The keys of clients; others are allowed, as a client may have keys of its own."""
    entry = section_schema(ClientEntry) | {"additionalProperties": True}
    return {"type": ["object", "null"], "additionalProperties": entry}


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


def main(arguments: list[str]) -> int:
    return write_json("tools.write_config_schema", DOCUMENT, config_schema(section_kinds()), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
