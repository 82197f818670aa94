"""Writes docs/openapi.json from the HTTP frontend's table of routes; with `--check`, says whether it is current."""

from __future__ import annotations

import sys

from tools.docs_regions import DOCS, write_json

from trunkline.frontends.http.routes import ROUTES
from trunkline.frontends.rest.openapi import openapi_document

DOCUMENT = DOCS / "openapi.json"


def main(arguments: list[str]) -> int:
    return write_json("tools.write_openapi", DOCUMENT, openapi_document(ROUTES), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
