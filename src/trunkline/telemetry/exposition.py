"""The Prometheus text exposition format, version 0.0.4: families of samples to bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Literal

from trunkline.telemetry.safe_text import one_line

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LABEL_LIMIT: Final = 128

Kind = Literal["counter", "gauge", "histogram"]

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")


def labels(**values: str) -> str:
    """`source="a",tool="b"`, with the values escaped, in the order given."""
    return ",".join(f'{name}="{label_value(value)}"' for name, value in values.items())


def label_value(value: str) -> str:
    # `one_line` leaves neither line feeds nor other control characters: what remains to escape are these two.
    return one_line(value, LABEL_LIMIT).replace("\\", "\\\\").replace('"', '\\"')


def metric_name(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text)


def family(name: str, kind: Kind, help_text: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """A family of counters or gauges. `samples` are (labels, value); none of them, no family."""
    lines = [f"{_series(name, text)} {number(value)}\n" for text, value in samples]
    if lines:
        yield _header(name, kind, help_text)
        yield from lines


def histogram_family(
    name: str,
    help_text: str,
    bounds: Sequence[float],
    samples: Iterable[tuple[str, Sequence[int], float]],
) -> Iterator[str]:
    """`samples` are (labels, counts per bucket with the one beyond the last bound, sum)."""
    bucket_ends = [*map(number, bounds), "+Inf"]
    header = _header(name, "histogram", help_text)
    for text, counts, total in samples:
        yield header
        header = ""
        before_le = f"{text}," if text else ""
        up_to_here = list(accumulate(counts))
        for end, count in zip(bucket_ends, up_to_here, strict=True):
            yield f'{name}_bucket{{{before_le}le="{end}"}} {count}\n'
        yield f"{_series(name + '_sum', text)} {number(total)}\n"
        yield f"{_series(name + '_count', text)} {up_to_here[-1]}\n"


def number(value: float) -> str:
    if math.isfinite(value):
        return repr(int(value)) if value == int(value) else repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _series(name: str, label_text: str) -> str:
    return f"{name}{{{label_text}}}" if label_text else name


def _header(name: str, kind: Kind, help_text: str) -> str:
    escaped = help_text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n"
