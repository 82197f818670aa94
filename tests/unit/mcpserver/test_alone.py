"""The server needs nothing beside the standard library: not even what Trunkline itself needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import at_most

import trunkline.mcpserver

SOURCE = Path(trunkline.mcpserver.__file__).parents[2]
LOADED = "import sys, json; sys.path.insert(0, sys.argv[1]); import {}; print(json.dumps(sorted(sys.modules)))"


def loaded_by(module: str) -> list[str]:
    """Every module there is after importing one, in an interpreter without installed packages."""
    command = [sys.executable, "-I", "-S", "-c", LOADED.format(module), str(SOURCE)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=at_most(60)).stdout)


def test_it_imports_the_standard_library_and_itself() -> None:
    loaded = loaded_by("trunkline.mcpserver.stdio, trunkline.mcpserver.listener")
    others = [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names]
    ours = [name for name in others if name == "trunkline" or name.startswith("trunkline.mcpserver")]
    assert [name for name in others if name not in ours and name not in ("__main__", "__mp_main__")] == []
