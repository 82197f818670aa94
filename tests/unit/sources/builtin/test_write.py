from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path

import pytest
from tests.support.builtin_tools import Workbench
from tests.support.cases import case
from tests.support.users import an_ordinary_user

from trunkline.sources.builtin.edit import EditTool
from trunkline.sources.builtin.root import GatewayFiles, OutsideRoot
from trunkline.sources.builtin.tool import ToolFault
from trunkline.sources.builtin.write import WriteTool


@pytest.fixture(params=[False, True], ids=["openat2", "walk"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Workbench:
    folder = tmp_path / "root"
    folder.mkdir()
    return Workbench(folder, walk_only=request.param)


async def test_a_new_file_is_made_with_the_folders_it_needs(bench: Workbench) -> None:
    text = await bench.text(WriteTool, path="a/b/notes.txt", content="one\ntwo\n")
    assert text == "Created `a/b/notes.txt`: 2 lines, 8 bytes"
    assert (bench.folder / "a/b/notes.txt").read_text() == "one\ntwo\n"
    assert os.listdir(bench.folder / "a/b") == ["notes.txt"], "nothing else is left there"


async def test_a_new_file_has_the_usual_permissions(bench: Workbench) -> None:
    await bench.use(WriteTool, path="notes.txt", content="")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((bench.folder / "notes.txt").stat().st_mode) == 0o666 & ~umask


async def test_a_file_is_replaced_and_keeps_its_permissions(bench: Workbench) -> None:
    path = bench.write("run.sh", "old content\n")
    path.chmod(0o751)
    before = path.stat()
    text = await bench.text(WriteTool, path="run.sh", content="new\n")
    assert text == "Replaced `run.sh`: 1 line, 4 bytes (it had 12 bytes)"
    assert path.read_text() == "new\n"
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o751
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino, "another file in its place, so that nobody reads half of it"


async def test_a_file_keeps_its_owner_and_loses_the_bits_that_lend_it(bench: Workbench) -> None:
    path = bench.write("run.sh", "old")
    owner = (1234, 1235) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    path.chmod(0o6755)
    await bench.use(WriteTool, path="run.sh", content="new")
    assert (path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) == (*owner, 0o755)


async def test_who_reads_meanwhile_sees_the_old_file_whole(bench: Workbench) -> None:
    path = bench.write("data", "old" * 1000)
    with path.open() as file:
        await bench.use(WriteTool, path="data", content="new")
        assert file.read() == "old" * 1000


async def test_a_link_inside_is_written_through_and_stays_a_link(bench: Workbench) -> None:
    bench.write("real/file.txt", "old")
    (bench.folder / "link").symlink_to("real/file.txt")
    (bench.folder / "absolute").symlink_to(bench.folder / "real" / "file.txt")
    (bench.folder / "later").symlink_to("real/later.txt")
    for name in ("link", "absolute", "later"):
        await bench.use(WriteTool, path=name, content=name)
        assert (bench.folder / name).is_symlink()
        assert (bench.folder / name).read_text() == name
    assert (bench.folder / "real" / "later.txt").read_text() == "later"


@pytest.mark.law
async def test_nothing_is_written_or_made_outside(bench: Workbench) -> None:
    outside = bench.folder.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("safe")
    (bench.folder / "out").symlink_to(outside / "secret")
    (bench.folder / "outside").symlink_to("../outside")
    (bench.folder / "dangling").symlink_to("../made")
    evil = f"{bench.folder}-evil/new"
    for path in ("../new", "out", "outside/new", "outside/sub/new", evil, "/etc/new", "dangling", "a/../../new"):
        with case(path=path), pytest.raises(OutsideRoot):
            await bench.use(WriteTool, path=path, content="evil")
    assert (outside / "secret").read_text() == "safe"
    assert sorted(os.listdir(bench.folder.parent)) == ["outside", "root"]
    assert os.listdir(outside) == ["secret"]


async def test_another_name_of_the_same_file_keeps_its_content(bench: Workbench) -> None:
    outside = bench.folder.parent / "shared"
    outside.write_text("safe")
    os.link(outside, bench.folder / "hard")
    await bench.use(WriteTool, path="hard", content="new")
    assert outside.read_text() == "safe"
    assert (bench.folder / "hard").read_text() == "new"


async def test_what_is_no_regular_file_is_left_alone(bench: Workbench) -> None:
    (bench.folder / "folder").mkdir()
    os.mkfifo(bench.folder / "pipe")
    for path, text in (
        ("folder", "is a folder"),
        ("pipe", "is a pipe"),
        (".", "is a folder"),
        ("folder/", "names a folder"),
    ):
        with pytest.raises(ToolFault, match=text):
            await bench.use(WriteTool, path=path, content="x")
    assert sorted(os.listdir(bench.folder)) == ["folder", "pipe"]
    with pytest.raises(ToolFault, match="not a folder"):
        bench.write("file")
        await bench.use(WriteTool, path="file/below", content="x")


async def test_a_file_that_may_not_be_written_is_not_replaced_either() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        bench = Workbench(Path(folder))
        path = bench.write("fixed", "old")
        path.chmod(0o444)
        with an_ordinary_user(), pytest.raises(ToolFault, match="No permission for `fixed`"):
            await bench.use(WriteTool, path="fixed", content="new")
        assert path.read_text() == "old"
        os.chmod(folder, 0o555)
        with an_ordinary_user(), pytest.raises(ToolFault, match="No permission for `new`"):
            await bench.use(WriteTool, path="new", content="new")
        assert os.listdir(folder) == ["fixed"]


async def test_a_device_is_left_alone() -> None:
    for device in ("/dev/null", "/dev/full"):
        with pytest.raises(ToolFault, match="is a device"):
            await Workbench(Path("/")).use(WriteTool, path=device, content="x")


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\r\n"),
        (b"a\nb\n", "x\ny\n", b"x\ny\n"),
        (b"a\nb\n", "x\r\ny\r\n", b"x\r\ny\r\n"),
        (b"a\nb\nc\r\n", "x\ny\n", b"x\ny\n"),
        (b"one line", "x\ny\n", b"x\ny\n"),
        (b"b\r\na\n", "x\ny\n", b"x\ny\n"),
        (b"a\r\nb\r\nc\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffé\n", b"\xef\xbb\xbf\xc3\xa9\n"),
        (b"a\n", "\ufeffé\n", b"\xef\xbb\xbf\xc3\xa9\n"),
        (b"", "x\ny\n", b"x\ny\n"),
        (b"\xef\xbb\xbfa\n", "é\n", b"\xef\xbb\xbf\xc3\xa9\n"),
        ("\ufeffa\r\n".encode("utf-16-le"), "é\n", "\ufeffé\r\n".encode("utf-16-le")),
        (b"\x00\x01\r\n\r\n", "x\n", b"x\n"),
        (b"caf\xe9\n", "é\n", b"\xc3\xa9\n"),
    ],
)
async def test_a_file_keeps_its_line_ends_and_its_encoding(
    bench: Workbench, before: bytes, content: str, after: bytes
) -> None:
    path = bench.write("file", before)
    text = await bench.text(WriteTool, path="file", content=content)
    assert path.read_bytes() == after
    assert ("CRLF line endings" in text) == (before.startswith((b"a\r", b"\xff")))


