from __future__ import annotations

import pytest

from trunkline.telemetry.span import RemoteParent, read_parent, read_state

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("said", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
    ],
)
def test_a_parent_is_read(said: str, sampled: bool) -> None:
    assert read_parent({"traceparent": f'"{said}"'.encode()}) == RemoteParent(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "said",
    [
        b'""',
        b"7",
        b"null",
        b'"00-x"',
        f'"ff-{TRACE}-{SPAN}-01"'.encode(),
        f'"00-{TRACE}-{SPAN}-01-more"'.encode(),
        f'"00-{"0" * 32}-{SPAN}-01"'.encode(),
        f'"00-{TRACE}-{"0" * 16}-01"'.encode(),
        f'"00-{TRACE.upper()}-{SPAN}-01"'.encode(),
        f'"00-{TRACE}-{SPAN}-01\\n"'.encode(),
        f'"00-{TRACE}-{SPAN}"'.encode(),
    ],
)
def test_what_cannot_be_a_parent_is_none(said: bytes) -> None:
    assert read_parent({"traceparent": said}) is None


def test_nothing_said_is_no_parent() -> None:
    assert read_parent({}) is None


def test_a_state_is_text_of_bounded_length() -> None:
    assert read_state({"tracestate": b'"a=1,b=2"'}) == "a=1,b=2"
    for unfit in (b"7", b'""', b'"a\\n"', b'"%b"' % (b"x" * 513), '"ä"'.encode()):
        assert read_state({"tracestate": unfit}) == ""
    assert read_state({}) == ""
