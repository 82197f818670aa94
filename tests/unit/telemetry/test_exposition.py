from __future__ import annotations

import math

import pytest
from tests.unit.telemetry.exposition_reader import read

from trunkline.telemetry.exposition import family, histogram_family, label_value, labels, metric_name, number


def test_a_family_is_help_type_and_samples():
    text = "".join(family("a_total", "counter", "What it counts", [(labels(x="1", y="b"), 2.0), ("", 0.5)]))
    assert text == '# HELP a_total What it counts\n# TYPE a_total counter\na_total{x="1",y="b"} 2\na_total 0.5\n'


def test_a_family_without_samples_is_left_out():
    assert not list(family("a", "gauge", "Nothing", []))
    assert not list(histogram_family("a", "Nothing", [1.0], []))


def test_a_histogram_is_cumulative_and_ends_at_infinity():
    text = "".join(histogram_family("a", "Times", [0.5, 1.0], [(labels(s="x"), [1, 2, 3], 9.5)]))
    buckets = read(text.encode())["a"].buckets(s="x")
    assert buckets == {0.5: 1, 1.0: 3, math.inf: 6}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.25, "0.25"),
        (1e22, "10000000000000000000000"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
    ],
)
def test_numbers_are_written_as_the_format_wants_them(value, text):
    assert number(value) == text


def test_values_and_names_are_made_to_fit():
    assert label_value('a\\b"c\nd') == r"a\\b\"c\\nd"
    assert metric_name("refused clients-by.host") == "refused_clients_by_host"
