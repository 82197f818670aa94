"""Two servers with the same names behind one gateway: every request reaches the right one.

`alpha` speaks an old version and `beta` 2026-07-28, so half of what each client does here is translated as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path

import pytest
from tests.support.gateway import Gateway
from tests.support.interactions.client import Client, Json, Person, Refused
from tests.support.interactions.feature_data import TEMPLATE, TEXT, WATCHED
from tests.support.interactions.python_client import python_client
from tests.support.interactions.scene import over_http
from tests.support.waiting import START_WAIT_S, until

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
ALPHA, BETA = "alpha", "beta"
AT_BETA = "trunkline://beta/"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("pair")
    with ExitStack() as stack:
        alpha = stack.enter_context(over_http(folder, "legacy", ALPHA))
        beta = stack.enter_context(over_http(folder, "modern", BETA))
        yield stack.enter_context(Gateway(folder, alpha.entry(), beta.entry(), start_wait=START_WAIT_S))


@pytest.fixture(params=["legacy", "modern"])
def client(request: pytest.FixtureRequest, gateway: Gateway, tmp_path: Path) -> AbstractAsyncContextManager[Client]:
    url = f"http://127.0.0.1:{gateway.port}/mcp"
    return python_client("sdk", request.param, url, tmp_path / "client.log", person=Person())


def text(read: Json) -> str:
    (content,) = read["contents"]
    return content["text"]


async def test_prompts_of_one_name_are_both_there(client: AbstractAsyncContextManager[Client]) -> None:
    async with client as asking:
        assert {"alpha_greet", "beta_greet"} <= (await asking.prompts()).keys()
        for name in (ALPHA, BETA):
            prompt = await asking.get_prompt(f"{name}_greet", {"name": "Ada"})
            assert prompt["messages"][0]["content"]["text"] == f"{name}: greet Ada in a plain style"


async def test_of_one_uri_the_first_server_keeps_it_and_the_second_is_at_an_address(
    client: AbstractAsyncContextManager[Client],
) -> None:
    async with client as asking:
        resources = await asking.resources()
        assert resources[TEXT]["description"] == "Says who it is: alpha"
        assert resources[AT_BETA + TEXT]["description"] == "Says who it is: beta"
        assert resources[AT_BETA + TEXT]["_meta"] == {"feature.example/shelf": {"row": 2}}
        assert text(await asking.read(TEXT)).startswith("alpha: ")
        assert text(await asking.read(AT_BETA + TEXT)) == f"beta: {TEXT} version 1"
        assert text(await asking.read("trunkline://alpha/" + TEXT)).startswith("alpha: ")


async def test_what_is_read_at_an_address_says_so(client: AbstractAsyncContextManager[Client]) -> None:
    async with client as asking:
        (content,) = (await asking.read(AT_BETA + TEXT))["contents"]
        assert content["uri"] == AT_BETA + TEXT
        assert text(await asking.read(content["uri"])).startswith("beta: ")


@pytest.mark.parametrize("name", [ALPHA, BETA])
async def test_a_link_in_a_result_leads_to_the_server_that_gave_it(
    name: str, client: AbstractAsyncContextManager[Client]
) -> None:
    async with client as asking:
        for other in (ALPHA, BETA):
            await asking.call(f"{other}_link", name="shared")
        (link,) = (await asking.call(f"{name}_link", name="shared"))["content"]
        assert text(await asking.read(link["uri"])) == f"{name} linked shared"


async def test_an_embedded_resource_has_a_uri_that_leads_to_its_server(
    client: AbstractAsyncContextManager[Client],
) -> None:
    async with client as asking:
        for name in (ALPHA, BETA):
            embedded = (await asking.call(f"{name}_show"))["content"][3]["resource"]
            assert text(await asking.read(embedded["uri"])).startswith(f"{name}: ")
            prompt = await asking.get_prompt(f"{name}_picture")
            embedded = prompt["messages"][0]["content"]["resource"]
            assert text(await asking.read(embedded["uri"])).startswith(f"{name}: ")


async def test_templates_of_one_text_are_both_there(client: AbstractAsyncContextManager[Client]) -> None:
    async with client as asking:
        assert {TEMPLATE, AT_BETA + TEMPLATE} <= (await asking.templates()).keys()
        assert text(await asking.read("test://items/one/head")) == "alpha: head of one"
        assert text(await asking.read(AT_BETA + "test://items/one/head")) == "beta: head of one"


async def test_completion_asks_the_server_whose_prompt_or_template_it_is(
    client: AbstractAsyncContextManager[Client],
) -> None:
    async with client as asking:
        for ref, argument, name in (
            ({"type": "ref/prompt", "name": "alpha_greet"}, "name", ALPHA),
            ({"type": "ref/prompt", "name": "beta_greet"}, "name", BETA),
            ({"type": "ref/resource", "uri": TEMPLATE}, "id", ALPHA),
            ({"type": "ref/resource", "uri": AT_BETA + TEMPLATE}, "id", BETA),
        ):
            completion = (await asking.complete(ref, {"name": argument, "value": ""}))["completion"]
            assert completion["values"][-1] == name


async def test_instructions_are_joined_and_say_whose_they_are(client: AbstractAsyncContextManager[Client]) -> None:
    async with client as asking:
        instructions = (await asking.hello())["instructions"]
        headings = [line for line in instructions.splitlines() if line.startswith("#")]
        assert [heading.strip("# ") for heading in headings] == [ALPHA, BETA]
        for name in (ALPHA, BETA):
            assert f"These are the instructions of {name}." in instructions


async def test_server_requests_say_which_server_asks(client: AbstractAsyncContextManager[Client]) -> None:
    async with client as asking:
        for name in (ALPHA, BETA):
            asking.person.asked.clear()
            assert "structuredContent" in await asking.call(f"{name}_everything")
            assert {question.server for question in asking.person.asked} == {name}
            (form,) = (question for question in asking.person.asked if question.method == "elicitation/create")
            assert form.text == f"[{name}] Who are you?"


async def test_a_watched_resource_at_an_address_is_told_under_that_address(
    client: AbstractAsyncContextManager[Client],
) -> None:
    async with client as asking, asking.watching([AT_BETA + WATCHED]):
        await asking.call("alpha_touch", uri=WATCHED)
        await asking.call("beta_touch", uri=WATCHED)
        await until(asking.heard.updated, "the update is heard")
        assert asking.heard.updated() == [AT_BETA + WATCHED]


async def test_what_nobody_has_is_refused_and_named(client: AbstractAsyncContextManager[Client]) -> None:
    async with client as asking:
        for uri in ("test://nowhere", AT_BETA + "test://nowhere", "trunkline://gamma/test://text"):
            with pytest.raises(Refused) as caught:
                await asking.read(uri)
            assert caught.value.code == (-32602 if asking.modern else -32002)
            assert caught.value.data["uri"] == uri


async def test_lists_may_be_kept_as_long_as_every_part_of_them(
    client: AbstractAsyncContextManager[Client],
) -> None:
    async with client as asking:
        page = await asking.list_page("prompts/list")
        if asking.modern:
            assert (page["ttlMs"], page["cacheScope"]) == (0, "private")
