from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.agents.providers.openai.request import (
    ChatEndpoint,
    FunctionTool,
    Message,
    ModelToolCall,
    ModelTurn,
    RequestDialect,
    arguments_of,
    assistant_message,
    body_of,
    head_of,
    target_of,
    tool_message,
    user_message,
)
from trunkline.core.errors import MODEL_REFUSED, GatewayError

KEY = "sk-secret-of-the-test"


def endpoint(**more: Any) -> ChatEndpoint:
    return ChatEndpoint(**{"base_url": "http://localhost/v1", "model": "m", "api_key": KEY, **more})


def head(**more: Any) -> dict[bytes, bytes]:
    return dict(head_of(endpoint(**more), target_of("http://localhost:8000/v1")))


def call(arguments: str = "", **more: Any) -> ModelToolCall:
    return ModelToolCall(id="c1", name="Read", arguments=arguments, **more)


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.example.com/v1", "https://api.example.com/v1/chat/completions"),
        ("https://api.example.com/v1/", "https://api.example.com/v1/chat/completions"),
        ("http://localhost:11434", "http://localhost:11434/chat/completions"),
        ("https://x.example/openai?api-version=1", "https://x.example/openai/chat/completions?api-version=1"),
        ("https://x.example/v1/chat/completions", "https://x.example/v1/chat/completions"),
        (" https://x.example/v1 ", "https://x.example/v1/chat/completions"),
    ],
)
def test_turns_are_asked_for_below_the_base_url(base_url: str, url: str) -> None:
    assert target_of(base_url).url == url


@pytest.mark.parametrize(
    "base_url", ["", "api.example.com/v1", "ftp://x/v1", "http://", "http://x:port/v1", "http://x/a b", "http://[x/v1"]
)
def test_what_is_no_address_is_refused(base_url: str) -> None:
    with pytest.raises(GatewayError) as caught:
        target_of(base_url)
    assert caught.value.problem.code is MODEL_REFUSED


def test_the_key_is_a_bearer_token_and_headers_of_the_user_win() -> None:
    assert head()[b"authorization"] == b"Bearer " + KEY.encode()
    assert b"authorization" not in head(api_key="")
    azure = head(headers={"Api-Key": "k", "Authorization": "", "Content-Length": "7", "Host": "evil"})
    assert azure[b"api-key"] == b"k"
    assert b"authorization" not in azure
    assert b"content-length" not in azure
    assert azure[b"host"] == b"localhost:8000"


@pytest.mark.law
@pytest.mark.parametrize("bad", ["line\r\nX-Evil: 1", "schl\u00fcssel\u2603"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(bad: str) -> None:
    with pytest.raises(GatewayError) as caught:
        head(api_key=bad)
    assert caught.value.problem.code is MODEL_REFUSED
    assert bad not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.law
def test_secrets_are_not_in_the_repr() -> None:
    shown = repr(endpoint(headers={"api-key": "another-secret"}))
    assert KEY not in shown
    assert "another-secret" not in shown


def test_the_body_has_what_was_asked_for_and_nothing_else() -> None:
    assert json.loads(body_of(endpoint(), [user_message("Hi")], [], RequestDialect())) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_tools_are_offered_with_their_schemas_as_they_are() -> None:
    schema = {"$schema": "x", "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    definitions = [
        FunctionTool(name="Read", description="reads", parameters=schema),
        FunctionTool(name="Now", description="", parameters={}),
    ]
    body = json.loads(body_of(endpoint(max_tokens=9, temperature=0.0), [], definitions, RequestDialect()))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "Read", "description": "reads", "parameters": schema}},
        {
            "type": "function",
            "function": {"name": "Now", "description": "", "parameters": {"type": "object", "properties": {}}},
        },
    ]
    assert (body["tool_choice"], body["max_tokens"], body["temperature"]) == ("auto", 9, 0.0)


def test_other_words_are_found_in_what_a_server_says_once_each() -> None:
    usual = RequestDialect()
    limit = usual.after_refusal(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    assert limit.options(endpoint(max_tokens=9))["max_completion_tokens"] == 9
    assert "max_tokens" not in limit.options(endpoint(max_tokens=9))
    assert limit.after_refusal(400, "Use 'max_completion_tokens'") == limit
    without = usual.after_refusal(422, "extra field: stream_options")
    assert "stream_options" not in without.options(endpoint())
    assert without.after_refusal(422, "extra field: stream_options") == without
    assert usual.after_refusal(500, "stream_options") == usual


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", b"{}"),
        ("  ", b"{}"),
        ('{"a": 1}', b'{"a": 1}'),
        ("[]", None),
        ("null", None),
        ('{"a": NaN}', None),
        ('{"a": ', None),
        ('{"a": 1}{"a": 1}', None),
        ('{"a":' * 100_000, None),
    ],
)
def test_arguments_are_a_json_object_or_cannot_be_used(written: str, read: bytes | None) -> None:
    assert arguments_of(call(written)) == read


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def sent(message: Message) -> Message:
    """As a server reads it."""
    return json.loads(body_of(endpoint(), [message], [], RequestDialect()))["messages"][0]


def test_what_the_model_said_is_told_to_it_again() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    turn = ModelTurn(calls=(call("", extra=extra), call('{"a": '), call('{"a":1}')), extra={"reasoning_content": "hm"})
    message = sent(assistant_message(turn))
    assert message["content"] is None
    assert message["reasoning_content"] == "hm"
    assert message["tool_calls"][0]["extra_content"] == extra["extra_content"]
    # What is not JSON is not sent back: there are servers that fail on it.
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ["{}", "{}", '{"a":1}']


@pytest.mark.parametrize("value", [nested(2_000), [nested(2_000), "\ud83d"], {"half": "\ud83d", "no": float("nan")}])
def test_what_a_server_gave_and_cannot_be_sent_is_left_out(value: object) -> None:
    turn = ModelTurn(calls=(call("", extra={"extra_content": value}),))
    assert "extra_content" not in sent(assistant_message(turn))["tool_calls"][0]


@pytest.mark.parametrize(
    ("value", "goes"),
    [
        ("half \ud83d", "half \ufffd"),
        ([{"whole": "\ud83d\ude00"}], [{"whole": "\U0001f600"}]),
        ({"\ud83d": 1}, {"\ufffd": 1}),
    ],
)
def test_halves_of_a_surrogate_pair_are_joined_or_replaced_wherever_they_are(value: object, goes: object) -> None:
    turn = ModelTurn(calls=(call(""),), extra={"reasoning_content": value})
    assert sent(assistant_message(turn))["reasoning_content"] == goes


def test_an_answer_of_a_tool_is_never_empty_and_can_be_sent() -> None:
    assert tool_message(call(), "")["content"]
    assert tool_message(call(), "half \ud83d")["content"] == "half \ufffd"
