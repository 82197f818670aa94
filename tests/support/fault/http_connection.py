"""One accepted connection of the fault server over HTTP."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time

REASONS = {200: "OK", 202: "Accepted", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized"}
REASONS |= {404: "Not Found", 405: "Method Not Allowed", 502: "Bad Gateway"}


class Request:
    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body


class Connection:
    def __init__(self, sock: socket.socket, *, one_byte_at_a_time: bool) -> None:
        self.sock = sock
        self._buffer = b""
        self._sliced = one_byte_at_a_time
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read_request(self) -> Request | None:
        """The next request, or None at the end of the connection."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, target, _ = first.split(" ", 2)
        return Request(method, target, headers, self._read_body(headers))

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        return self._take(int(headers.get("content-length", 0)))

    def _read_chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            while b"\r\n" not in self._buffer and self._more():
                pass
            size, _, self._buffer = self._buffer.partition(b"\r\n")
            part = self._take(int(size.split(b";")[0], 16) + 2)[:-2]
            if not part:
                return b"".join(parts)
            parts.append(part)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size and self._more():
            pass
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _more(self) -> bool:
        try:
            data = self.sock.recv(1 << 16)
        except OSError:
            return False
        self._buffer += data
        return bool(data)

    def write(self, data: bytes) -> None:
        if not self._sliced:
            self.sock.sendall(data)
            return
        for index in range(len(data)):
            self.sock.sendall(data[index : index + 1])

    def respond(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.write(self.head(status, kind, {**(headers or {}), "Content-Length": str(len(body))}) + body)

    @staticmethod
    def head(status: int, kind: str, headers: dict[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {REASONS[status]}", f"Content-Type: {kind}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def wait_closed(self, seconds: float) -> bool:
        """Wait; True as soon as the peer has closed its side."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                readable = select.select([self.sock], [], [], min(left, 0.02))[0]
                if readable and not self.sock.recv(1, socket.MSG_PEEK):
                    return True
            except (OSError, ValueError):
                return True
            if readable:  # a pipelined request: not our business now
                time.sleep(min(left, 0.02))
        return False

    def reset(self) -> None:
        """Close so that the peer gets RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
