"""A demo server over Streamable HTTP: what is answered, what is refused, and that nothing stays behind."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.waiting import at_most

from trunkline.demo.calc import CALC
from trunkline.demo.http_server import LARGEST_BYTES, HttpServer
from trunkline.demo.rpc import RpcServer

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with HttpServer(RpcServer(CALC)) as server:
        yield urlsplit(server.url).port or 0


@pytest.fixture
def wire(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=at_most(30))
    yield connection
    connection.close()


def send(
    wire: http.client.HTTPConnection, body: bytes = PING, *, method: str = "POST", path: str = "/mcp", **headers: str
) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    wire.request(method, path, body, JSON | named)
    reply = wire.getresponse()
    return reply.status, reply.read()


# What is answered -----------------------------------------------------------------------------------------------------


def test_requests_are_answered_with_json_on_one_connection(wire: http.client.HTTPConnection) -> None:
    for _ in range(3):
        status, body = send(wire)
        assert (status, json.loads(body)["result"]) == (200, {})
    wire.request("POST", "/mcp", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', JSON)
    reply = wire.getresponse()
    assert reply.headers["Content-Type"] == "application/json"
    assert "Mcp-Session-Id" not in reply.headers
    assert [tool["name"] for tool in json.loads(reply.read())["result"]["tools"]] == ["calculate", "convert"]


def test_notifications_and_answers_are_accepted(wire: http.client.HTTPConnection) -> None:
    assert send(wire, b'{"jsonrpc":"2.0","method":"notifications/initialized"}') == (202, b"")
    assert send(wire, b'{"jsonrpc":"2.0","id":1,"result":{}}') == (202, b"")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD", "OPTIONS"])
def test_there_is_nothing_but_post(wire: http.client.HTTPConnection, method: str) -> None:
    wire.request(method, "/mcp", headers={"Accept": "text/event-stream"})
    reply = wire.getresponse()
    assert (reply.status, reply.headers["Allow"], reply.read()) == (405, "POST", b"")
    assert send(wire)[0] == 200


def test_bad_json_is_an_answer_too(wire: http.client.HTTPConnection) -> None:
    status, body = send(wire, b"{nope")
    assert (status, json.loads(body)["error"]["code"]) == (200, -32700)


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_strangers_are_refused(wire: http.client.HTTPConnection, headers: dict[str, str]) -> None:
    assert send(wire, **headers)[0] == 403
    assert send(wire, b"", method="GET", **headers)[0] == 403
    assert send(wire)[0] == 200


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8000", "http://localhost", "http://[::1]:9"])
def test_pages_of_this_machine_are_welcome(wire: http.client.HTTPConnection, origin: str) -> None:
    assert send(wire, Origin=origin)[0] == 200


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"path": "/"}, 404),
        ({"path": "/mcp/x"}, 404),
        ({"Content_Type": "text/plain"}, 415),
        ({"MCP_Protocol_Version": "1999-01-01"}, 400),
        ({"MCP_Protocol_Version": "2025-06-18"}, 200),
    ],
)
def test_each_mistake_has_its_status(wire: http.client.HTTPConnection, change: dict[str, Any], status: int) -> None:
    assert send(wire, **change)[0] == status
    assert send(wire)[0] == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"Content-Length: {LARGEST_BYTES + 1}", b"413"),
        ("Content-Length: " + "9" * 5000, b"413"),
        ("Content-Length: " + "0" * 30 + "9" * 10, b"413"),
        ("Content-Length: -1", b"411"),
        ("Content-Length: x", b"411"),
        ("Transfer-Encoding: chunked", b"411"),
        ("X: y", b"411"),
    ],
)
def test_a_body_without_a_sound_length_ends_the_connection(port: int, head: str, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=at_most(30)) as raw:
        raw.sendall(f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode())
        reply = b"".join(iter(lambda: raw.recv(65536), b""))
    assert reply.split()[1] == status


def test_half_a_request_and_noise_do_no_harm(port: int, wire: http.client.HTTPConnection) -> None:
    for noise in (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nhalf", b"\0\0\0\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=at_most(30)) as raw:
            raw.sendall(noise)
    assert send(wire)[0] == 200


# Its end --------------------------------------------------------------------------------------------------------------


def test_it_ends_with_its_block_even_while_a_client_stays_connected() -> None:
    with HttpServer(RpcServer(CALC)) as server:
        assert server.url.startswith("http://127.0.0.1:"), "only this machine is listened to"
        port = urlsplit(server.url).port or 0
        wire = http.client.HTTPConnection("127.0.0.1", port, timeout=at_most(30))
        assert send(wire)[0] == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=at_most(30))
    wire.close()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_as_a_program_it_says_where_it_is_and_ends_when_told(number: signal.Signals, status: int) -> None:
    command = [sys.executable, "-P", "-m", "trunkline.demo", "calc", "--http", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = process.stderr.readline().strip()
        wire = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=at_most(30))
        assert send(wire)[0] == 200
        wire.close()
        process.send_signal(number)
        out, err = process.communicate(timeout=at_most(30))
    assert (process.returncode, out, err) == (status, "", "")


def test_a_port_that_is_taken_is_said_to_be(port: int) -> None:
    command = [sys.executable, "-P", "-m", "trunkline.demo", "calc", "--http", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(30))
    assert done.returncode == 1
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr
