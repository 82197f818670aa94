"""The report: places, order, and each problem once."""

from __future__ import annotations

from trunkline.config.report import Report, Span
from trunkline.core.errors import BAD_VALUE, UNKNOWN_KEY


def test_problems_come_in_file_order_with_their_place() -> None:
    report = Report("dir/file.yaml")
    report.error(BAD_VALUE, Span(9, 2, 9, 3), "later")
    report.warn(UNKNOWN_KEY, Span(1, 5, 1, 6), "earlier")
    report.error(BAD_VALUE, None, "the whole file")
    assert [problem.where for problem in report.in_file_order()] == [
        "dir/file.yaml",
        "dir/file.yaml:1:5",
        "dir/file.yaml:9:2",
    ]


def test_the_same_problem_at_the_same_place_is_kept_once() -> None:
    report = Report("f")
    for _ in range(3):
        report.error(BAD_VALUE, Span(1, 1, 1, 2), "wrong")
    assert len(report.in_file_order()) == 1


def test_only_errors_make_a_report_fail() -> None:
    report = Report("f")
    report.warn(BAD_VALUE, None, "odd")
    assert not report.failed
    report.error(BAD_VALUE, None, "wrong")
    assert report.failed


def test_a_message_that_quotes_too_much_is_cut() -> None:
    report = Report("f")
    report.error(BAD_VALUE, None, "x" * 10_000)
    assert len(report.in_file_order()[0].message) < 400
