"""Writes docs/openapi.json from the HTTP frontend's table of routes; with `--check`, says whether it is current."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trunkline.frontends.http.routes import ROUTES
from trunkline.frontends.rest.openapi import openapi_document

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "openapi.json"


def document() -> str:
    return json.dumps(openapi_document(ROUTES), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        DOCUMENT.write_text(document(), encoding="utf-8")
        return 0
    if DOCUMENT.is_file() and DOCUMENT.read_text(encoding="utf-8") == document():
        return 0
    print(f"{DOCUMENT} is out of date: run `python tools/write_openapi.py`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
