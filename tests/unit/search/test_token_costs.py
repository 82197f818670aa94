from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trunkline.search.token_costs import LIST_ERROR, TOOL_ERROR, tokens_of, tokens_of_text

# Counted by real tokenizers: `python -m bench.discovery.tokenizers --samples`
SAMPLES: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parent / "token_samples.json").read_text("utf-8"))
TOOLS = [(json.dumps(sample["tool"], ensure_ascii=False).encode(), sample["counts"]) for sample in SAMPLES["tools"]]
TEXTS = [(sample["text"], sample["counts"]) for sample in SAMPLES["texts"]]
TOKENIZERS = ("o200k", "claude", "llama3")


@pytest.mark.parametrize("definition, counts", TOOLS)
def test_a_tool_costs_about_what_real_tokenizers_count(definition: bytes, counts: dict[str, int]):
    for tokenizer in TOKENIZERS:
        assert tokens_of(definition) == pytest.approx(counts[tokenizer], rel=TOOL_ERROR)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_list_of_tools_costs_about_what_real_tokenizers_count(tokenizer: str):
    truth = sum(counts[tokenizer] for _, counts in TOOLS)
    assert sum(tokens_of(definition) for definition, _ in TOOLS) == pytest.approx(truth, rel=LIST_ERROR)


@pytest.mark.parametrize("text, counts", TEXTS)
def test_other_scripts_numbers_and_encoded_data_are_within_a_factor_of_two(text: str, counts: dict[str, int]):
    estimate = tokens_of_text(text)
    for tokenizer in TOKENIZERS:
        assert counts[tokenizer] / 2 <= estimate <= counts[tokenizer] * 2


def test_only_what_a_model_is_shown_costs_something():
    shown = b'{"name":"add","description":"Adds two numbers.","inputSchema":{"type":"object"}}'
    unseen = b',"title":"Add","outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"a":1}}'
    assert tokens_of(shown[:-1] + unseen) == tokens_of(shown)


def test_how_a_server_writes_its_json_makes_no_difference():
    tool = {"name": "wetter", "description": "Zeigt das Wetter für 北京", "inputSchema": {"type": "object"}}
    compact = json.dumps(tool, ensure_ascii=False, separators=(",", ":"))
    spread = json.dumps(dict(reversed(tool.items())), indent=4)
    assert tokens_of(spread.encode()) == tokens_of(compact.encode())


@pytest.mark.parametrize(
    "definition",
    [b"", b"[]", b"not json", b"\xff\xfe\xfd", b'{"name":', b'{"inputSchema":' + b"[" * 5_000 + b"]" * 5_000 + b"}"],
)
def test_a_definition_that_cannot_be_read_still_gets_a_number(definition: bytes):
    assert 0 <= tokens_of(definition) <= len(definition)


def test_what_is_not_text_costs_as_written():
    assert tokens_of(b'{"name":3,"description":null,"inputSchema":[1,2]}') > 5


def test_no_text_costs_nothing():
    assert tokens_of_text("") == 0


def test_a_huge_text_is_judged_by_samples_of_the_whole():
    prose = "Returns the temperature of the given city, in degrees. " * 100
    numbers = "[1844674,4073709,551616,77] " * 200
    parts = tokens_of_text(prose) + tokens_of_text(numbers)
    assert tokens_of_text(prose * 60 + numbers * 60) == pytest.approx(60 * parts, rel=0.05)


def test_text_that_is_no_utf8_costs_something_all_the_same():
    assert tokens_of(b'{"name":"a\xff","description":"words \xfe and words"}') > 3


def test_a_large_definition_is_counted_as_a_model_sees_it():
    shown = {"name": "x", "description": "lorem ipsum dolor " * 10_000, "inputSchema": {"type": "object"}}
    unseen = {"outputSchema": {"title": "words " * 100_000}, "_meta": {"a": "b"}}
    text = json.dumps(shown, separators=(",", ":"))
    assert tokens_of(json.dumps(unseen | shown).encode()) == pytest.approx(tokens_of_text(text), rel=0.02)
