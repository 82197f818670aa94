"""Addresses to listen on."""

from __future__ import annotations

import pytest
from tests.support.config_files import node_of, reader_for

from trunkline.config.problems import InvalidValue
from trunkline.config.value_types import ListenAddress
from trunkline.core.bind_address import BindAddress, is_loopback


def test_addresses_are_taken_apart_and_put_together() -> None:
    for text, listen in {
        "127.0.0.1:4747": BindAddress("127.0.0.1", 4747),
        "'[::1]:80'": BindAddress("::1", 80),
        "localhost:0": BindAddress("localhost", 0),
        "0.0.0.0:65535": BindAddress("0.0.0.0", 65535),
    }.items():
        assert ListenAddress().read(node_of(text), reader_for()) == listen
        assert str(listen) == text.strip("'")


def test_other_texts_are_refused() -> None:
    for text in ("localhost", "':80'", "1.2.3.4:70000", "http://x:80", "4747", "'::1:80'", "'a b:80'", "x:80x"):
        reader = reader_for()
        with pytest.raises(InvalidValue):
            ListenAddress().read(node_of(text), reader)
        assert reader.report.failed


def test_a_missing_host_gets_a_hint() -> None:
    reader = reader_for()
    with pytest.raises(InvalidValue):
        ListenAddress().read(node_of("':80'"), reader)
    assert "127.0.0.1:80" in reader.report.in_file_order()[0].hint


def test_only_certain_addresses_are_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "127.1", "127.0.0.1.evil.com", "localhost.x", ""))


def test_an_address_knows_who_reaches_it() -> None:
    assert BindAddress("127.0.0.1", 80).reaches("localhost", 80)
    assert BindAddress("0.0.0.0", 80).reaches("127.0.0.1", 80)
    assert BindAddress("gw.local", 80).reaches("gw.local", 80)
    assert not BindAddress("127.0.0.1", 80).reaches("127.0.0.1", 81)
    assert not BindAddress("127.0.0.1", 80).reaches("10.0.0.1", 80)
    assert not BindAddress("127.0.0.1", 0).reaches("127.0.0.1", 0)


def test_only_the_very_address_is_certain_to_be_ours() -> None:
    assert BindAddress("127.0.0.1", 80).is_at("127.0.0.1", 80)
    assert BindAddress("0.0.0.0", 80).is_at("127.0.0.1", 80)
    assert BindAddress("::", 80).is_at("::1", 80)
    assert BindAddress("GW.local", 80).is_at("gw.local", 80)
    for host in ("localhost", "::1", "127.0.0.9", "10.0.0.1"):
        assert not BindAddress("127.0.0.1", 80).is_at(host, 80)
    assert not BindAddress("0.0.0.0", 80).is_at("127.0.0.9", 80)
    assert not BindAddress("127.0.0.1", 0).is_at("127.0.0.1", 0)
