"""Servers in common configurations: a client's file, npx, `localhost`, credentials, HTTPS, chained gateways."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fastmcp import Client
from tests.support.gateway import TRUNKLINE, Gateway, stdio_gateway, write_config
from tests.support.peers.programs import (
    EVERYTHING,
    NODE,
    NODE_PACKAGES,
    HttpPeer,
    StdioPeer,
    everything,
    fastmcp,
    sdk,
)
from tests.support.processes import alive, descendants
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.stdio_client import StdioClient
from tests.support.waiting import START_WAIT_S, until

TOKEN = "a-token-for-one-server"


def test_the_peers_are_where_the_project_installs_them() -> None:
    assert Path(NODE).exists()
    assert Path(EVERYTHING[1]).exists()


@pytest.mark.node
async def test_a_file_made_for_another_client_works_as_it_is(tmp_path: Path) -> None:
    """No section of ours in it; a server of each kind, with the keys that clients write."""
    with everything(tmp_path, "http", name="remote") as remote, everything(tmp_path, "sse", name="older") as older:
        assert isinstance(remote, HttpPeer) and isinstance(older, HttpPeer)
        servers = {
            "local": {"command": EVERYTHING[0], "args": [EVERYTHING[1], "stdio"], "env": {"A": "b"}, "timeout": 60000},
            "remote": {"type": "http", "url": remote.url},
            "older": {"type": "sse", "url": older.url},
            "off": {"command": "does-not-exist", "disabled": True},
        }
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        environment = {"HOME": str(tmp_path)}
        command = ["env", *(f"{name}={value}" for name, value in environment.items()), TRUNKLINE, "stdio", "-c"]
        async with StdioClient([*command, str(config)], tmp_path / "gateway.log") as client:
            await client.open()
            for server in ("local", "remote", "older"):
                assert (await client.call(f"{server}_echo", {"message": "hi"})).text == "Echo: hi", server
            assert json.loads((await client.call("local_get-env")).text)["A"] == "b"


@pytest.mark.law
@pytest.mark.node
@pytest.mark.slow
async def test_a_server_started_by_npx_works_and_leaves_nothing(tmp_path: Path) -> None:
    folder = NODE_PACKAGES.parents[1]
    path = f"{Path(NODE).parent}{os.pathsep}{os.environ['PATH']}"
    peer = StdioPeer(tmp_path, "peer", ["npx", "--no-install", "mcp-server-everything"], PATH=path)
    async with stdio_gateway(tmp_path, peer.entry(cwd=str(folder)), start_wait=START_WAIT_S) as client:
        await client.open()
        assert (await client.call("peer_echo", {"message": "hi"})).text == "Echo: hi"
        below = [process.pid for process in descendants(client.process.pid)]
        assert len(below) >= 3
        client.process.kill()
        await client.wait()
        await until(lambda: not any(map(alive, below)), "npx and what it started are gone")


@pytest.mark.law
@pytest.mark.node
async def test_a_server_sees_the_usual_environment_and_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_TOKEN", "ours-alone")
    monkeypatch.setenv("SOMEBODY_ELSES_KEY", "not-for-servers")
    monkeypatch.setenv("WANTED", "yes")
    peer = everything(tmp_path)
    peer.env["GIVEN"] = "${WANTED}"
    async with stdio_gateway(tmp_path, peer.entry(inherit_env=["WANTED"]), start_wait=START_WAIT_S) as client:
        await client.open()
        seen = json.loads((await client.call("peer_get-env")).text)
    assert seen["PATH"] == os.environ["PATH"]
    assert (seen["WANTED"], seen["GIVEN"]) == ("yes", "yes")
    assert not {"TRUNKLINE_TOKEN", "SOMEBODY_ELSES_KEY"} & seen.keys()


async def test_a_server_is_found_under_localhost(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, "peer") as peer:
        entry = {"peer": {"kind": "mcp_http", "url": f"http://localhost:{peer.port}/mcp"}}
        async with stdio_gateway(tmp_path, entry, start_wait=START_WAIT_S) as client:
            await client.open()
            assert (await client.call("peer_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.law
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_that_wants_a_credential_gets_the_configured_one_or_says_what_is_missing(
    transport: str, tmp_path: Path
) -> None:
    with fastmcp(tmp_path, transport, PEER_TOKEN=TOKEN) as peer:
        with_it = {"allowed": peer.entry(headers={"Authorization": f"Bearer {TOKEN}"})["peer"]}
        without = {"refused": peer.entry()["peer"]}
        async with stdio_gateway(tmp_path, with_it, without, start_wait=START_WAIT_S) as client:
            await client.open()
            assert (await client.call("allowed_add", {"a": 1, "b": 2})).structured["total"] == 3
            error = (await client.call("refused_add", {"a": 1, "b": 2})).error
            assert error["code"] == 503
            assert "refused" in error["message"] and "auth_required" in error["message"]
            assert "headers" in json.dumps(error["data"])
            assert TOKEN not in json.dumps(error)


@pytest.mark.law
async def test_a_gateway_with_a_token_takes_clients_that_have_it_and_no_others(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "peer").entry(), start_wait=START_WAIT_S, token=TOKEN) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        for mode in ("legacy", "auto"):
            async with Client(url, auth=TOKEN, mode=mode) as client:
                assert (await client.call_tool("peer_echo", {"a": 1})).structured_content == {"a": 1}, mode
        with pytest.raises(Exception, match="bearer token"):
            async with Client(url, auth="something else"):
                pass


async def test_a_server_behind_https_is_reached_when_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    with sdk(tmp_path, "http", PEER_CERTIFICATE=str(certificate)) as peer:
        assert isinstance(peer, HttpPeer)
        entry = {"peer": {"kind": "mcp_http", "url": peer.url.replace("http:", "https:")}}
        async with stdio_gateway(tmp_path, entry, start_wait=START_WAIT_S) as client:
            await client.open()
            error = (await client.call("peer_add", {"a": 1, "b": 2})).error
            assert error["code"] == 503
            assert "certificate" in error["message"].lower()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with stdio_gateway(tmp_path, entry, start_wait=START_WAIT_S) as client:
            await client.open()
            assert (await client.call("peer_add", {"a": 1, "b": 2})).structured["total"] == 3


def make_certificate(folder: Path) -> Path:
    """A key and a certificate for 127.0.0.1 that signs itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.law
async def test_a_gateway_may_stand_behind_a_gateway(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.mkdir()
    outer.mkdir()
    peer = StdioFaults(inner, "peer")
    command = [TRUNKLINE, "stdio", "-c", str(write_config(inner, peer.entry(), start_wait=START_WAIT_S))]
    async with stdio_gateway(outer, StdioPeer(outer, "in", command).entry(), start_wait=START_WAIT_S) as client:
        await client.open()
        assert "in_peer_echo" in await client.tool_names()
        assert (await client.call("in.peer_echo", {"a": 1})).structured == {"a": 1}
        assert (await client.call("in_peer_refuse", {"reason": "r"})).error["code"] == -32050
        await client.call("in_peer_progress", {"steps": 2}, meta={"progressToken": "mine"})
        tokens = [notice["params"]["progressToken"] for notice in client.notices if "progress" in notice["method"]]
        assert tokens == ["mine", "mine"]
        below = [process.pid for process in descendants(client.process.pid)]
        client.process.kill()
        await client.wait()
        await until(lambda: not any(map(alive, below)), "the inner gateway and its server are gone")
