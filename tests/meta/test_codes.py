from __future__ import annotations

import re

from tools.write_error_docs import PAGE, main, page

from trunkline.core.errors import CODES, Code
from trunkline.core.explanations import explanations

ID = r"(?:TL[1-69]\d\d|USER\.MCP_PROXY\.[A-Z_]+)"
ROW = re.compile(rf"^\| ({ID}) \| (.+?) \| (-?\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)


def test_every_code_is_in_the_docs_with_its_numbers():
    rows = {row[0]: Code(row[0], row[1], *map(int, row[2:])) for row in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert rows == CODES, "run `python tools/write_error_docs.py`"


def test_the_page_is_what_the_tool_writes():
    assert main(["--check"]) == 0


def test_a_new_code_makes_the_page_out_of_date():
    assert page([*CODES.values(), Code("TL999", "planted")]) != PAGE.read_text(encoding="utf-8")


def test_codes_are_well_formed_and_keyed_by_their_id():
    for key, code in CODES.items():
        assert key == code.id
        assert re.fullmatch(ID, code.id)
        assert code.title and not code.title.endswith(".")
        assert code.exit in (0, 1, 2, 130)
        assert 400 <= code.http <= 599


def test_every_code_is_explained():
    assert list(explanations()) == list(CODES), (
        "explain each code in src/trunkline/core/error_explanations.md, in the order of CODES"
    )


def test_explanations_say_what_it_means_why_and_what_to_do():
    for code, explanation in explanations().items():
        assert explanation.meaning.endswith("."), code
        assert explanation.causes and explanation.remedies, code
        for phrase in (*explanation.causes, *explanation.remedies):
            assert phrase and not phrase.endswith("."), (code, phrase)


def test_the_page_explains_every_code():
    text, known = PAGE.read_text(encoding="utf-8"), explanations()
    for code in CODES.values():
        section = text.partition(f"### {code.id}: {code.title}\n")[2].partition("\n##")[0]
        assert known[code.id].meaning in section
        for phrase in (*known[code.id].causes, *known[code.id].remedies):
            assert f"- {phrase}\n" in section
