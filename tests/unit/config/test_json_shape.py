"""Values that are passed on as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trunkline.config.load import LoadedConfig, load_text
from trunkline.sources import section_kinds


def load(written: str) -> LoadedConfig:
    text = f"sources: {{p: {{kind: plugin, command: x, config: {{v: {written}}}}}}}"
    return load_text(text, Path("/home/me/trunkline.yaml"), environ={"NAME": "5"}, kinds=section_kinds())


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("text", "text"),
        ('"5"', "5"),
        ('"${NAME}"', "5"),
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("0.50", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("[1, [], {a: [null]}]", [1, [], {"a": [None]}]),
        ("{}", {}),
    ],
)
def test_every_value_keeps_its_type(written: str, value: object) -> None:
    loaded = load(written)
    assert loaded.settings is not None, loaded.problems
    section: Any = loaded.settings.sources["p"]
    assert section.config == {"v": value}
    assert type(section.config["v"]) is type(value)


@pytest.mark.parametrize("written", ["1e999", "9" * 100, "[1, {a: -1e400}]"])
def test_a_number_that_nobody_could_read_is_an_error(written: str) -> None:
    assert [problem.code.id for problem in load(written).problems] == ["TL104"]


def test_a_variable_that_is_not_set_holds_up_that_source_alone() -> None:
    loaded = load("[{a: '${NOT_SET}'}]")
    assert [(problem.code.id, problem.severity) for problem in loaded.problems] == [("TL110", "warning")]
    assert loaded.settings is not None
