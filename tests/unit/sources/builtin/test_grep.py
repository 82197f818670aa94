from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
from tests.support.builtin_tools import Workbench
from tests.support.searching import SearchBench, lasting

from trunkline.core.errors import PART_MISSING, GatewayError
from trunkline.sources.builtin.grep import Grep
from trunkline.sources.builtin.text_size import units
from trunkline.sources.builtin.tool import ToolFault


@pytest.fixture
def bench(tmp_path: Path) -> SearchBench:
    return SearchBench(tmp_path)


async def lines(bench: Workbench, **arguments: object) -> list[str]:
    return (await bench.text(Grep, **arguments)).split("\n")


async def test_by_default_the_files_come_the_one_changed_last_first(bench: Workbench) -> None:
    for age, name in enumerate(["b.py", "a.py", "sub/c.py"]):
        os.utime(bench.write(name, "needle\nneedle\n"), (1_700_000_000 - age,) * 2)
    bench.write("other.py", "hay\n")
    assert await lines(bench, pattern="need.e") == ["b.py", "a.py", "sub/c.py"]


@lasting
async def test_content_is_shown_with_path_and_number(bench: Workbench) -> None:
    bench.write("b.py", "one\ntwo needle\n")
    bench.write("a.py", "needle\n")
    assert await lines(bench, pattern="needle", output_mode="content") == ["a.py:1:needle", "b.py:2:two needle"]
    assert await lines(bench, pattern="needle", output_mode="content", **{"-n": False}) == [
        "a.py:needle",
        "b.py:two needle",
    ]


async def test_counts_are_of_lines(bench: Workbench) -> None:
    bench.write("a", "x x\nx\n\n")
    bench.write("b", "x\n")
    bench.write("c", "y\n")
    assert await lines(bench, pattern="x", output_mode="count") == ["a:2", "b:1"]


@lasting
async def test_lines_around_a_match(bench: Workbench) -> None:
    bench.write("a", "".join(f"{number}\n" for number in range(1, 21)))
    expected = ["a-4-4", "a:5:5", "a:6:6", "a-7-7", "--", "a-14-14", "a:15:15", "a-16-16"]
    assert await lines(bench, pattern="^(5|6|15)$", output_mode="content", context_lines=1) == expected
    assert await lines(bench, pattern="^(5|6|15)$", output_mode="content", **{"-C": 1}) == expected
    assert await lines(bench, pattern="^3$", output_mode="content", **{"-A": 2}) == ["a:3:3", "a-4-4", "a-5-5"]
    assert await lines(bench, pattern="^3$", output_mode="content", **{"-B": 9}) == ["a-1-1", "a-2-2", "a:3:3"]
    assert await lines(bench, pattern="^[35]$", output_mode="content", context_lines=1) == [
        "a-2-2", "a:3:3", "a-4-4", "a:5:5", "a-6-6",
    ]  # fmt: skip


@lasting
async def test_a_folder_a_file_globs_and_types_narrow_it(bench: Workbench) -> None:
    for name in ("a.py", "a.ts", "sub/b.py", "sub/b.test.ts", "sub/deep/c.py"):
        bench.write(name, "x\n")
    search = {"pattern": "x", "output_mode": "count"}
    assert await lines(bench, **search, path="sub") == ["sub/b.py:1", "sub/b.test.ts:1", "sub/deep/c.py:1"]
    assert await lines(bench, **search, path="sub/b.py") == ["sub/b.py:1"]
    assert await lines(bench, **search, glob="*.ts") == ["a.ts:1", "sub/b.test.ts:1"]
    assert await lines(bench, **search, glob="*.ts !*.test.ts") == ["a.ts:1"]
    assert await lines(bench, **search, glob="sub/*.py") == ["sub/b.py:1"]
    assert await lines(bench, **search, glob="*.{py,rs}", path="sub") == ["sub/b.py:1", "sub/deep/c.py:1"]
    assert await lines(bench, **search, glob="deep/**", path="sub") == ["sub/deep/c.py:1"]
    assert await lines(bench, **search, glob="sub/deep/**", path="sub") == ["sub/deep/c.py:1"]
    assert await lines(bench, **search, type="py", path="sub") == ["sub/b.py:1", "sub/deep/c.py:1"]
    assert await lines(bench, **search, type="py", glob="b.*") == ["sub/b.py:1"]


