"""A demo server over Streamable HTTP: what is answered, what is refused, and that nothing stays behind."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.waiting import at_most

from trunkline.demo.calc import server
from trunkline.demo.clock import server as clock
from trunkline.demo.http_server import LARGEST_BYTES, serving_http

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving_http(server) as url:
        yield urlsplit(url).port or 0


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


def test_what_several_clients_send_at_once_is_answered_apart(port: int) -> None:
    """Nothing tells clients apart, so they may use the same ids."""
    with ThreadPoolExecutor(8) as clients:
        answers = clients.map(partial(calculate, port), range(40))
        assert [answer["result"]["structuredContent"]["value"] for answer in answers] == [n + 1 for n in range(40)]


def calculate(port: int, number: int) -> Any:
    params = {"name": "calculate", "arguments": {"expression": f"{number} + 1"}}
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=at_most(30))
    status, body = send(
        wire, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    )
    wire.close()
    assert status == 200
    return json.loads(body)


def test_messages_over_several_lines_and_several_messages_at_once_are_answered(
    wire: http.client.HTTPConnection,
) -> None:
    status, body = send(
        wire, b'[{"jsonrpc":"2.0","id":1,"method":"ping"},\r\n{"jsonrpc":"2.0","id":2,"method":"nope"}]\n'
    )
    assert status == 200
    assert [(one["id"], one.get("error", {}).get("code")) for one in json.loads(body)] == [(1, None), (2, -32601)]


def test_other_features_are_there_and_progress_is_left_out() -> None:
    read = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "clock://now/UTC"}}
    params = {"name": "count_down", "arguments": {"seconds": 1}, "_meta": {"progressToken": 1}}
    count = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    with serving_http(clock) as url:
        wire = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=at_most(30))
        answers = [json.loads(send(wire, json.dumps(message).encode())[1]) for message in (read, count)]
        wire.close()
    assert answers[0]["result"]["contents"][0]["uri"] == "clock://now/UTC"
    assert answers[1]["result"]["content"][0]["text"] == "1 seconds are over"


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


def test_an_empty_body_is_refused(wire: http.client.HTTPConnection) -> None:
    assert send(wire, b"")[0] == 400


def test_half_a_request_and_noise_do_no_harm(port: int, wire: http.client.HTTPConnection) -> None:
    for noise in (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nhalf", b"\0\0\0\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=at_most(30)) as raw:
            raw.sendall(noise)
    assert send(wire)[0] == 200


# Its end --------------------------------------------------------------------------------------------------------------


def test_it_ends_with_its_block_even_while_a_client_stays_connected() -> None:
    with serving_http(server) as url:
        assert url.startswith("http://127.0.0.1:"), "only this machine is listened to"
        port = urlsplit(url).port or 0
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
