"""Sandboxed commands that try to reach the gateway: through its ports, its sockets and other processes."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import Client
from tests.support.gateway import Gateway
from tests.support.shared_gateway import shared_gateway, visiting
from tests.support.waiting import until

pytestmark = [pytest.mark.law, pytest.mark.needs("bash"), pytest.mark.needs("bwrap"), pytest.mark.needs("perl")]

TOKEN = "door-key-12345678"
TO_PORTS = 'for at in "$@"; do (exec 3<>/dev/tcp/$at) 2>/dev/null && echo reached $at; done; true'
TO_SOCKETS = """perl -MSocket -e 'for my $at (@ARGV) {
socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die; (my $name = $at) =~ s/^@/\\0/;
print "reached $at\\n" if connect($s, pack_sockaddr_un($name)) }' -- "$@\""""
TO_ITSELF = """perl -MSocket -e 'socket(my $s, PF_INET, SOCK_STREAM, 0) or die "no socket\\n";
bind($s, sockaddr_in(0, INADDR_LOOPBACK)) and listen($s, 1) or die; socket(my $c, PF_INET, SOCK_STREAM, 0) or die;
print connect($c, getsockname($s)) ? "reached itself" : "no way: $!"' 2>&1"""

FAMILIES = """perl -MSocket -e 'for my $family (0..63) {
for my $kind (SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET) {
socket(my $s, $family, $kind, 0) and print("$family\n"), last } }'"""


class Scene:
    """A gateway that listens on every address, on a socket in the root and, for apps, on one in another folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.run = self.root / "run"
        self.more = folder / "more"
        for made in (self.run, self.more):
            made.mkdir(parents=True)
        sources = {
            "usual": self._bash("required"),
            "auto": self._bash("auto"),
            "on": self._bash({"mode": "required", "network": "on", "folders": {str(self.more): "rw"}}),
            "off": self._bash({"mode": "required", "network": "off"}),
            "apps": {"kind": "app", "listen": str(self.more / "apps.sock")},
        }
        self.gateway = Gateway(folder, sources, socket=str(self.run / "gateway.sock"), token=TOKEN)
        text = self.gateway.config.read_text()
        self.gateway.config.write_text(text.replace('"127.0.0.1:', '"0.0.0.0:'))

    def _bash(self, sandbox: Any) -> dict[str, Any]:
        return {"kind": "builtin", "root": str(self.root), "sandbox": sandbox, "tools": {"allow": ["Bash"]}}

    @property
    def ports(self) -> list[str]:
        hosts = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "0.0.0.0", "localhost", *own_addresses()]
        return [f"{host}/{self.gateway.port}" for host in hosts]

    @property
    def sockets(self) -> list[str]:
        return [str(self.run / "gateway.sock"), str(self.more / "apps.sock")]


def own_addresses() -> list[str]:
    """Of this machine towards the rest of the world, where it has any; nothing is sent for that."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError:
            return []
        return [asking.getsockname()[0]]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("sandbox"))
    with shared_gateway(scene.gateway):
        yield scene


@pytest.fixture
def abstract() -> Iterator[str]:
    """The name of a socket that is in no folder, as D-Bus and others have them."""
    name = f"trunkline-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        yield f"@{name}"


def authorized_client(scene: Scene) -> Any:
    return visiting(scene.gateway, headers={"Authorization": f"Bearer {TOKEN}"})


async def said(client: Client, source: str, command: str) -> str:
    answer = await client.call(f"{source}.Bash", {"command": command})
    return answer.text


def trying(script: str, places: list[str]) -> str:
    return f"set -- {' '.join(map(shlex.quote, places))}; {script}"


@pytest.mark.parametrize("source", ["usual", "auto", "off"])
async def test_without_being_asked_for_there_is_no_way_to_our_ports_and_sockets(
    scene: Scene, source: str, abstract: str
) -> None:
    async with authorized_client(scene) as client:
        await until(Path(scene.sockets[1]).exists, "apps can dial")
        assert await said(client, source, trying(TO_PORTS, scene.ports)) == "(no output)"
        assert await said(client, source, trying(TO_SOCKETS, [*scene.sockets, abstract])) == "(no output)"


async def test_with_the_network_ports_are_reached_and_our_sockets_still_are_not(scene: Scene, abstract: str) -> None:
    async with authorized_client(scene) as client:
        await until(Path(scene.sockets[1]).exists, "apps can dial")
        reached = await said(client, "on", trying(TO_PORTS, scene.ports))
        assert f"reached 127.0.0.1/{scene.gateway.port}" in reached, "else the other tests show nothing"
        reached = await said(client, "on", trying(TO_SOCKETS, [*scene.sockets, abstract]))
        assert reached == f"reached {abstract}"


async def test_our_socket_is_not_found_again_by_moving_its_folder(scene: Scene) -> None:
    moved = scene.root / "moved"
    async with authorized_client(scene) as client:
        for source in ("usual", "on"):
            await said(client, source, f"mv {scene.run} {moved}; mkdir -p {scene.run}; ln {scene.run}/* .")
            places = [str(folder / "gateway.sock") for folder in (scene.run, moved, scene.root)]
            assert await said(client, source, trying(TO_SOCKETS, places)) == "(no output)"
    assert Path(scene.sockets[0]).is_socket()


async def test_a_command_reaches_a_server_of_its_own_unless_it_has_no_network_at_all(scene: Scene) -> None:
    async with authorized_client(scene) as client:
        assert await said(client, "usual", TO_ITSELF) == "reached itself"
        assert await said(client, "on", TO_ITSELF) == "reached itself"
        assert "no socket" in await said(client, "off", TO_ITSELF)


async def test_a_command_opens_no_socket_that_knows_no_network_namespaces(scene: Scene) -> None:
    """By VSOCK, for one, a virtual machine reaches its host."""
    confined = {socket.AF_UNIX, socket.AF_NETLINK}
    async with authorized_client(scene) as client:
        for source, more in (("usual", {socket.AF_INET, socket.AF_INET6}), ("off", set[int]())):
            opened = set(map(int, (await said(client, source, FAMILIES)).split()))
            assert opened <= confined | more, source
            assert opened >= {socket.AF_UNIX, socket.AF_NETLINK, *more} - {socket.AF_INET6}, source