@lasting
async def test_ignored_binary_and_version_control_files_are_not_searched(bench: Workbench) -> None:
    for name in ("a.log", "b.py", ".git/c", ".env", "node_modules/d.py", "sub/e.log"):
        bench.write(name, "x\n")
    bench.write("binary", b"x\n\0x\n")
    bench.write(".gitignore", "*.log\nnode_modules\n")
    bench.write("sub/.gitignore", "!e.log\n")
    search = {"pattern": "^x", "output_mode": "count"}
    assert await lines(bench, **search) == [".env:1", "b.py:1", "sub/e.log:1"]
    assert await lines(bench, **search, glob="*.log") == ["sub/e.log:1"]
    assert await lines(bench, **search, path="sub") == ["sub/e.log:1"]
    assert await lines(bench, **search, path="a.log") == ["a.log:1"]
    assert (await bench.text(Grep, pattern="x", path="binary")).startswith("No match for `x` in `binary`")


@lasting
async def test_a_pattern_over_several_lines(bench: Workbench) -> None:
    bench.write("a", "one\nbegin\nmiddle\nend\nlast\nbegin end\n")
    search = {"pattern": "begin.*?end", "multiline": True}
    assert await lines(bench, **search, output_mode="content") == [
        "a:2:begin",
        "a:3:middle",
        "a:4:end",
        "a:6:begin end",
    ]
    assert await lines(bench, **search, output_mode="content", context_lines=1) == [
        "a-1-one", "a:2:begin", "a:3:middle", "a:4:end", "a-5-last", "a:6:begin end",
    ]  # fmt: skip
    assert await lines(bench, **search, output_mode="count") == ["a:2"]
    with pytest.raises(ToolFault, match="set `multiline` to true"):
        await bench.use(Grep, pattern="begin\\nmiddle")


@lasting
async def test_case_can_be_ignored(bench: Workbench) -> None:
    bench.write("a", "Straße ÄRGER\n")
    assert await lines(bench, pattern="ärger", **{"-i": True}) == ["a"]
    assert (await bench.text(Grep, pattern="ärger")).startswith("No match")


@lasting
async def test_pages_of_lines_follow_each_other(bench: Workbench) -> None:
    bench.write("a", "".join(f"x{number}\n" for number in range(10)))
    search = {"pattern": "x", "output_mode": "content"}
    assert await lines(bench, **search, head_limit=2) == ["a:1:x0", "a:2:x1", "[8 more lines. Continue with offset=2]"]
    assert await lines(bench, **search, limit=2, offset=8) == ["a:9:x8", "a:10:x9"]
    assert await lines(bench, **search, offset=10) == ["Nothing is left at offset=10"]


async def test_what_is_left_is_counted_up_to_a_point(bench: Workbench) -> None:
    bench.write("a", "x\n" * 5_000)
    text = await bench.text(Grep, pattern="x", output_mode="content", limit=10)
    assert text.endswith("[At least 500 more lines. Continue with offset=10]")


