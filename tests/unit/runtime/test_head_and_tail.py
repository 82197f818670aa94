from __future__ import annotations

import tracemalloc

import pytest

from trunkline.runtime.child_io import HeadAndTail


@pytest.mark.parametrize("chunk", [1, 3, 7, 64, 1000])
@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 29, 30, 31, 59, 60, 61, 500])
def test_the_beginning_and_the_end_are_kept_and_the_rest_is_counted(chunk: int, size: int) -> None:
    data = bytes(n % 251 for n in range(size))
    output = HeadAndTail(head_bytes=10, tail_bytes=20)
    for start in range(0, size, chunk):
        output.add(data[start : start + chunk])
    assert output.head == data[:10]
    assert output.tail == data[10:][-20:]
    assert output.dropped_bytes == max(0, size - 30)
    assert output.total_bytes == size
    assert output.total_lines == data.count(b"\n")


def test_a_flood_takes_no_more_memory_than_the_limits() -> None:
    output = HeadAndTail(head_bytes=1000, tail_bytes=10_000)
    data = b"x" * 5000
    tracemalloc.start()
    try:
        for _ in range(10_000):
            output.add(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert output.total_bytes == 50_000_000
    assert peak < 200_000
