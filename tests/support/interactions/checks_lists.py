"""Checks of the rows about resources, prompts, completion, lists and server information."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from tests.support.interactions.checks_tools import unique
from tests.support.interactions.client import NOTHING, Client, Json, Refused
from tests.support.interactions.feature_data import (
    BLOB,
    OTHER,
    PIXEL,
    PROMPTS,
    RESOURCES,
    TEMPLATE,
    TEMPLATES,
    TEXT,
    WATCHED,
)
from tests.support.interactions.stage import Check, Stage, checks
from tests.support.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
KNOWN_URIS = {resource["uri"] for resource in RESOURCES}
KNOWN_PROMPTS = {prompt["name"] for prompt in PROMPTS}


# Resources ------------------------------------------------------------------------------------------------------------


@checks("resources.list")
async def resources_list(client: Client, _: Stage) -> None:
    resources = await client.resources()
    assert resources.keys() >= KNOWN_URIS
    assert resources[TEXT] == RESOURCES[0]
    assert resources[BLOB]["mimeType"] == "image/png"


@checks("resources.templates")
async def resources_templates(client: Client, _: Stage) -> None:
    assert await client.templates() == {template["uriTemplate"]: template for template in TEMPLATES}


@checks("resources.read")
async def resources_read(client: Client, _: Stage) -> None:
    read = await client.read(TEXT)
    (text,) = read["contents"]
    assert (text["uri"], text["mimeType"], text["text"]) == (TEXT, "text/plain", f"feature: {TEXT} version 1")
    assert text["_meta"] == {"feature.example/by": "feature"}
    assert read["_meta"]["feature.example/read"] is True
    (blob,) = (await client.read(BLOB))["contents"]
    assert (blob["uri"], blob["blob"]) == (BLOB, PIXEL)


@checks("resources.read_template")
async def resources_read_template(client: Client, _: Stage) -> None:
    (content,) = (await client.read("test://items/one/head"))["contents"]
    assert content["text"] == "feature: head of one"


@checks("resources.unknown")
async def resources_unknown(client: Client, _: Stage) -> None:
    with pytest.raises(Refused) as caught:
        await client.read("test://nowhere")
    assert caught.value.code == (-32602 if client.modern or client.hides_old_not_found else -32002)
    assert caught.value.data["uri"] == "test://nowhere"


@asynccontextmanager
async def watched(client: Client, stage: Stage) -> AsyncIterator[None]:
    """Ends when the server knows that nobody watches any more: clients do not wait until they are heard."""
    ended = f"unsubscribed {WATCHED}"
    before = stage.journal.lines.count(ended)
    async with client.watching([WATCHED]):
        yield
    await until(lambda: stage.journal.lines.count(ended) > before, "the server knows that nobody watches")


@checks("resources.updated")
async def resources_updated(client: Client, stage: Stage) -> None:
    async with watched(client, stage):
        version = (await client.call("touch", uri=WATCHED))["content"][0]["text"]
        await until(lambda: WATCHED in client.heard.updated(), "the update is heard")
        assert (await client.read(WATCHED))["contents"][0]["text"].endswith(version)
        assert set(client.heard.updated()) == {WATCHED}


@checks("resources.unwatched")
async def resources_unwatched(client: Client, stage: Stage) -> None:
    async with client.watching([OTHER]):
        async with watched(client, stage):
            await client.call("touch", uri=WATCHED)
            await until(lambda: WATCHED in client.heard.updated(), "the update is heard")
        heard = client.heard.updated().count(WATCHED)
        await client.call("touch", uri=WATCHED)
        await client.call("touch", uri=OTHER)
        await until(lambda: OTHER in client.heard.updated(), "the other update is heard")
        assert client.heard.updated().count(WATCHED) == heard


# Prompts --------------------------------------------------------------------------------------------------------------


@checks("prompts.list")
async def prompts_list(client: Client, _: Stage) -> None:
    prompts = await client.prompts()
    assert prompts.keys() >= KNOWN_PROMPTS
    expected = copy.deepcopy(PROMPTS[0])
    if client.drops_argument_titles:
        del expected["arguments"][0]["title"]
    assert {**prompts["greet"], "name": "greet"} == expected


@checks("prompts.get")
async def prompts_get(client: Client, _: Stage) -> None:
    prompt = await client.get_prompt("greet", {"name": "Ada", "style": "formal"})
    assert prompt["description"] == "a prompt of feature"
    assert prompt["_meta"]["feature.example/got"] is True
    (message,) = prompt["messages"]
    text = "feature: greet Ada in a formal style"
    assert message == {"role": "user", "content": {"type": "text", "text": text}}
    assert (await client.get_prompt("plain"))["messages"][0]["content"]["text"] == "feature: plain"


@checks("prompts.content")
async def prompts_content(client: Client, _: Stage) -> None:
    embedded, image = (message["content"] for message in (await client.get_prompt("picture"))["messages"])
    assert embedded["resource"] == {"uri": TEXT, "mimeType": "text/plain", "text": "embedded"}
    assert image == {"type": "image", "data": PIXEL, "mimeType": "image/png"}


@checks("prompts.unknown")
async def prompts_unknown(client: Client, _: Stage) -> None:
    with pytest.raises(Refused) as caught:
        await client.get_prompt("nonsense")
    assert caught.value.code == -32602
    assert "nonsense" in caught.value.message


# Completion -----------------------------------------------------------------------------------------------------------


@checks("completion.prompt")
async def completion_prompt(client: Client, _: Stage) -> None:
    ref = {"type": "ref/prompt", "name": client.named("greet")}
    assert await values(client, ref, "name", "A") == ["Ada"]
    assert await values(client, ref, "style", "f", {"name": "Ada"}) == ["formal", "friendly"]
    assert await values(client, ref, "style", "", {"name": "Bob"}) == ["loud"]


@checks("completion.template")
async def completion_template(client: Client, _: Stage) -> None:
    ref = {"type": "ref/resource", "uri": TEMPLATE}
    assert await values(client, ref, "id", "") == ["one", "two", "feature"]
    assert await values(client, ref, "part", "ha", {"id": "one"}) == ["hand"]


@checks("completion.unknown")
async def completion_unknown(client: Client, _: Stage) -> None:
    for ref in ({"type": "ref/prompt", "name": "nonsense"}, {"type": "ref/resource", "uri": "none://{x}"}):
        with pytest.raises(Refused) as caught:
            await client.complete(ref, {"name": "x", "value": ""})
        assert caught.value.code == -32602


async def values(client: Client, ref: Json, name: str, begun: str, context: dict[str, str] | None = None) -> list[str]:
    completion = (await client.complete(ref, {"name": name, "value": begun}, context))["completion"]
    assert completion["total"] == len(completion["values"])
    assert completion["hasMore"] is False
    return completion["values"]


# The server -----------------------------------------------------------------------------------------------------------


@checks("server.instructions")
async def server_instructions(client: Client, _: Stage) -> None:
    assert "These are the instructions of feature." in (await client.hello())["instructions"]


@checks("server.capabilities")
async def server_capabilities(client: Client, _: Stage) -> None:
    hello = await client.hello()
    assert (hello["version"] == "2026-07-28") == client.modern
    capabilities = hello["capabilities"]
    assert capabilities["tools"]["listChanged"] is True
    assert capabilities["prompts"]["listChanged"] is True
    assert capabilities["resources"] == {"listChanged": True, "subscribe": True}
    assert capabilities.keys() >= {"completions", "logging"}


@checks("server.ping")
async def server_ping(client: Client, _: Stage) -> None:
    await client.ping()


@checks("meta.both_ways")
async def meta_both_ways(client: Client, _: Stage) -> None:
    sent = {
        "client.example/note": {"deep": [1, "two", {"three": 3.5}]},
        "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
        "tracestate": "vendor=value",
        "baggage": "user=ada",
    }
    echoed = (await client.call("echo", meta=sent))["_meta"]
    assert echoed["client.example/note"] == sent["client.example/note"]
    assert echoed["feature.example/echoed-by"] == "feature"
    assert echoed["traceparent"].split("-")[1] == TRACE
    assert (echoed["tracestate"], echoed["baggage"]) == ("vendor=value", "user=ada")


# Lists ----------------------------------------------------------------------------------------------------------------


@checks("lists.pages")
async def lists_pages(client: Client, _: Stage) -> None:
    for method, key in (("tools/list", "name"), ("prompts/list", "name"), ("resources/list", "uri")):
        names = [item[key] for item in await client.list_all(method)]
        assert len(names) == len(set(names)) > 3
        with pytest.raises(Refused) as caught:
            await client.list_page(method, "made up")
        assert caught.value.code == -32602


@checks("lists.cache_hints")
async def lists_cache_hints(client: Client, stage: Stage) -> None:
    hints = {
        "tools/list": (60_000, "public"),
        "prompts/list": (50_000, "public"),
        "resources/list": (40_000, "private"),
        "resources/templates/list": (30_000, "public"),
    }
    for method, (longest_ms, scope) in hints.items():
        if stage.server_era == "modern":  # what was listed too long ago is asked for again when somebody lists it
            await until(partial(is_fresh, client, method), f"{method} is fresh")
        assert_hint(await client.list_page(method), longest_ms, scope, stage.server_era)
    assert_hint(await client.read(TEXT), 20_000, "public", stage.server_era)


async def is_fresh(client: Client, method: str) -> bool:
    return (await client.list_page(method))["ttlMs"] > 1000


def assert_hint(result: Json, longest_ms: int, scope: str, server_era: str) -> None:
    if server_era == "legacy":
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        return
    assert result["cacheScope"] == scope
    assert 0 < result["ttlMs"] <= longest_ms


def list_changed(kind: str) -> Check:
    async def check(client: Client, stage: Stage) -> None:
        # Callers without a session share the lists of the one connection to an old server that is there for all. Those
        # that can be asked something have others for their calls, so the call is made by one that cannot.
        if client.modern and stage.server_era == "legacy":
            async with stage.client(declares=NOTHING) as other:
                await change(client, kind, by=other)
        else:
            await change(client, kind, by=client)

    return check


async def change(client: Client, kind: str, by: Client) -> None:
    name = unique(f"grown-{client.kind}-{client.era}-{kind}").replace("-", "_")
    key = {"tools": name, "prompts": name, "resources": f"test://grown/{name}"}[kind]

    async def listed() -> bool:
        return key in await {"tools": client.tools, "prompts": client.prompts, "resources": client.resources}[kind]()

    assert not await listed()
    async with client.watching(lists=[kind]):
        await by.call("grow", kind=kind, name=name)
        await until(lambda: client.heard.changed(kind), f"the change of the {kind} is heard")
        await until(listed, f"the new one of the {kind} is listed")
    await use(by, kind, name)


async def use(client: Client, kind: str, name: str) -> None:
    if kind == "tools":
        assert (await client.call(name))["content"][0]["text"] == name
    elif kind == "prompts":
        assert (await client.get_prompt(name))["messages"][0]["content"]["text"] == f"feature: {name}"
    else:
        assert (await client.read(f"test://grown/{name}"))["contents"][0]["text"].startswith("feature: ")


for changing in ("tools", "prompts", "resources"):
    checks(f"lists.{changing}_changed")(list_changed(changing))