async def test_arguments_go_by_the_names_that_agents_know(bench: Workbench) -> None:
    await bench.use(WriteTool, file_path="a", content="1")
    await bench.use(WriteTool, filePath="b", file_text="2")
    assert (bench.folder / "a").read_text() + (bench.folder / "b").read_text() == "12"


def test_the_definition_says_that_it_destroys() -> None:
    tool = json.loads(WriteTool.definition)
    assert (tool["name"], tool["inputSchema"]["required"]) == ("Write", ["path", "content"])
    hints = tool["annotations"]
    assert (hints["readOnlyHint"], hints["destructiveHint"], hints["idempotentHint"]) == (False, True, True)


@pytest.mark.law
async def test_what_says_what_the_gateway_runs_is_written_by_nobody_here(tmp_path: Path) -> None:
    fixed = [str(tmp_path / "root" / name) for name in ("trunkline.yaml", ".awf/plugins.yaml")]
    bench = Workbench(tmp_path / "root", own=GatewayFiles(files=fixed))
    config = bench.write("trunkline.yaml", "sources: {}\n")
    (bench.folder / "link").symlink_to("trunkline.yaml")
    for path in ("trunkline.yaml", "./trunkline.yaml", "link", str(config), ".awf/plugins.yaml"):
        with case(path=path), pytest.raises(ToolFault, match="decides what this gateway runs"):
            await bench.use(WriteTool, path=path, content="sources: {evil: {command: evil}}\n")
    with pytest.raises(ToolFault, match="decides what this gateway runs"):
        await bench.use(EditTool, path="trunkline.yaml", old_string="{}", new_string="{evil: {command: evil}}")
    assert config.read_text() == "sources: {}\n"
    assert not (bench.folder / ".awf/plugins.yaml").exists()


async def test_a_configuration_that_is_a_link_is_not_written_where_it_leads_either(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "root", own=GatewayFiles(files=[str(tmp_path / "config")]))
    real = bench.write("real.yaml", "sources: {}\n")
    (tmp_path / "config").symlink_to(real)
    with pytest.raises(ToolFault, match="decides what this gateway runs"):
        await bench.use(WriteTool, path="real.yaml", content="x")
    await bench.use(WriteTool, path="sub/real.yaml", content="x")
