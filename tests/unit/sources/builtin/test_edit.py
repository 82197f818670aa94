from __future__ import annotations

import asyncio
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.builtin_tools import Workbench

from trunkline.sources.builtin.edit import EditTool
from trunkline.sources.builtin.root import OutsideRoot
from trunkline.sources.builtin.tool import ToolFault

SCRIPT = """def first():
    return 1


def second():
    return 2


def third():
    return 1
"""


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    bench = Workbench(tmp_path / "root")
    bench.write("script.py", SCRIPT)
    return bench


async def fault(bench: Workbench, **arguments: object) -> str:
    before = {path: path.read_bytes() for path in bench.folder.rglob("*") if path.is_file()}
    with pytest.raises(ToolFault) as caught:
        await bench.use(EditTool, **arguments)
    assert before == {path: path.read_bytes() for path in bench.folder.rglob("*") if path.is_file()}
    return str(caught.value)


async def test_the_one_place_is_changed_and_shown(bench: Workbench) -> None:
    text = await bench.text(
        EditTool, path="script.py", old_string="    return 2\n", new_string="    two = 2\n    return two\n"
    )
    assert text == (
        "Edited `script.py` (line 6):\n"
        "     2\t    return 1\n     3\t\n     4\t\n     5\tdef second():\n"
        "     6\t    two = 2\n     7\t    return two\n"
        "     8\t\n     9\t\n    10\tdef third():\n    11\t    return 1"
    )
    assert (bench.folder / "script.py").read_text() == SCRIPT.replace("    return 2\n", "    two = 2\n    return two\n")


@pytest.mark.parametrize(
    "names", [("old", "new"), ("old_str", "new_str"), ("oldString", "newString"), ("old_string", "new_string")]
)
async def test_arguments_go_by_the_names_that_agents_know(bench: Workbench, names: tuple[str, str]) -> None:
    bench.write("script.py", SCRIPT)
    await bench.use(EditTool, file_path="script.py", **{names[0]: "second", names[1]: "zweite"})
    assert "def zweite():" in (bench.folder / "script.py").read_text()


async def test_a_text_can_be_taken_out(bench: Workbench) -> None:
    await bench.use(EditTool, path="script.py", old_string=SCRIPT, new_string="")
    assert (bench.folder / "script.py").read_text() == ""


async def test_what_occurs_often_is_not_changed_unless_all_of_it_is_meant(bench: Workbench) -> None:
    text = await fault(bench, path="script.py", old_string="return 1", new_string="return 3")
    assert text == (
        "`old_string` occurs 2 times in `script.py` (lines 2, 10); nothing was changed. "
        "Add lines around it so that it is unique, or set `replace_all`"
    )
    text = await bench.text(EditTool, path="script.py", old_string="return 1", new_string="return 3", replace_all=True)
    assert text.startswith(
        "Edited `script.py` in 2 places (lines 2, 10):\n     1\tdef first():\n     2\t    return 3\n"
    )
    assert (bench.folder / "script.py").read_text() == SCRIPT.replace("return 1", "return 3")


async def test_only_some_of_many_lines_are_named(bench: Workbench) -> None:
    bench.write("many", "x\n" * 1000)
    text = await fault(bench, path="many", old_string="x", new_string="y")
    assert "occurs 1,000 times" in text and "19, 20, …)" in text


@pytest.mark.parametrize(
    ("old", "text"),
    [
        ("return  2", "differs only in white space or quotation marks from line 6"),
        ("\treturn 2\n", "differs only in white space or quotation marks from line 6"),
        ("def second():\n  return 2", "differs only in white space or quotation marks from lines 5-6"),
        ("     5\tdef second():", "without the line numbers"),
        ("     5\tdef second():\n     6\t    return 2", "without the line numbers"),
        ("def second():\\n    return 2", "with real line breaks in place of the two characters `\\n`"),
        ("def secnod():", "The most similar line is 5: `def second():`"),
        ("nothing like it at all", "Read the file to see it as it is"),
        ("\n\n\n\n\n", "Read the file to see it as it is"),
    ],
)
async def test_what_does_not_occur_is_helped(bench: Workbench, old: str, text: str) -> None:
    answer = await fault(bench, path="script.py", old_string=old, new_string="# new")
    assert answer.startswith("`old_string` does not occur in `script.py`; nothing was changed. ")
    assert text in answer


