"""A plugin made with `trunkline.plugin` under a host that is not ours: messages and calls of the real gRPC library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.plugin_messages import REAL
from tests.support.plugin_rig import JOBS
from tests.support.waiting import at_most

PATIENCE_S = at_most(15)


class Host:
    """The plugin's process, and a connection to where it said that it listens."""

    def __init__(self, folder: Path) -> None:
        environment = {
            "AWF_PLUGIN": "awf-plugin-v1",
            "PLUGIN_PROTOCOL_VERSIONS": "1",
            "PLUGIN_UNIX_SOCKET_DIR": str(folder),
        }
        environ = {"PATH": os.environ["PATH"], **environment}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, JOBS], env=environ, stdout=pipe, stderr=pipe, text=True)
        assert self.process.stdout is not None
        core, version, network, address, protocol, _ = self.process.stdout.readline().strip().split("|")
        assert (core, version, network, protocol) == ("1", "1", "unix", "grpc")
        assert Path(address).parent == folder
        self.channel = grpc.insecure_channel(f"unix:{address}")

    def ask(self, method: str, answer: str, request: Any = None) -> Any:
        data = b"" if request is None else request.SerializeToString()
        call = self.channel.unary_unary(f"/plugin.v1.{method}")
        return REAL[answer].FromString(call(data, timeout=PATIENCE_S))

    def close(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    try:
        yield host
    finally:
        host.close()


def test_it_can_be_asked_for_one_operation_does_its_work_and_ends_when_it_is_told(host: Host) -> None:
    assert host.ask("PluginService/GetInfo", "GetInfoResponse").name == "jobs"
    listed = host.ask("OperationService/ListOperations", "ListOperationsResponse").operations
    for operation in listed:
        wanted = REAL["GetOperationRequest"](name=operation.name)
        assert host.ask("OperationService/GetOperation", "GetOperationResponse", wanted).operation == operation
    with pytest.raises(grpc.RpcError) as refused:
        host.ask("OperationService/GetOperation", "GetOperationResponse", REAL["GetOperationRequest"](name="nothing"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    host.channel.unary_unary("/plugin.v1.PluginService/Init")(b"", timeout=PATIENCE_S)
    request = REAL["ExecuteRequest"](operation="both", inputs={"output": b'"hello"'})
    done = host.ask("OperationService/Execute", "ExecuteResponse", request)
    assert (done.success, done.output, done.data["length"]) == (True, "hello", b"5")
    host.channel.unary_unary("/plugin.v1.PluginService/Shutdown")(b"", timeout=PATIENCE_S)
    assert host.process.wait(PATIENCE_S) == 0
