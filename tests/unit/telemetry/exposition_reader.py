"""A strict reader of the Prometheus text format 0.0.4. It refuses what a lenient one would let pass."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL},)*(?:{LABEL})?)\}})? (NaN|[+-]Inf|[-+0-9.eE]+)")
COMMENT = re.compile(rf"# (HELP|TYPE) ({NAME}) (.*)")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
Sample = tuple[str, dict[str, str], float]


@dataclass
class Family:
    name: str
    help: str = ""
    type: str = ""
    samples: list[Sample] = field(default_factory=list)

    def value(self, suffix: str = "", **labels: str) -> float:
        [value] = [value for name, have, value in self.samples if name == self.name + suffix and have == labels]
        return value

    def buckets(self, **labels: str) -> dict[float, float]:
        return {
            float(have["le"]): value
            for name, have, value in self.samples
            if name.endswith("_bucket") and have == {**labels, "le": have["le"]}
        }


def read(page: bytes) -> dict[str, Family]:
    text = page.decode("utf-8")
    assert text.endswith("\n"), "the last line must end in a line feed"
    families: dict[str, Family] = {}
    current = Family("")
    for line in text[:-1].split("\n"):
        if comment := COMMENT.fullmatch(line):
            current = _comment(families, current, *comment.groups())
        else:
            _sample(current, line)
    for family in families.values():
        _check(family)
    return families


def _comment(families: dict[str, Family], current: Family, word: str, name: str, rest: str) -> Family:
    if word == "HELP":
        assert name not in families, f"{name} appears twice"
        families[name] = Family(name, help=_unescape(rest))
        return families[name]
    assert current.name == name and not current.type and not current.samples, f"TYPE of {name} is out of place"
    assert rest in SUFFIXES, f"{name} is of unknown type {rest}"
    current.type = rest
    return current


def _sample(family: Family, line: str) -> None:
    match = SAMPLE.fullmatch(line)
    assert match, f"not a sample: {line!r}"
    name, label_text, value = match[1], match[2] or "", match[match.lastindex or 0]
    assert family.type, f"{name} comes before its TYPE"
    assert name in [family.name + suffix for suffix in SUFFIXES[family.type]], f"{name} is not of {family.name}"
    pairs = [(label, _unescape(text)) for label, text in re.findall(LABEL, label_text)]
    labels = dict(pairs)
    assert len(labels) == len(pairs), f"a label twice in {line!r}"
    assert (name, labels) not in [(other, have) for other, have, _ in family.samples], f"{line!r} appears twice"
    family.samples.append((name, labels, float(value)))


def _check(family: Family) -> None:
    assert family.type and family.help, f"{family.name} lacks HELP or TYPE"
    assert family.samples, f"{family.name} is empty"
    if family.type == "counter":
        assert family.name.endswith("_total"), f"{family.name} should end in _total"
        assert all(value >= 0 for _, _, value in family.samples)
    if family.type == "histogram":
        for labels in [labels for name, labels, _ in family.samples if name.endswith("_count")]:
            buckets = family.buckets(**labels)
            assert list(buckets) == sorted(buckets) and list(buckets)[-1] == math.inf, "buckets out of order"
            assert list(buckets.values()) == sorted(buckets.values()), "buckets must be cumulative"
            assert buckets[math.inf] == family.value("_count", **labels)
            family.value("_sum", **labels)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)
