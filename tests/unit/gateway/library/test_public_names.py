"""`import trunkline` offers the library and costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.waiting import at_most

import trunkline

LOOK = """
import sys
def look():
    print(*set(sys.modules) - known)
    known.update(sys.modules)
known = set(sys.modules)
import trunkline
look()
from trunkline import TrunklineError, CallError
look()
from trunkline import Gateway
look()
"""


def test_what_is_asked_for_is_loaded_and_no_more() -> None:
    """The package alone is nothing, the errors come without a gateway, the gateway without a frontend or a command."""
    done = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True, timeout=at_most(60))
    package, errors, gateway = (set(line.split()) for line in done.stdout.splitlines())
    assert package <= {"trunkline", "__future__"}
    assert not {"asyncio", "msgspec", "json"} & errors
    assert {"asyncio", "msgspec"} <= gateway
    assert not {"uvloop", "click", "yaml", "trunkline.cli", "trunkline.gateway.serving"} & gateway


def test_every_public_name_is_there() -> None:
    assert {name for name in trunkline.__all__ if getattr(trunkline, name, None) is not None} == set(trunkline.__all__)
    assert set(trunkline.__all__) <= set(dir(trunkline))


def test_any_other_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        _ = trunkline.no_such