@lasting
@pytest.mark.parametrize("letter", ["n", "𝄞"])
async def test_every_page_is_below_what_clients_cut(bench: Workbench, letter: str) -> None:
    folder = letter * (200 // len(letter.encode()))
    for number in range(400):
        bench.write(f"{folder}/{number}", f"x{letter * 3000}\nx\n" * 5)
    for mode in ("content", "files_with_matches", "count"):
        text = await bench.text(Grep, pattern="x", output_mode=mode, limit=0, path=folder)
        assert units(text) < 40_000, mode
        assert text.count("\n") < 2_000, mode
        assert "Continue with offset=" in text, mode


async def test_long_lines_are_cut_around_what_was_found(bench: Workbench) -> None:
    bench.write("a", "-" * 5_000 + "needle" + "-" * 5_000 + "\n")
    (line,) = await lines(bench, pattern="needle", output_mode="content")
    assert len(line) < 600
    assert "needle" in line
    assert line.endswith("[line of 10,006 characters, cut]")


@lasting
async def test_line_ends_and_encodings_of_other_systems(bench: Workbench) -> None:
    bench.write("crlf", b"one\r\ntwo\r\n")
    bench.write("utf16", "two\n".encode("utf-16"))
    bench.write("bom", b"\xef\xbb\xbftwo\n")
    bench.write("latin", b"two \xe9\n")
    assert await lines(bench, pattern="^two", output_mode="content") == [
        "bom:1:two", "crlf:2:two", "latin:1:two \ufffd", "utf16:1:two",
    ]  # fmt: skip
    assert await lines(bench, pattern="two$", output_mode="count") == ["bom:1", "crlf:1", "utf16:1"]


async def test_more_files_than_are_opened_at_a_time(bench: Workbench) -> None:
    for number in range(450):
        bench.write(f"{number:03}", "x\n")
    found = await lines(bench, pattern="x", output_mode="content", limit=0)
    assert found == [f"{number:03}:1:x" for number in range(450)]


@lasting
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("foo(", r"\n    .*foo\(.*\n +\^"),
        ("[z-a]", r"\n    .*\[z-a\].*\n +\^"),
        ("*x", r"\n    .*\*x.*\n +\^"),
        ("x" * 5000, "longer than 4,000 bytes"),
    ],
)
async def test_a_pattern_that_is_none_is_refused_with_its_place(bench: Workbench, pattern: str, reason: str) -> None:
    bench.write("a", "x\n")
    with pytest.raises(ToolFault, match=reason):
        await bench.use(Grep, pattern=pattern)
    with pytest.raises(ToolFault, match=reason):
        await bench.use(Grep, pattern=pattern, path="a")


@lasting
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"path": "nothing"}, "does not exist"),
        ({"path": "../x"}, "outside the root"),
        ({"type": "pyton"}, "did you mean `python`"),
        ({"type": "zzzzzz"}, "can be named with `glob`"),
        ({"type": "p\0y"}, "can be named with `glob`"),
        ({"type": "pyton", "path": "a"}, "did you mean `python`"),
        ({"glob": "[a"}, "never closed"),
        ({"output_mode": "json"}, "must be one of"),
        ({"unknown": 1}, "Unknown argument `unknown`"),
    ],
)
async def test_what_cannot_be_done_is_explained(bench: Workbench, arguments: dict[str, str], reason: str) -> None:
    bench.write("a", "x\n")
    with pytest.raises(ToolFault, match=reason):
        await bench.use(Grep, pattern="x", **arguments)


def test_the_definition_says_that_it_only_reads() -> None:
    definition = json.loads(Grep.definition)
    assert definition["annotations"]["readOnlyHint"] is True
    properties = definition["inputSchema"]["properties"]
    assert {"pattern", "path", "glob", "context_lines", "output_mode"} < set(properties)
    assert properties["output_mode"]["enum"] == ["files_with_matches", "content", "count"]


@lasting
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"(?i)straße|ÄRGER", ["a:1:Straße", "a:2:ärger"]),
        (r"(?<=foo)bar", ["a:3:foobar"]),
        (r"^(\w)\1$", ["a:4:ee"]),
        (r"\p{Cyrillic}", ["a:5:ж"]),
        (r"[[:digit:]&&[^0]]", ["a:6:7"]),
    ],
)
async def test_patterns_are_those_of_ripgrep_with_pcre2(bench: Workbench, pattern: str, expected: list[str]) -> None:
    bench.write("a", "Straße\närger\nfoobar\nee\nж\n7\n0\n")
    assert await lines(bench, pattern=pattern, output_mode="content") == expected


async def test_all_types_of_ripgrep_are_known(bench: Workbench) -> None:
    bench.write("a.adoc", "x\n")
    bench.write("b", "x\n")
    assert await lines(bench, pattern="x", type="asciidoc") == ["a.adoc"]


# -- where there is no ripgrep -----------------------------------------------------------------------------------------


async def test_without_ripgrep_searches_are_refused_with_a_code_and_the_server_says_so(bench: SearchBench) -> None:
    async with bench.lasting():
        with pytest.raises(GatewayError) as raised:
            await bench.text(partial(Grep, find=lambda: None), pattern="x")
        note = await Grep(bench.place, find=lambda: None).prepare()
        well = await Grep(bench.place).prepare()
    assert raised.value.problem.code is PART_MISSING
    assert raised.value.problem.hint
    assert note is not None
    assert not note.usable
    assert well is None