async def test_curly_quotes_and_a_change_already_made_are_recognised(bench: Workbench) -> None:
    bench.write("say.py", 'print("hello")\n')
    text = await fault(bench, path="say.py", old_string="print(\u201chello\u201d)", new_string="x")
    assert "quotation marks from line 1" in text
    text = await fault(bench, path="say.py", old_string="print(nothing_yet_today)", new_string='print("hello")')
    assert "The new text is there already" in text


async def test_nothing_to_change_is_refused(bench: Workbench) -> None:
    text = await fault(bench, path="script.py", old_string="first", new_string="first")
    assert text == "`old_string` and `new_string` are the same: there is nothing to change"


async def test_an_empty_old_text_makes_a_file_only_where_there_is_none(bench: Workbench) -> None:
    assert await bench.text(EditTool, path="a/new.py", old_string="", new_string="x\n") == "Created `a/new.py`: 2 bytes"
    assert (bench.folder / "a/new.py").read_text() == "x\n"
    assert "`a/new.py` exists" in await fault(bench, path="a/new.py", old_string="", new_string="y")
    bench.write("empty")
    await bench.use(EditTool, path="empty", old_string="", new_string="filled")
    assert (bench.folder / "empty").read_text() == "filled"


async def test_a_file_that_is_not_there_is_not_made(bench: Workbench) -> None:
    assert "did you mean `script.py`?" in await fault(bench, path="scirpt.py", old_string="a", new_string="b")
    assert "there is no folder `new`" in await fault(bench, path="new/x.py", old_string="a", new_string="b")
    assert os.listdir(bench.folder) == ["script.py"]


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "\nb", "\nx\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\nb\nc\r\nd\r\n", "c\nd", "x\ny", b"a\nb\nx\r\ny\r\n"),
        (b"a\nb\nc\r\nd\r\n", "a\nb", "x\ny", b"x\ny\nc\r\nd\r\n"),
        (b"a\r\nb\r\nc\r\nd\ne\n", "d\ne", "x\ny", b"a\r\nb\r\nc\r\nx\ny\n"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"\xef\xbb\xbfa\n", "a", "\xe9", b"\xef\xbb\xbf\xc3\xa9\n"),
        ("\ufeffa\r\nb\r\n".encode("utf-16-be"), "a\nb", "é\nb", "\ufeffé\r\nb\r\n".encode("utf-16-be")),
        (b"caf\xe9 \xff\nb\n", "b", "x", b"caf\xe9 \xff\nx\n"),
        (b"no end", "end", "\n", b"no \n"),
        (b"a\rb\n", "b", "c", b"a\rc\n"),
    ],
)
async def test_line_ends_and_encodings_stay(bench: Workbench, before: bytes, old: str, new: str, after: bytes) -> None:
    path = bench.write("file", before)
    await bench.use(EditTool, path="file", old_string=old, new_string=new)
    assert path.read_bytes() == after


async def test_permissions_and_links_stay(bench: Workbench) -> None:
    (bench.folder / "script.py").chmod(0o750)
    (bench.folder / "link").symlink_to("script.py")
    await bench.use(EditTool, path="link", old_string="second", new_string="zweite")
    assert (bench.folder / "link").is_symlink()
    assert stat.S_IMODE((bench.folder / "script.py").stat().st_mode) == 0o750
    assert "zweite" in (bench.folder / "script.py").read_text()


@pytest.mark.law
async def test_nothing_outside_is_changed(bench: Workbench) -> None:
    outside = bench.folder.parent / "secret.py"
    outside.write_text(SCRIPT)
    (bench.folder / "out").symlink_to("../secret.py")
    for path in ("out", "../secret.py", str(outside)):
        with pytest.raises(OutsideRoot):
            await bench.use(EditTool, path=path, old_string="second", new_string="zweite")
    assert outside.read_text() == SCRIPT


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\x00b", "is binary data, which Edit cannot change"),
        (b"%PDF-1.7 a", "is a PDF document, which Edit cannot change"),
        (b"\x89PNG\r\n\x1a\na", "is a picture, which Edit cannot change"),
        (b"\xff\xfea\x00b", "is not valid UTF-16-LE"),
    ],
)
async def test_what_is_no_text_is_left_alone(bench: Workbench, data: bytes, text: str) -> None:
    bench.write("thing", data)
    assert text in await fault(bench, path="thing", old_string="a", new_string="b")


