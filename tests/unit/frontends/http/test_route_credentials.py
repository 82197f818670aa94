"""Every route with every credential and every Host and Origin, on gateways with and without a client's token.

The golden file holds the status of each. A route that is not in it fails the test; `UPDATE_GOLDEN=1` writes it anew,
and then every changed line wants a reason. Of the many statuses enough are looked at that every two of route,
credential and surroundings meet; `TEST_ALL=1` looks at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from tests.support.http_wire import Wire
from tests.support.pairs import pairs
from tests.unit.frontends.rig import house

from trunkline.frontends.http.routes import ROUTES

GOLDEN = Path(__file__).parent / "golden"
CLIENT, OPERATOR = "cl1ent-token", "0perator-token"
TOKENS = {"without_client_token": "", "with_client_token": CLIENT}
"""The token that clients need, by the golden file that says what then holds."""
BODY = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'

pytestmark = pytest.mark.law

CREDENTIALS = {
    "none": [],
    "wrong": ["Authorization: Bearer nonsense"],
    "empty": ["Authorization: Bearer "],
    "client": [f"Authorization: Bearer {CLIENT}"],
    "operator": [f"Authorization: Bearer {OPERATOR}"],
    "basic": [f"Authorization: Basic {OPERATOR}"],
    "bare": [f"Authorization: {OPERATOR}"],
    "client2": [f"Authorization: Bearer {CLIENT}"] * 2,
    "operator2": [f"Authorization: Bearer {OPERATOR}"] * 2,
    "both": [f"Authorization: Bearer {CLIENT}", f"Authorization: Bearer {OPERATOR}"],
    "cookie": [f"Cookie: token={OPERATOR}; Authorization=Bearer {OPERATOR}"],
}
"""A 2 stands for the header sent twice."""

SURROUNDINGS = {
    "from a program": ("127.0.0.1", None),
    "from a page of our own": ("localhost:4747", "http://localhost:4747"),
    "with a foreign Host": ("evil.example", None),
    "with a Host that resolves to us (DNS rebinding)": ("127.0.0.1.nip.io:4747", "http://127.0.0.1.nip.io:4747"),
    "from a foreign page": ("127.0.0.1", "https://evil.example"),
    "from a page without an origin": ("127.0.0.1", "null"),
}


def _requests() -> Iterator[tuple[str, str]]:
    """Every route, HEAD for those that have GET, a method that no path has, and paths that nobody serves."""
    paths: dict[str, list[str]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, []).append(route.method)
    paths |= {"/nothing": ["GET"], "/api/nothing": ["POST"]}
    for path, methods in paths.items():
        for method in (*methods, *(["HEAD"] if "GET" in methods else []), "PATCH"):
            yield method, path


def _bytes(method: str, path: str, host: str, origin: str | None, credential: list[str]) -> bytes:
    target = path.replace("{name}", "s").replace("{id}", "s")
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(BODY)}", *([] if origin is None else [f"Origin: {origin}"]), *credential]
    return "\r\n".join([*lines, "", ""]).encode() + BODY


async def _status(port: int, request: bytes) -> int:
    """On a connection of its own: a stream would never let go of one."""
    async with await Wire.connect(port) as wire:
        await wire.send(request)
        return (await wire.read_head()).status


Cell = tuple[str, str, str]
"""What is asked under what heading of a golden file, with which credential."""


def _cells() -> list[Cell]:
    requests = [f"{method} {path}" for method, path in _requests()]
    return list(product(SURROUNDINGS, requests, CREDENTIALS))


async def _observed(folder: Path, token: str, cells: list[Cell]) -> dict[Cell, int]:
    observed: dict[Cell, int] = {}
    async with house(folder, token=token, operator_token=OPERATOR, sessions=100) as here:
        for cell in cells:
            title, request, credential = cell
            method, path = request.split(" ")
            observed[cell] = await _status(
                here.port, _bytes(method, path, *SURROUNDINGS[title], CREDENTIALS[credential])
            )
    return observed


def _written(observed: dict[Cell, int]) -> str:
    """A table for each heading."""
    parts: list[str] = []
    for title in SURROUNDINGS:
        parts += [f"== {title}", f"{'':<44}" + "".join(f"{name:>10}" for name in CREDENTIALS)]
        for method, path in _requests():
            request = f"{method} {path}"
            statuses = [observed[title, request, credential] for credential in CREDENTIALS]
            parts.append(f"{request:<44}" + "".join(f"{status:>10}" for status in statuses))
        parts.append("")
    return "\n".join(parts)


@pytest.mark.parametrize("name", TOKENS)
async def test_who_may_do_what(name: str, tmp_path: Path) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"routes_{name}.txt").write_text(_written(await _observed(tmp_path, TOKENS[name], _cells())))
    golden = {
        (title, f"{method} {path}", credential): status
        for title, method, path, statuses in _rows(name)
        for credential, status in statuses.items()
    }
    observed = await _observed(tmp_path, TOKENS[name], pairs(_cells(), lambda cell: cell))
    different = {cell: (golden.get(cell), status) for cell, status in observed.items() if golden.get(cell) != status}
    assert not different, "routes or credentials changed: UPDATE_GOLDEN=1, then read the difference"


# What the golden files must say, whoever updates them.


def _rows(name: str) -> Iterator[tuple[str, str, str, dict[str, int]]]:
    """Surroundings, method, path, and the status for each credential."""
    title = ""
    for line in (GOLDEN / f"routes_{name}.txt").read_text().splitlines():
        if line.startswith("== "):
            title = line[3:]
        elif re.match(r"[A-Z]+ /", line):
            method, path, *statuses = line.split()
            yield title, method, path, dict(zip(CREDENTIALS, map(int, statuses), strict=True))


@pytest.mark.parametrize("name", TOKENS)
def test_the_golden_files_keep_the_rules(name: str) -> None:
    credentials = {route.path: route.credential for route in ROUTES}
    seen = set()
    for title, method, path, statuses in _rows(name):
        seen.add((title, method, path))
        let_in = {credential for credential, status in statuses.items() if status not in (401, 403, 421)}
        kind = credentials.get(path, "client")
        if "foreign" in title or "rebinding" in title or "without an origin" in title:
            assert not let_in
        elif kind == "operator":
            assert let_in == {"operator"}, (path, let_in)
        elif kind == "client" and name == "with_client_token":
            assert let_in == {"client"}, (path, let_in)
        else:
            assert let_in == set(CREDENTIALS)
    assert {(title, *request) for title in SURROUNDINGS for request in _requests()} == seen
