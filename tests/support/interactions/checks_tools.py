"""Checks of the rows about tools and about what happens while a call runs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from tests.support.interactions.client import Client, Json, Refused, text_of
from tests.support.interactions.feature_data import ICON, PIXEL, TEXT
from tests.support.interactions.stage import Stage, checks
from tests.support.waiting import until

_numbers = itertools.count(1)


def unique(word: str) -> str:
    return f"{word}-{next(_numbers)}"


@checks("tools.list")
async def tools_list(client: Client, _: Stage) -> None:
    tools = await client.tools()
    add = tools["add"]
    assert add["title"] == "Add numbers"
    assert add["description"] == "Add two numbers."
    assert add["inputSchema"]["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer"}}
    assert add["inputSchema"]["required"] == ["a", "b"]
    assert add["outputSchema"]["required"] == ["total", "by"]
    assert add["annotations"] == {"readOnlyHint": True, "idempotentHint": True}
    assert add["icons"] == [ICON]
    assert add["_meta"]["feature.example/shelf"]["row"] == 1
    assert {"show", "think", "hold", "grow"} <= tools.keys()


@checks("tools.call")
async def tools_call(client: Client, _: Stage) -> None:
    result = await client.call("add", a=2, b=40)
    assert result["structuredContent"]["total"] == 42
    assert result["content"] == [{"type": "text", "text": "42"}]
    assert not result.get("isError")


@checks("tools.content")
async def tools_content(client: Client, _: Stage) -> None:
    text, image, audio, embedded = (await client.call("show"))["content"]
    assert text["text"] == "é 😀 \u2028"
    assert text["annotations"] == {"audience": ["assistant"], "priority": 0.25}
    assert text["_meta"] == {"feature.example/n": 2}
    assert image == {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    assert audio == {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
    assert embedded["resource"]["uri"] == TEXT
    assert embedded["resource"]["_meta"] == {"feature.example/n": 1}


@checks("tools.link")
async def tools_link(client: Client, _: Stage) -> None:
    name = unique("link")
    (link,) = (await client.call("link", name=name))["content"]
    assert (link["type"], link["title"], link["icons"]) == ("resource_link", "Linked", [ICON])
    (content,) = (await client.read(link["uri"]))["contents"]
    assert content["text"].endswith(f"linked {name}")


@checks("tools.any_json")
async def tools_any_json(client: Client, _: Stage) -> None:
    schema = (await client.tools())["numbers"].get("outputSchema")
    result = await client.call("numbers")
    assert text_of(result) == "[1, 2, 3]"
    if client.modern:
        assert result["structuredContent"] == [1, 2, 3]
        assert schema == {"type": "array", "items": {"type": "integer"}}
    else:
        assert isinstance(result.get("structuredContent", {}), dict)
        assert schema is None or schema["type"] == "object"


@checks("tools.failure")
async def tools_failure(client: Client, _: Stage) -> None:
    result = await client.call("fail", reason="out of paper")
    assert result["isError"]
    assert text_of(result) == "out of paper"


@checks("tools.error")
async def tools_error(client: Client, _: Stage) -> None:
    with pytest.raises(Refused) as caught:
        await client.call("refuse", reason="not today")
    assert caught.value.code == 4711
    assert "not today" in caught.value.message
    assert caught.value.data == {"retry": False, "ids": [1, "1", 1.5, None]}


@checks("tools.unknown")
async def tools_unknown(client: Client, _: Stage) -> None:
    with pytest.raises(Refused) as caught:
        await client.call("nonsense")
    assert caught.value.code == -32602
    assert "nonsense" in caught.value.message


@checks("tools.param_headers")
async def tools_param_headers(client: Client, _: Stage) -> None:
    assert "region" in await client.tools()
    for place in ("eu-west", "Zürich", " padded "):
        assert text_of(await client.call("region", region=place)) == f"in {place}"


@checks("calls.progress")
async def calls_progress(client: Client, stage: Stage) -> None:
    seen: list[Json] = []
    go_on = stage.folder / unique("go-on")
    call = client.start("work", steps=3, hold=str(go_on), progress=seen)
    try:
        await until(lambda: len(seen) == 3, "all three steps were reported")
    finally:
        go_on.touch()
    assert text_of(await call) == "3 steps"
    if not client.loses_last_progress:
        assert text_of(await client.call("work", steps=3, progress=seen)) == "3 steps"
        await until(lambda: len(seen) == 6, "all three steps were reported again")
    expected = [{"progress": n, "total": 3, "message": f"step {n}"} for n in (1, 2, 3)]
    assert seen == expected * (len(seen) // 3)


@checks("calls.cancel")
async def calls_cancel(client: Client, stage: Stage) -> None:
    name = unique(f"{client.kind}-{client.era}")
    call = client.start("hold", name=name)
    await stage.journal.wait_for(f"held {name}")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await stage.journal.wait_for(f"cancelled {name}")
    assert (await client.call("add", a=1, b=1))["structuredContent"]["total"] == 2


async def hear(client: Client, word: str, total: int) -> None:
    """Once more where nothing came: a process that all share is believed about nobody for a moment after a call of
    somebody else was taken back."""
    for _ in range(5):
        await client.call("chatter", word=word)
        with contextlib.suppress(AssertionError):
            await until(lambda: len(client.heard.logs) >= total, "what was to be said was said", 3)
            return
    raise AssertionError(f"{client.heard.logs} should be {total}")


@checks("logging.level")
async def logging_level(client: Client, _: Stage) -> None:
    await client.set_level("warning")
    await hear(client, "few", 2)
    await client.set_level("debug")
    await hear(client, "all", 6)
    logged = [(log["level"], log["data"], log["logger"]) for log in client.heard.logs]
    few = [(level, {"said": "few", "at": level}, "parrot") for level in ("warning", "error")]
    assert logged == few + [
        (level, {"said": "all", "at": level}, "parrot") for level in ("debug", "info", "warning", "error")
    ]


@checks("logging.unasked")
async def logging_unasked(client: Client, _: Stage) -> None:
    await client.call("chatter", word="none")
    assert client.heard.logs == []