async def test_a_large_change_is_shown_in_part(bench: Workbench) -> None:
    text = await bench.text(
        EditTool, path="script.py", old_string="second", new_string="z" * 5000 + "\n" + "line\n" * 500
    )
    assert len(text) < 12_000
    assert "… [3,004 more characters]" in text
    assert text.endswith(" more lines of the change]")


async def test_edits_at_the_same_time_are_all_there_in_the_end(bench: Workbench) -> None:
    bench.write("list", "".join(f"item {n};\n" for n in range(40)))

    def change(n: int) -> None:
        asyncio.run(bench.use(EditTool, path="list", old_string=f"item {n};", new_string=f"done {n};"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(40)))
    assert (bench.folder / "list").read_text() == "".join(f"done {n};\n" for n in range(40))


def test_the_definition_says_that_it_destroys() -> None:
    tool = json.loads(EditTool.definition)
    assert (tool["name"], tool["inputSchema"]["required"]) == ("Edit", ["path", "old_string", "new_string"])
    hints = tool["annotations"]
    assert (hints["readOnlyHint"], hints["destructiveHint"], hints["idempotentHint"]) == (False, True, False)


async def test_a_text_that_overlaps_itself_is_not_unique(bench: Workbench) -> None:
    bench.write("ends", "}\n}\n}\n")
    text = await fault(bench, path="ends", old_string="}\n}\n", new_string="x\n")
    assert "occurs more than once, one overlapping the other, in `ends` (line 1)" in text


async def test_a_line_number_alone_is_not_the_text(bench: Workbench) -> None:
    assert "does not occur" in await fault(bench, path="script.py", old_string="     1\t", new_string="x")


async def test_a_text_that_occurs_millions_of_times_is_no_burden(bench: Workbench) -> None:
    bench.write("many", "a\n" + "ab" * 2_000_000)
    text = await fault(bench, path="many", old_string="a", new_string="b")
    assert "occurs 2,000,001 times in `many` (lines 1, 2)" in text
    text = await fault(bench, path="many", old_string="a", new_string="b" * 1_000_000, replace_all=True)
    assert text == "`many` would become larger than 20 MB; nothing was changed"


async def test_names_are_shown_in_one_line_and_without_codes_for_terminals(bench: Workbench) -> None:
    bench.write("a\nb\x1b[31m", "x")
    text = await fault(bench, path="a\nb\x1b[32m", old_string="x", new_string="y")
    assert text == r"`a\nb\x1b[32m` does not exist: did you mean `a\nb\x1b[31m`?"


async def test_bytes_that_are_no_text_stay_and_are_shown_as_read_shows_them(bench: Workbench) -> None:
    path = bench.write("latin", b"caf\xe9\n")
    assert (await bench.text(EditTool, path="latin", old_string="caf", new_string="Caf")).endswith("     1\tCaf\ufffd")
    assert path.read_bytes() == b"Caf\xe9\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "lines"),
    [
        ("a", "a", "", []),
        ("a\n", "a\n", "", []),
        ("a\nb", "b", "c", ["     1\ta", "     2\tc"]),
        ("a\nb\n", "b\n", "", ["     1\ta"]),
        ("\n\n\nx\n\n\n\n\n\n\n", "x", "y", [f"{n:>6}\t{'y' if n == 4 else ''}" for n in range(1, 9)]),
    ],
)
async def test_what_is_shown_ends_with_the_file(
    bench: Workbench, before: str, old: str, new: str, lines: list[str]
) -> None:
    bench.write("file", before)
    assert (await bench.text(EditTool, path="file", old_string=old, new_string=new)).split("\n")[1:] == lines
