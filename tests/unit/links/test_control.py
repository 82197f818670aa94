from __future__ import annotations

import os
import socket

import pytest

from trunkline.links.control import Inbox, Outbox


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    with one, other:
        yield one, other


def test_messages_arrive_whole_and_in_order(ends):
    outbox, inbox = Outbox(ends[0]), Inbox(ends[1])
    sent = [("spawn", 1, ([b"a", b""], {b"K": b"\xff"}, None)), ("stop", 2, (0.5, 2.0)), ("kill", 3, None)]
    for message in sent:
        outbox.put(message)
    assert outbox.flush()
    assert [received[:3] for received in inbox.read()] == sent
    assert inbox.read() == []


def test_a_message_larger_than_the_socket_takes_several_turns(ends):
    outbox, inbox = Outbox(ends[0]), Inbox(ends[1])
    body = os.urandom(3_000_000)
    outbox.put(("spawn", 1, body))
    outbox.put(("kill", 1, None))
    received = []
    done, turns = False, 0
    while not done:
        done = outbox.flush()
        received += inbox.read()
        turns += 1
    received += inbox.read()
    assert turns > 1
    assert [message[:3] for message in received] == [("spawn", 1, body), ("kill", 1, None)]


def test_descriptors_come_with_their_own_message_and_are_not_inherited(ends):
    outbox, inbox = Outbox(ends[0]), Inbox(ends[1])
    reader, writer = os.pipe()
    outbox.put(("stop", 1, None))
    outbox.put(("spawn", 2, None), [writer])
    outbox.put(("kill", 3, None))
    assert outbox.flush()
    by_child = {child: descriptors for _, child, _, descriptors in inbox.read()}
    assert by_child[1] == by_child[3] == []
    [copy] = by_child[2]
    assert not os.get_inheritable(copy)
    os.write(copy, b"through")
    assert os.read(reader, 10) == b"through"
    os.close(copy)
    assert os.read(reader, 10) == b"", "the sender closed its own copy"
    os.close(reader)


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


def test_sending_to_nobody_raises(ends):
    outbox = Outbox(ends[0])
    ends[1].close()
    outbox.put(("kill", 1, None))
    with pytest.raises(OSError, match="Broken pipe"):
        outbox.flush()


def test_descriptors_that_were_never_sent_are_closed(ends):
    outbox = Outbox(ends[0])
    reader, writer = os.pipe()
    outbox.put(("spawn", 1, None), [writer])
    outbox.close()
    assert os.read(reader, 1) == b""
    os.close(reader)
