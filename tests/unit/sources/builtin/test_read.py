from __future__ import annotations

import base64
import json
import os
import tracemalloc
from pathlib import Path

import pytest
from tests.support.builtin_tools import Workbench

from trunkline.sources.builtin.read import PICTURE_BYTES, ReadTool
from trunkline.sources.builtin.text_length import units
from trunkline.sources.builtin.tool import ToolFault

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


async def test_lines_come_with_their_numbers(bench: Workbench) -> None:
    bench.write("notes.txt", "first\n\n\tthird\n")
    assert await bench.text(ReadTool, path="notes.txt") == "     1\tfirst\n     2\t\n     3\t\tthird"


async def test_a_last_line_without_an_end_is_a_line(bench: Workbench) -> None:
    bench.write("notes.txt", "first\nlast")
    assert await bench.text(ReadTool, path="notes.txt") == "     1\tfirst\n     2\tlast"


@pytest.mark.parametrize("name", ["path", "file_path", "filePath", "absolute_path"])
async def test_the_path_goes_by_the_names_that_agents_know(bench: Workbench, name: str) -> None:
    bench.write("notes.txt", "first\n")
    assert await bench.text(ReadTool, **{name: "notes.txt"}) == "     1\tfirst"


async def test_a_part_is_asked_for_by_offset_and_limit(bench: Workbench) -> None:
    bench.write("ten", "".join(f"line {n}\n" for n in range(1, 11)))
    assert await bench.text(ReadTool, path="ten", offset=4, limit=2) == (
        "     4\tline 4\n     5\tline 5\n[Lines 4-5 of 10. Continue with offset=6]"
    )
    assert await bench.text(ReadTool, path="ten", offset=9) == (
        "     9\tline 9\n    10\tline 10\n[Lines 9-10 of 10, the end of the file]"
    )
    assert await bench.text(ReadTool, path="ten", limit=1) == "     1\tline 1\n[Line 1 of 10. Continue with offset=2]"
    assert (await bench.text(ReadTool, path="ten", offset=0)).startswith("     1\tline 1\n")
    assert (await bench.text(ReadTool, path="ten", offset="3", limit="1")).startswith("     3\tline 3\n")


async def test_a_part_beyond_the_end_says_how_long_the_file_is(bench: Workbench) -> None:
    bench.write("ten", "x\n" * 10)
    with pytest.raises(ToolFault, match="`ten` has 10 lines: there is no line 11"):
        await bench.use(ReadTool, path="ten", offset=11)
    bench.write("one", "x")
    with pytest.raises(ToolFault, match="`one` has 1 line: there is no line 2"):
        await bench.use(ReadTool, path="one", offset=2)


async def test_an_empty_file_is_said_to_be_empty(bench: Workbench) -> None:
    bench.write("empty")
    assert await bench.text(ReadTool, path="empty") == "[`empty` is empty]"


@pytest.mark.parametrize("line", ["", "x", "x" * 60, "x" * 1999, "x" * 5000, "é" * 3000, "𝄞" * 90, "𝄞" * 2500])
async def test_every_page_is_below_what_clients_cut_and_the_pages_are_the_file(bench: Workbench, line: str) -> None:
    count = 5000 if len(line) < 100 else 60
    bench.write("long", f"{line}\n" * count)
    seen, offset = 0, 1
    while True:
        page = await bench.text(ReadTool, path="long", offset=offset, limit=100_000)
        assert units(page) < 40_000
        assert page.count("\n") + 1 < 2_000
        numbers = [int(row.split("\t")[0]) for row in page.split("\n") if "\t" in row]
        assert numbers == list(range(offset, offset + len(numbers)))
        seen += len(numbers)
        if "Continue with offset=" not in page:
            break
        offset = int(page.split("Continue with offset=")[1].split("]")[0])
    assert seen == count


async def test_nobody_waits_for_the_end_of_a_line_without_end(bench: Workbench) -> None:
    path = bench.write("endless", "first\n" + "x" * 10_000)
    os.truncate(path, 1 << 42)
    page = await bench.text(ReadTool, path="endless")
    assert page.startswith("     1\tfirst\n     2\txxx")
    assert "[The file is not read beyond line 2, which is longer than 64 MB]" in page
    assert "Continue" not in page
    with pytest.raises(ToolFault, match=r"not read beyond line 2, .*: there is no line 3"):
        await bench.use(ReadTool, path="endless", offset=3)


async def test_a_very_long_line_is_cut_and_said_to_be(bench: Workbench) -> None:
    bench.write("min.js", "short\n" + "é" * 50_000 + "\nend\n")
    page = await bench.text(ReadTool, path="min.js")
    assert f"     2\t{'é' * 2000}… [cut: the line has 100,000 bytes]\n     3\tend\n" in page
    assert "[Cut after 2,000 characters: line 2. Grep finds what is further right]" in page
    assert "\ufffd" not in page


