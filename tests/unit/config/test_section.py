"""Sections: declared once; read, checked, compared and described from that."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.config_files import node_of, reader_for

from trunkline.config.problems import InvalidValue
from trunkline.config.section import NestedSection, Section, SectionNodes, key, read_section, section_schema
from trunkline.config.value_types import Integer, Text
from trunkline.core.errors import CONFLICTING_KEYS


class Inside(Section):
    """Inside."""

    size: int = key(Integer(minimum=1), default=3, doc="How large")


class Outside(Section):
    """Outside."""

    name: str = key(Text(), doc="What it is called")
    token: str = key(Text(), default="", doc="A secret", secret=True)
    note: str | None = key(Text(), default=None, doc="Anything")
    inside: Inside = key(NestedSection(Inside), default=Inside(), doc="More")

    @classmethod
    def check(cls, values: Mapping[str, Any], places: SectionNodes) -> None:
        if values.get("name") == values.get("token"):
            places.reader.error(CONFLICTING_KEYS, places.of("token"), "The same")


def problems_of(text: str) -> list[tuple[str, str]]:
    reader = reader_for()
    with pytest.raises(InvalidValue):
        read_section(Outside, node_of(text), reader)
        if reader.report.failed:
            raise InvalidValue
    return [(problem.code.id, problem.where.removeprefix("file:")) for problem in reader.report.in_file_order()]


def test_what_is_not_written_has_its_default() -> None:
    read = read_section(Outside, node_of("{name: a, inside: {size: 5}}"), reader_for())
    assert read == Outside(name="a", token="", note=None, inside=Inside(size=5))


def test_an_optional_key_may_be_empty() -> None:
    assert read_section(Outside, node_of("{name: a, note: ~}"), reader_for()).note is None
    assert read_section(Outside, node_of("{name: a, inside: }"), reader_for()).inside == Inside()


def test_all_problems_of_a_section_are_reported_at_once() -> None:
    assert problems_of("tokn: x\ninside: {size: 0, sizes: 1}\nnote: 3\n") == [
        ("TL105", "1:1"),
        ("TL102", "1:1"),
        ("TL104", "2:16"),
        ("TL102", "2:19"),
        ("TL103", "3:7"),
    ]


def test_checks_between_keys_run_even_when_another_key_is_wrong() -> None:
    assert problems_of("{name: a, token: a, note: 3}") == [("TL113", "1:18"), ("TL103", "1:27")]


def test_presets_stand_in_for_keys_that_are_not_written() -> None:
    read = read_section(Outside, node_of("{name: a}"), reader_for(), presets={"note": "preset"})
    assert read.note == "preset"
    read = read_section(Outside, node_of("{name: a, note: own}"), reader_for(), presets={"note": "preset"})
    assert read.note == "own"


def test_a_section_cannot_be_changed_but_replaced() -> None:
    section = Outside(name="a")
    with pytest.raises(AttributeError):
        section.name = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del section.name
    assert section.replace(name="b") == Outside(name="b") == dataclasses.replace(section, name="b")
    assert section != Outside(name="b")
    assert section != Inside()


def test_a_section_wants_its_required_keys_and_no_others() -> None:
    with pytest.raises(TypeError):
        Outside()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Outside(name="a", other=1)  # type: ignore[call-arg]


@pytest.mark.law
def test_a_secret_is_not_in_the_repr() -> None:
    assert "hunter2" not in repr(Outside(name="a", token="hunter2"))
    assert "hunter2" in str(dataclasses.asdict(Outside(name="a", token="hunter2")))


def test_the_schema_has_the_docs_defaults_and_bounds() -> None:
    schema = section_schema(Outside)
    assert schema["required"] == ["name"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["token"] == {"description": "A secret", "type": "string", "default": ""}
    assert schema["properties"]["inside"]["properties"]["size"]["anyOf"][0]["minimum"] == 1
