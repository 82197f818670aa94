from __future__ import annotations

import os
import socket

import pytest

from trunkline.runtime.supervisor_channel import Inbox, Outbox


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    with one, other:
        yield one, other


def test_what_was_sent_before_the_end_is_read_before_the_end_is_told(ends):
    outbox, inbox = Outbox(ends[0]), Inbox(ends[1])
    outbox.put(("exited", 1, 0))
    outbox.flush()
    ends[0].close()
    assert [message[:3] for message in inbox.read()] == [("exited", 1, 0)]
    with pytest.raises(EOFError):
        inbox.read()


def test_a_message_that_breaks_off_is_the_end(ends):
    inbox = Inbox(ends[1])
    ends[0].send((100).to_bytes(4, "big") + b"half")
    assert inbox.read() == []
    ends[0].close()
    with pytest.raises(EOFError):
        inbox.read()


def test_descriptors_that_were_never_sent_are_closed(ends):
    outbox = Outbox(ends[0])
    reader, writer = os.pipe()
    outbox.put(("spawn", 1, None), [writer])
    outbox.close()
    assert os.read(reader, 1) == b""
    os.close(reader)