async def test_a_slice_of_a_huge_file_takes_little_memory(bench: Workbench) -> None:
    with bench.write("huge").open("wb") as file:
        for _ in range(64):
            file.write(b"x" * 1023 + b"\n" + b"y" * (1 << 20) + b"\n")
    tracemalloc.start()
    try:
        page = await bench.text(ReadTool, path="huge", offset=127, limit=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert page.startswith("   127\txxx")
    assert peak < 4_000_000


async def test_what_follows_in_a_file_of_gigabytes_is_not_counted(bench: Workbench) -> None:
    os.truncate(bench.write("sparse", "x" * 10_000 + "\nsecond\n"), 3_000_000_000)
    page = await bench.text(ReadTool, path="sparse", limit=1)
    assert "\n[Line 1. Continue with offset=2]" in page


async def test_pictures_are_returned_as_pictures(bench: Workbench) -> None:
    pictures = {
        "image/png": PNG,
        "image/jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00",
        "image/gif": b"GIF89a\x01\x00\x01\x00",
        "image/webp": b"RIFF\x24\x00\x00\x00WEBPVP8 ",
    }
    for mime_type, data in pictures.items():
        bench.write("picture.txt", data)  # the name does not matter
        assert (await bench.use(ReadTool, path="picture.txt"))["content"] == [
            {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type}
        ]


async def test_a_picture_that_is_too_large_says_so(bench: Workbench) -> None:
    bench.write("big.png", PNG + bytes(PICTURE_BYTES))
    with pytest.raises(ToolFault, match=r"`big.png` is a picture of 3,750 kB; up to 3,750 kB can be shown"):
        await bench.use(ReadTool, path="big.png")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"%PDF-1.7\n%abc\n", "is a PDF document (14 bytes), not a text file"),
        (b"PK\x03\x04" + bytes(20_000), "is a ZIP archive"),
        (b"\x7fELF\x02\x01", "is an ELF program or library"),
        (b"SQLite format 3\x00", "is an SQLite database"),
        (b"\x1f\x8b\x08", "is gzip-compressed data"),
        (b"plain\x00text", "is binary data"),
        (b"MZ\x90\x00", "is a Windows program"),
    ],
)
async def test_binary_files_are_named_and_not_shown(bench: Workbench, data: bytes, said: str) -> None:
    bench.write("thing", data)
    with pytest.raises(ToolFault) as caught:
        await bench.use(ReadTool, path="thing")
    assert f"`thing` {said}" in str(caught.value)


async def test_words_that_begin_like_binary_files_are_text(bench: Workbench) -> None:
    for words in ("MZ is where it starts", "ID3", "BZh", "OggS"):
        bench.write("words", words)
        assert await bench.text(ReadTool, path="words") == f"     1\t{words}"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
async def test_other_encodings_are_read_by_their_mark(bench: Workbench, encoding: str) -> None:
    lines = "".join(f"größe {n} ✨ 𝄞\n" for n in range(1, 20_001))
    bench.write("wide.txt", ("\ufeff" + lines).encode(encoding))
    page = await bench.text(ReadTool, path="wide.txt", offset=15_000, limit=2)
    assert page.startswith(" 15000\tgröße 15000 ✨ 𝄞\n 15001\tgröße 15001 ✨ 𝄞\n[Lines 15,000-15,001 of 20,000.")
    assert f"[The file is {encoding.upper()}]" in page


async def test_a_byte_order_mark_is_not_shown(bench: Workbench) -> None:
    bench.write("bom.txt", b"\xef\xbb\xbffirst\n")
    assert await bench.text(ReadTool, path="bom.txt") == "     1\tfirst"


async def test_bytes_that_are_no_text_are_replaced_and_said_to_be(bench: Workbench) -> None:
    bench.write("latin.txt", "caf\xe9\nok\n".encode("latin-1"))
    assert await bench.text(ReadTool, path="latin.txt") == (
        "     1\tcaf\ufffd\n     2\tok\n[Some bytes are not valid UTF-8; each is shown as \ufffd]"
    )


async def test_line_ends_of_windows_are_not_shown_but_said(bench: Workbench) -> None:
    bench.write("dos.txt", "first\r\nsecond\r\n")
    page = await bench.text(ReadTool, path="dos.txt")
    assert page == "     1\tfirst\n     2\tsecond\n[Lines end in CRLF, which is not shown; Edit and Write keep it]"


async def test_only_line_feeds_end_lines(bench: Workbench) -> None:
    bench.write("odd.txt", "a\rb\x0bc\x0cd\x85e\u2028f\n")
    assert await bench.text(ReadTool, path="odd.txt") == "     1\ta\rb\x0bc\x0cd\x85e\u2028f"


async def test_a_notebook_is_text(bench: Workbench) -> None:
    bench.write("book.ipynb", json.dumps({"cells": []}, indent=1))
    assert '     2\t "cells": []' in await bench.text(ReadTool, path="book.ipynb")


async def test_a_name_that_is_no_unicode_can_stand_in_an_answer(bench: Workbench) -> None:
    (bench.folder / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    with pytest.raises(ToolFault):
        await bench.use(ReadTool, path="caff.txt")


def test_the_definition_tells_an_agent_what_it_needs() -> None:
    tool = json.loads(ReadTool.definition)
    assert tool["name"] == "Read"
    assert tool["annotations"] == {
        "title": "Read a file",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert list(tool["inputSchema"]["properties"]) == ["path", "offset", "limit"]
    assert tool["inputSchema"]["required"] == ["path"]
    assert all(shape["description"] for shape in tool["inputSchema"]["properties"].values())
