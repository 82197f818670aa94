"""Checks of the rows about server requests."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.interactions.checks_tools import unique
from tests.support.interactions.client import (
    NOTHING,
    ROOTS,
    Client,
    Json,
    Person,
    Question,
    Refused,
    declining,
    text_of,
)
from tests.support.interactions.feature_data import ASKING
from tests.support.interactions.stage import Stage, checks
from tests.support.waiting import until


@checks("questions.sampling")
async def sampling(client: Client, _: Stage) -> None:
    thought = (await client.call("think", about="engines"))["structuredContent"]
    assert thought["content"]["text"] == "thought about engines"
    assert thought["model"] == "parrot"
    assert thought["stopReason"] == "endTurn"
    (question,) = client.person.asked
    assert question.params["maxTokens"] == 100
    assert question.params["systemPrompt"] == "Be brief."


@checks("questions.form")
async def form(client: Client, _: Stage) -> None:
    answer = (await client.call("survey", question="Who are you?"))["structuredContent"]
    assert (answer["action"], answer["content"]) == ("accept", {"name": "Ada", "age": 36, "colour": "green"})
    (question,) = client.person.asked
    assert question.text == "Who are you?"
    schema = question.params["requestedSchema"]
    assert schema["required"] == ["name", "age", "colour"]
    assert schema["properties"]["age"] == {"type": "integer", "minimum": 0, "maximum": 150}
    assert schema["properties"]["colour"]["default"] == "green"


@checks("questions.declined")
async def declined(client: Client, _: Stage) -> None:
    client.person.answer = declining
    answer = (await client.call("survey", question="May I?"))["structuredContent"]
    assert answer["action"] == "decline"
    assert "content" not in answer


@checks("questions.url")
async def url(client: Client, _: Stage) -> None:
    page = f"https://example.com/{unique('sign-in')}"
    answer = (await client.call("sign_in", url=page))["structuredContent"]
    assert answer["action"] == "accept"
    (question,) = client.person.asked
    assert (question.params["mode"], question.params["url"]) == ("url", page)
    assert question.text == "Please sign in"
    if not client.modern:
        assert question.params["elicitationId"]


@checks("questions.url_first")
async def url_first(client: Client, _: Stage) -> None:
    name = unique(f"{client.kind}-{client.era}")
    if client.modern:
        assert text_of(await client.call("gate", name=name)) == f"{name} went through"
        (question,) = client.person.asked
        assert question.params["url"] == f"https://example.com/{name}"
        return
    with pytest.raises(Refused) as caught:
        await client.call("gate", name=name)
    assert caught.value.code == -32042
    (page,) = caught.value.data["elicitations"]
    assert (page["url"], page["elicitationId"]) == (f"https://example.com/{name}", name)
    assert text_of(await client.call("gate", name=name)) == f"{name} went through"


@checks("questions.url_done")
async def url_done(client: Client, _: Stage) -> None:
    identity = unique("elicitation")
    await client.call("finish_sign_in", id=identity)
    await until(lambda: client.heard.of("elicitation/complete"), "the client is told")
    assert client.heard.of("elicitation/complete")[0]["elicitationId"] == identity


@checks("questions.roots")
async def roots(client: Client, _: Stage) -> None:
    assert (await client.call("where"))["structuredContent"]["roots"] == ROOTS
    assert client.person.methods == ["roots/list"]


@checks("questions.at_once")
async def at_once(client: Client, _: Stage) -> None:
    answers = (await client.call("everything"))["structuredContent"]
    assert answers["thought"]["content"]["text"] == "thought about three at once"
    assert answers["person"]["content"] == {"name": "Ada"}
    assert answers["folders"]["roots"] == ROOTS
    assert client.person.methods == ["elicitation/create", "roots/list", "sampling/createMessage"]


@checks("questions.rounds")
async def rounds(client: Client, _: Stage) -> None:
    result = (await client.call("interview"))["structuredContent"]
    assert result == {"name": "Ada", "age": 36, "thought": "thought about Ada is 36"}
    assert [question.text for question in client.person.asked] == [
        "What is your name?",
        "How old are you, Ada?",
        "Ada is 36",
    ]


@checks("questions.in_prompt")
async def in_prompt(client: Client, _: Stage) -> None:
    prompt = await client.get_prompt("asking")
    assert prompt["messages"][0]["content"]["text"] == "talk about engines"
    assert client.person.asked[0].text == "About what?"


@checks("questions.in_resource")
async def in_resource(client: Client, _: Stage) -> None:
    read = await client.read(ASKING)
    assert read["contents"][0]["text"] == "read by Ada"
    assert client.person.asked[0].text == "Who reads this?"


@checks("questions.own")
async def own(client: Client, stage: Stage) -> None:
    both = asyncio.Barrier(2)

    def answering(name: str) -> Person:
        def answer(question: Question) -> Json:
            return {"action": "accept", "content": {"name": name, "age": 1, "colour": "red"}}

        return Person(answer)

    async def ask(asked: Client, name: str) -> None:
        await both.wait()
        for turn in range(3):
            result = await asked.call("survey", question=f"{turn} {name}?")
            assert result["structuredContent"]["content"]["name"] == name

    client.person.answer = answering("One").answer
    async with stage.client(person=answering("Two")) as other:
        await asyncio.gather(ask(client, "One"), ask(other, "Two"))
        assert [question.text for question in client.person.asked] == [f"{turn} One?" for turn in range(3)]
        assert [question.text for question in other.person.asked] == [f"{turn} Two?" for turn in range(3)]


@checks("questions.declared")
async def declared(client: Client, _: Stage) -> None:
    seen = (await client.call("seen"))["structuredContent"]["capabilities"]
    assert {"sampling", "elicitation", "roots"} <= seen.keys()
    assert seen["elicitation"].keys() == {"form", "url"}


@checks("questions.undeclared")
async def undeclared(_: Client, stage: Stage) -> None:
    async with stage.client(declares=NOTHING) as client:
        seen = (await client.call("seen"))["structuredContent"]["capabilities"]
        assert not {"sampling", "elicitation", "roots"} & seen.keys()
        assert text_of(await client.call("think", about="x")) == "nobody to ask"
        assert text_of(await client.call("survey", question="x")) == "nobody to ask"
        assert text_of(await client.call("where")) == "nobody to ask"
        assert client.person.asked == []
