from __future__ import annotations

import json

from trunkline.core.tool import ToolDefinition
from trunkline.search.index.documents import Document, document_of, encoder_text, filter_tags

DEFINITION = {
    "name": "getWeather",
    "title": "Weather",
    "description": "The weather of a city.",
    "inputSchema": {"properties": {"city": {"description": "Where"}, "at": {"properties": {"day": {}}}}},
    "tags": ["sky"],
}
TOOL = ToolDefinition("meteo", "getWeather", json.dumps(DEFINITION).encode())


def test_a_tool_with_everything_it_is_found_by() -> None:
    assert document_of(TOOL, "meteo__getWeather", "All about weather", ("mine", "sky")) == Document(
        server="meteo",
        name="getWeather",
        shown="meteo__getWeather",
        title="Weather",
        description="The weather of a city.",
        parameters=("city", "at"),
        parameter_texts=("Where",),
        inner_parameters=("day",),
        server_text="All about weather",
        tags=("mine", "sky"),
    )


def test_an_unreadable_definition_leaves_the_names() -> None:
    document = document_of(ToolDefinition("s", "t", b"\xff"), None)
    assert (document.server, document.name, document.description, document.parameters) == ("s", "t", "", ())


def test_what_is_long_is_cut() -> None:
    definition = json.dumps({"title": "x" * 10**6, "description": "y " * 10**6}).encode()
    document = document_of(ToolDefinition("s" * 10**6, "t" * 10**6, definition), "u" * 10**6, "v" * 10**6)
    texts = (document.server, document.name, document.shown, document.title, document.description, document.server_text)
    assert max(map(len, texts)) <= 3000
    assert len(encoder_text(document)) < 2000


def test_a_tool_is_labelled_by_its_tags_and_by_keywords_that_it_speaks_of() -> None:
    document = document_of(
        ToolDefinition("s", "search_files", b'{"description":"Files on the web.","tags":["x"]}'), None
    )
    assert filter_tags(document) == ("x", "search", "web", "file")


def test_the_text_that_the_encoder_reads() -> None:
    text = "meteo get weather: The weather of a city. Parameters: city, at"
    assert encoder_text(document_of(TOOL, "shown", "instructions", ("tag",))) == text
    assert encoder_text(document_of(ToolDefinition("s", "ping", b"{}"), None)) == "s ping: "
