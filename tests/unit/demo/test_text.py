from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.support.mcp_dialogue import Dialogue, talking_to
from tests.support.waiting import until

from trunkline.demo.text import server

PROOFREAD = {"type": "ref/prompt", "name": "proofread"}
LETTER = {"name": "sign_letter", "arguments": {"text": "Dear all"}}


async def call(tool: str, **arguments: object) -> dict[str, Any]:
    async with talking_to(server) as client:
        return await client.call(tool, arguments)


async def text(tool: str, **arguments: object) -> str:
    return (await call(tool, **arguments))["content"][0]["text"]


async def ask(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    async with talking_to(server) as client:
        return await client.ask(method, params)


# Tools ----------------------------------------------------------------------------------------------------------------


async def test_characters_words_and_lines_are_counted() -> None:
    result = await call("count", text="one two\nthree")
    assert result["content"][0]["text"] == "13 characters, 3 words, 2 lines"
    assert result["structuredContent"] == {"characters": 13, "words": 3, "lines": 2}


async def test_a_text_is_turned_round() -> None:
    assert await text("reverse", text="live") == "evil"


async def test_a_diff_shows_what_changed() -> None:
    lines = (await text("diff", before="a\nb\nc", after="a\nB\nc")).splitlines()
    assert lines[:2] == ["--- before", "+++ after"]
    assert lines[3:] == [" a", "-b", "+B", " c"]
    assert await text("diff", before="a", after="a") == "The texts are the same"


async def test_texts_too_long_are_refused() -> None:
    assert "lines" in await text("diff", before="a\n" * 3000, after="")
    assert "200,000 characters" in await text("reverse", text="a" * 200_001)


async def test_every_occurrence_is_replaced_literally() -> None:
    result = await call("replace", text="a.b.c", find=".", replacement="--")
    assert result["structuredContent"] == {"text": "a--b--c", "replacements": 2}


async def test_replacing_neither_nothing_nor_without_bound() -> None:
    assert "`find`" in await text("replace", text="abc", find="", replacement="x")
    assert "longer" in await text("replace", text="a" * 100_000, find="a", replacement="b" * 100_000)


@pytest.mark.parametrize("algorithm", ["sha256", "sha1", "md5", "blake2b"])
async def test_a_hash_is_that_of_the_utf_8_bytes(algorithm: str) -> None:
    expected = hashlib.new(algorithm, "größe".encode()).hexdigest()
    assert await text("hash", text="größe", algorithm=algorithm) == expected


async def test_half_a_surrogate_pair_can_be_hashed_too() -> None:
    assert len(await text("hash", text="\ud800")) == 64


# The question to the user ---------------------------------------------------------------------------------------------


async def introduce(client: Dialogue, capabilities: dict[str, Any]) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {}}
    assert (await client.ask("initialize", params))["result"]["capabilities"]["prompts"] == {}


async def sign(client: Dialogue, reply: dict[str, Any]) -> dict[str, Any]:
    call = client.request("tools/call", LETTER)
    await until(lambda: client.notices("elicitation/create"), "the question")
    assert client.notices("elicitation/create")[0]["message"] == "Who signs the letter?"
    assert (await client.ask("ping"))["result"] == {}, "others are answered meanwhile"
    client.say({"jsonrpc": "2.0", "id": "server-1", **reply})
    return (await client.answer_to(call))["result"]


async def test_the_user_is_asked_who_signs() -> None:
    async with talking_to(server, greeted="") as client:
        await introduce(client, {"elicitation": {}})
        signed = await sign(client, {"result": {"action": "accept", "content": {"name": "Ada"}}})
    assert signed["content"][0]["text"] == "Dear all\n\nYours, Ada"


@pytest.mark.parametrize(
    "reply", [{"result": {"action": "decline"}}, {"result": None}, {"error": {"code": 1, "message": "no"}}]
)
async def test_a_user_who_does_not_answer_signs_nothing(reply: dict[str, Any]) -> None:
    async with talking_to(server, greeted="") as client:
        await introduce(client, {"elicitation": {}})
        assert (await sign(client, reply))["isError"]


async def test_a_client_that_hangs_up_meanwhile_signs_nothing() -> None:
    async with talking_to(server, greeted="") as client:
        await introduce(client, {"elicitation": {}})
        call = client.request("tools/call", LETTER)
        await until(lambda: client.notices("elicitation/create"), "the question")
        client.reader.feed_eof()
        assert (await client.answer_to(call))["result"]["isError"]


async def test_a_client_that_cannot_be_asked_is_not() -> None:
    async with talking_to(server, greeted="") as client:
        await introduce(client, {})
        assert (await client.call("sign_letter", {"text": "Dear all"}))["isError"]
        modern = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        assert (await client.ask_modern("tools/call", LETTER, **modern))["result"]["isError"]
    assert client.notices("elicitation/create") == []


# The prompt -----------------------------------------------------------------------------------------------------------


async def test_the_prompt_is_listed_and_filled_in() -> None:
    (prompt,) = (await ask("prompts/list"))["result"]["prompts"]
    got = (await ask("prompts/get", {"name": prompt["name"], "arguments": {"text": "helo"}}))["result"]
    (message,) = got["messages"]
    assert "plain style" in message["content"]["text"] and "helo" in message["content"]["text"]


async def test_styles_are_proposed() -> None:
    async def proposed(name: str, value: str) -> list[str]:
        params = {"ref": PROOFREAD, "argument": {"name": name, "value": value}}
        return (await ask("completion/complete", params))["result"]["completion"]["values"]

    assert await proposed("style", "F") == ["formal", "friendly"]
    assert await proposed("text", "") == []


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("prompts/get", {"name": "proofread"}, -32602),
        ("prompts/get", {"name": "proofread", "arguments": []}, -32602),
        ("prompts/get", {"name": "other"}, -32602),
        ("completion/complete", {"ref": {**PROOFREAD, "name": "other"}, "argument": {}}, -32602),
        ("completion/complete", {"ref": 1}, -32602),
        ("resources/list", {}, -32601),
        ("server/discover", {}, -32601),
    ],
)
async def test_what_cannot_be_answered_is_refused(method: str, params: dict[str, Any], code: int) -> None:
    assert (await ask(method, params))["error"]["code"] == code
