"""The table of source kinds agrees with the folders beside it."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.waiting import at_most

from trunkline import sources
from trunkline.config.sources import ROUTING_KEYS, SourceSection
from trunkline.core.source import SourceKind

KINDS = sources.KINDS
PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
CONNECTION_KEYS = {"enabled", "connect_timeout", "start_timeout", "sessions"}


def load(spelling: str) -> object:
    module, _, attribute = spelling.partition(":")
    return getattr(importlib.import_module(module), attribute)


def modules_with_a_kind() -> set[str]:
    names = [module.name for module in pkgutil.walk_packages(sources.__path__, f"{sources.__name__}.")]
    return {name for name in names if hasattr(importlib.import_module(name), "KIND")}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_lives_in_the_module_of_its_name(kind):
    module, _, attribute = KINDS[kind].partition(":")
    assert module.removeprefix("trunkline.sources.").replace(".", "_") == kind
    assert attribute == "KIND"
    assert isinstance(load(KINDS[kind]), SourceKind)


def test_every_file_that_defines_a_kind_is_in_the_table():
    assert modules_with_a_kind() == {spelling.partition(":")[0] for spelling in KINDS.values()}


def test_reading_the_table_imports_no_kind():
    code = "import sys, trunkline.sources as s; print([k for k in s.KINDS.values() if k.split(':')[0] in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=at_most(60)
    )
    assert shown.stdout == "[]\n"


def test_every_package_of_a_kind_is_independent_of_the_others():
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    (independent,) = [contract["modules"] for contract in contracts if contract["type"] == "independence"]
    modules = pkgutil.iter_modules(sources.__path__, f"{sources.__name__}.")
    packages = {module.name for module in modules if module.ispkg}
    assert set(independent) == packages


def test_every_key_of_all_sources_is_one_of_the_router_or_of_the_connection():
    """A key that only the router reads and that is not in `ROUTING_KEYS` replaces the server when it is changed."""
    assert set(SourceSection.declared) == ROUTING_KEYS | CONNECTION_KEYS
