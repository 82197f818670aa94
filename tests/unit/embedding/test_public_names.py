"""`import trunkline` offers the library and costs nothing until it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.support.docs_pages import DOCS
from tests.support.waiting import at_most

import trunkline
import trunkline.mcpserver

LOADED = "import sys, json; before = set(sys.modules); {}; print(json.dumps(sorted(set(sys.modules) - before)))"


def loaded_after(statement: str) -> set[str]:
    command = [sys.executable, "-c", LOADED.format(statement)]
    return set(json.loads(subprocess.run(command, check=True, capture_output=True, timeout=at_most(60)).stdout))


def test_the_package_alone_loads_nothing_else() -> None:
    assert loaded_after("import trunkline") <= {"trunkline", "__future__"}


def test_the_gateway_is_loaded_when_it_is_asked_for_and_no_door_with_it() -> None:
    loaded = loaded_after("from trunkline import Gateway")
    assert "trunkline.embedding.gateway" in loaded
    assert not {"uvloop", "click", "yaml", "trunkline.cli", "trunkline.serve", "trunkline.doors.http"} & loaded


def test_the_errors_can_be_had_without_the_rest() -> None:
    assert "trunkline.router" not in loaded_after("from trunkline import TrunklineError, CallError")


@pytest.mark.parametrize("name", trunkline.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(trunkline, name) is not None
    assert name in dir(trunkline)


def test_any_other_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        _ = trunkline.no_such


def test_the_pages_name_everything_public() -> None:
    page = (DOCS / "library" / "gateway.md").read_text(encoding="utf-8")
    assert [name for name in trunkline.__all__ if f"`{name}" not in page] == []
    page = (DOCS / "library" / "mcpserver.md").read_text(encoding="utf-8")
    assert [name for name in trunkline.mcpserver.__all__ if f"`{name}" not in page] == []
