"""Other programs' references put into our own form."""

from __future__ import annotations

from pathlib import Path

from tests.support.config_files import node_of, reader_for

from trunkline.config.dialects.references import EditorReferences, read_reference_file, rewrite_node
from trunkline.config.problems import TextSpan
from trunkline.config.reader import escape_references
from trunkline.config.tree import ListNode, Scalar, Table

PLACE = TextSpan(1, 1, 1, 2)


def text(written: str) -> Scalar:
    return Scalar(PLACE, "text", written)


def test_text_that_stands_as_it_is_survives_being_read() -> None:
    reader = reader_for({"A": "1"})
    for written in ("${A}", "$${A}", "$$${A}", "${", "$", "a${A}b${", "${A:-x}"):
        assert reader.text(text(escape_references(written))) == written


def test_only_texts_are_rewritten_and_every_place_is_kept() -> None:
    node = node_of("{'${A}': ['${env:A}', 5, true, {b: 'x'}], c: ~}")
    rewritten = rewrite_node(node, EditorReferences(reader_for({}), Path("/w"), plain=True))
    assert isinstance(node, Table)
    assert isinstance(rewritten, Table)
    assert rewritten.entries[0].key is node.entries[0].key
    before, after = node.entries[0].value, rewritten.entries[0].value
    assert isinstance(before, ListNode)
    assert isinstance(after, ListNode)
    assert [item.span for item in after.items] == [item.span for item in before.items]
    assert [item.text for item in after.items if isinstance(item, Scalar)] == ["${A}", "5", "true"]


def test_a_workspace_with_an_odd_name_is_taken_as_it_is() -> None:
    reader = reader_for({"A": "1"})
    references = EditorReferences(reader, Path("/w/${A}$"), plain=True)
    for written, meant in (
        ("${workspaceFolder}/x", "/w/${A}$/x"),
        ("${workspaceFolder}${A}", "/w/${A}$1"),
        ("${workspaceFolder:x}", "/w/${A}$"),
        ("${workspaceFolderBasename}", "${A}$"),
    ):
        assert reader.text(text(references(text(written)))) == meant


def test_what_stands_in_a_file_is_no_reference_itself(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("  ${A}\n")
    reader = reader_for({"A": "1"}, folder=str(tmp_path))
    references = EditorReferences(reader, tmp_path, plain=True)
    assert reader.text(text(references(text("<${file:f}>")))) == "<${A}>"
    assert references(text("${file:f}")) != "${A}"


def test_a_file_that_cannot_be_read_gives_nothing_and_a_problem(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    reader = reader_for()
    for path in (tmp_path / "locked", tmp_path / "none", Path("a\0b")):
        assert read_reference_file(text(""), path, reader) is None
    assert {problem.code.id for problem in reader.report.in_file_order()} == {"TL100"}
