"""Searching with whatever a client may send and whatever a server may offer: every call is answered, in bounded time
and memory, while other clients work on as if nothing were."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import Answer
from tests.support.catalogs import entry_of, stdio_server
from tests.support.client import HttpClient, encode
from tests.support.gateway import Gateway
from tests.support.pairs import IN_FULL
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import START_WAIT_S, at_most, until, wait_until

VAST_SERVER = str(Path(__file__).parents[1] / "support" / "large_catalog_server.py")
PATIENCE_S = at_most(30)
"""Far more than anything here takes, and no more than a call may take at all."""
SANE_MB = 500
MB = 1 << 20
ISSUE = "github_create_issue"


def vast(name: str, **options: Any) -> dict[str, dict[str, Any]]:
    args = ["-I", "-S", VAST_SERVER, json.dumps(options)]
    return {name: {"kind": "mcp_stdio", "command": sys.executable, "args": args, "sessions": "shared"}}


def usual(folder: Path) -> dict[str, dict[str, Any]]:
    return entry_of(stdio_server(folder, "github"), "echo", sessions="shared")


def searching(folder: Path, *servers: dict[str, dict[str, Any]]) -> Gateway:
    return Gateway(folder, usual(folder), *servers, meta_tools=True, disclosure="search", start_wait=START_WAIT_S)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with shared_gateway(searching(tmp_path_factory.mktemp("hostile"))) as gateway:
        wait_until(lambda: "github is ready" in gateway.log, "the server is up", START_WAIT_S)
        yield gateway


def memory_mb(gateway: Gateway) -> int:
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) // 1024


@asynccontextmanager
async def others_work_on(gateway: Gateway) -> AsyncIterator[None]:
    """Another client is answered all the time, and the gateway stays of a size."""
    done = asyncio.Event()
    count = 0

    async def work(client: HttpClient) -> None:
        nonlocal count
        while not done.is_set():
            async with asyncio.timeout(PATIENCE_S):
                answer = await client.call("github_echo", {"number": count})
            assert answer.structured == {"number": count}
            count += 1
            await asyncio.sleep(0.01)

    async with gateway.client() as client:
        working = asyncio.get_running_loop().create_task(work(client))
        try:
            yield
        finally:
            done.set()
            await working
    assert count > 0
    assert memory_mb(gateway) < SANE_MB


async def tried(client: HttpClient, tool: str, arguments: dict[str, Any] | bytes) -> Answer:
    """A call with these arguments, which may be bytes that no writer of JSON would make."""
    if not isinstance(arguments, bytes):
        arguments = encode(arguments)
    request = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%b","arguments":%b}}'
    number = client.next_id()
    async with asyncio.timeout(PATIENCE_S):
        reply = await client.post(request % (number, tool.encode(), arguments))
    answer = Answer(reply.events[-1] if reply.streamed else reply.body, [], reply)
    assert answer.id in (number, None)
    return answer


async def discovered(client: HttpClient, query: str, **more: Any) -> list[str]:
    answer = await tried(client, "discover_tools", {"query": query, **more})
    return [tool["tool_id"] for tool in json.loads(answer.text)["tools"]]


# What clients send ----------------------------------------------------------------------------------------------------

LONG_QUERIES = {
    "one word": "x" * MB,
    "many words": "create an issue " * (MB // 16),
    "all that fits": "word " * (39 * MB // 50),
    "different words": " ".join(f"w{number}" for number in range(MB // 8)),
    "control characters": "create\x00\x01\x1b[31m an\x7f issue\u202e\u200b\ufeff" + "\x00" * (MB // 2),
    "no letters": "\U0001f600\u0300" * (MB // 8),
    "blanks": "create an issue" + " \t\n\u2003" * (MB // 8),
    "capitals and digits": "aB1" * (MB // 3),
}


@pytest.mark.parametrize("query", LONG_QUERIES.values(), ids=LONG_QUERIES)
async def test_a_query_of_any_size_and_content_is_answered(gateway: Gateway, query: str) -> None:
    async with gateway.client() as client, others_work_on(gateway):
        answer = await tried(client, "discover_tools", {"query": query})
        assert "isError" not in answer.result
        assert len(answer.raw) < 100_000
        if query.startswith("create"):
            assert ISSUE in [tool["tool_id"] for tool in json.loads(answer.text)["tools"]]


async def test_a_query_over_the_limit_of_requests_is_refused_as_any_other_request(gateway: Gateway) -> None:
    async with gateway.client() as client:
        body = encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x" * (5 * MB)}})
        assert (await client.post(body)).status == 413


ODD_ARGUMENTS: dict[str, tuple[bytes, str]] = {
    "a lone surrogate": (b'{"query":"create an issue \\ud800"}', "not valid JSON"),
    "bytes that are no text": (b'{"query":"create an issue \xff\xfe"}', "any"),
    "an escaped NUL": (b'{"query":"create\\u0000an issue"}', ""),
    "a number for a query": (b'{"query":7}', "any"),
    "no query": (b"{}", "`query` is missing"),
    "blanks for a query": (b'{"query":" \\n\\t "}', "`query` is missing"),
    "a limit below 0": (b'{"query":"create an issue","limit":-1}', ""),
    "a huge limit": (b'{"query":"create an issue","limit":1000000000000}', ""),
    "a limit beyond numbers": (b'{"query":"create an issue","limit":%b}' % (b"9" * 5000), "any"),
    "half a limit": (b'{"query":"create an issue","limit":1.5}', "limit"),
    "a limit in words": (b'{"query":"create an issue","limit":"many"}', "limit"),
    "a text for tags": (b'{"query":"create an issue","tags":"code"}', ""),
    "junk for tags": (b'{"query":"create an issue","tags":["\\u0000","","%b",{"a":1}]}' % (b"t" * 100_000), "tags"),
    "very many tags": (b'{"query":"create an issue","tags":[%b]}' % b",".join([b'"t"'] * 100_000), ""),
    "tags nested deep": (b'{"query":"x","tags":%b%b}' % (b"[" * 5000, b"]" * 5000), "any"),
    "a name that is unknown": (b'{"query":"x","%b":1}' % (b"n" * 100_000), "it takes"),
    "a list for an object": (b"[1,2]", "any"),
    "nothing for an object": (b"null", "any"),
    "a handle that is none": (b'{"query":"x","session":"%b"}' % (b"s" * 1000), "`session` is a name"),
    "a handle of control characters": (b'{"query":"x","session":"\\u0000\\u001b"}', "`session` is a name"),
}


@pytest.mark.parametrize(("arguments", "refusal"), ODD_ARGUMENTS.values(), ids=ODD_ARGUMENTS)
async def test_odd_arguments_are_taken_or_refused_in_words(gateway: Gateway, arguments: bytes, refusal: str) -> None:
    async with gateway.client() as client:
        answer = await tried(client, "discover_tools", arguments)
        assert len(answer.raw) < 100_000
        if refusal == "any":
            assert answer.failed or "isError" in answer.result or answer.text
        elif refusal:
            assert refusal in (answer.error["message"] if answer.failed else answer.text)
            assert answer.failed or answer.result["isError"]
        else:
            assert "isError" not in answer.result
        assert not (await client.call("github_echo", {"a": 1})).failed


IDS: dict[str, Any] = {
    "a megabyte": "g" * MB,
    "a megabyte that looks like one": "github_" + "x" * MB,
    "control characters": "github_\x00create\x1b_issue\u202e",
    "a path": "../../etc/passwd",
    "empty": "",
    "blank": "   ",
    "dots": "." * 1000,
    "underscores": "_" * 1000,
}


@pytest.mark.parametrize("tool_id", IDS.values(), ids=IDS)
async def test_no_id_leads_anywhere_but_to_a_tool(gateway: Gateway, tool_id: str) -> None:
    async with gateway.client() as client, others_work_on(gateway):
        for tool in ("execute_tool", "execute_read_only_tool"):
            refused = await tried(client, tool, {"tool_id": tool_id, "arguments": {}})
            assert refused.error["code"] == -32602
            assert refused.executed == "no"
            assert len(refused.raw) < 2000
        given = await tried(client, "provision_tools", {"tool_ids": [tool_id]})
        assert len(given.raw) < 2000
        taken = await tried(client, "unprovision_tools", {"tool_ids": [tool_id]})
        assert len(taken.raw) < 2000
        for answer in (given, taken):
            assert not json.loads(answer.text).get("provisioned") if "isError" not in answer.result else answer.text


async def test_ten_thousand_ids_at_once_are_refused(gateway: Gateway) -> None:
    many = [f"github_tool_{number}" for number in range(10_000)]
    async with gateway.client() as client, others_work_on(gateway):
        for tool in ("provision_tools", "unprovision_tools"):
            answer = await tried(client, tool, {"tool_ids": many})
            assert answer.result["isError"] is True
            assert answer.text == "`tool_ids` has more than 200 entries"


@pytest.mark.parametrize("tokens", [-1, 0, 10**12, 10**30])
async def test_a_budget_beyond_reason_is_refused(gateway: Gateway, tokens: int) -> None:
    async with gateway.client() as client:
        answer = await tried(client, "provision_tools", {"tool_ids": [ISSUE], "context_tokens": tokens})
        assert answer.result["isError"] is True
        assert "context_tokens" in answer.text


async def test_very_many_handles_are_kept_within_bounds(gateway: Gateway) -> None:
    async with gateway.client() as client, others_work_on(gateway):
        for number in range(600):
            provision = {"tool_ids": [ISSUE], "session": f"handle-{number}"}
            assert json.loads((await tried(client, "provision_tools", provision)).text)["provisioned"]
        forgotten = await tried(client, "execute_tool", {"tool_id": ISSUE, "session": "handle-0"})
        assert "not provisioned" in forgotten.error["message"]
        assert not (await tried(client, "execute_tool", {"tool_id": ISSUE, "session": "handle-599"})).failed


async def test_many_clients_may_search_at_once(gateway: Gateway) -> None:
    async with gateway.client() as client, others_work_on(gateway):
        queries = [{"query": f"create an issue number {number} " + "padding " * 1000} for number in range(100)]
        answers = await asyncio.gather(*(tried(client, "discover_tools", query) for query in queries))
        assert all(json.loads(answer.text)["tools"] for answer in answers)


# What servers offer ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(150)
async def test_a_server_with_twenty_thousand_tools_is_searched(tmp_path: Path) -> None:
    with searching(tmp_path, vast("vast", tools=20_000)) as gateway:
        async with gateway.client() as client, others_work_on(gateway):
            found = await discovered(client, "export the satellite of a museum")
            assert found
            assert all("export_museum_satellite" in tool for tool in found)
            assert ISSUE in await discovered(client, "create an issue in a repository")
            whole = await tried(client, "discover_tools", {"query": "export", "limit": 10**9})
            assert len(whole.raw) < 100_000
            assert len(await client.tools()) < 100
            async with asyncio.timeout(PATIENCE_S):
                counted = await client.call("registry_summary")
            assert counted.structured["toolsByServer"]["vast"] == 20_000


async def test_descriptions_of_a_megabyte_cost_their_own_tools_only(tmp_path: Path) -> None:
    with searching(tmp_path, vast("wordy", tools=10, description_bytes=MB, page=2)) as gateway:
        async with gateway.client() as client, others_work_on(gateway):
            assert ISSUE in await discovered(client, "create an issue")
            answer = json.loads((await tried(client, "discover_tools", {"query": "export the invoice"})).text)
            (left_out,) = [tool for tool in answer["left_out"] if tool["tool_id"].startswith("wordy_export")]
            assert left_out["tokens"] > 100_000
            assert left_out["why"].startswith(f"needs {left_out['tokens']} tokens and")
            given = await tried(client, "provision_tools", {"tool_ids": [left_out["tool_id"]], "context_tokens": MB})
            assert json.loads(given.text)["provisioned"]
            assert left_out["tool_id"] in await client.tool_names()


async def test_schemas_nested_deep_are_searched_or_refused(tmp_path: Path) -> None:
    servers = (vast("deep", tools=20, depth=100), vast("abyss", tools=20, depth=500))
    with searching(tmp_path, *servers) as gateway:
        async with gateway.client() as client, others_work_on(gateway):
            assert any(tool.startswith("deep_export") for tool in await discovered(client, "export the invoice"))

            async def told() -> bool:
                return "abyss is down: the answer is not valid JSON: nested too deeply" in gateway.log

            await until(told, "a server whose list nobody can read is down, and why")
            assert not (await client.call("deep_get_warehouse_invoice_1", {})).failed


@pytest.mark.timeout(150)
async def test_a_server_that_changes_its_list_all_the_time_does_not_stop_searches(tmp_path: Path) -> None:
    servers = (vast("restless", tools=100, per_s=50), vast("vast", tools=5000 if IN_FULL else 2000))
    with searching(tmp_path, *servers) as gateway:
        async with gateway.client() as client, others_work_on(gateway):
            for _ in range(20 if IN_FULL else 8):
                assert ISSUE in await discovered(client, "create an issue in a repository")
                assert any(
                    tool.startswith("restless_") for tool in await discovered(client, "restless export", limit=50)
                )
            run = {"tool_id": "restless_export_warehouse_invoice_6", "arguments": {}}
            assert not (await tried(client, "execute_tool", run)).failed
