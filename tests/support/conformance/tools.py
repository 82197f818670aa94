"""The tools that the conformance harness calls by name, each as small as its check allows."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from tests.support.conformance.changes import Changes
from tests.support.conformance.contents import answer, audio, embedded, image, text
from tests.support.conformance.server_requests import Context, ask, declared, form, is_modern, roots, sample

Params = types.CallToolRequestParams
Result = dict[str, Any]
Handler = Callable[[Changes, Context, Params], Awaitable[Result]]

STEP_S = 0.05
STREAM_CLOSED_S = 0.3
"""How long the answer waits after its stream was closed: the client comes back for it."""
LONG_CALL_S = 11.0
"""How long it takes where nobody can close the stream: the harness leaves such a one after 10 seconds."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_tools: dict[str, tuple[dict[str, Any], Handler]] = {}


def tool(name: str, description: str, schema: dict[str, Any] | None = None) -> Callable[[Handler], Handler]:
    """Offer the function under a name; without a schema it takes no arguments."""

    def offer(handler: Handler) -> Handler:
        definition = {"name": name, "description": description, "inputSchema": schema or {"type": "object"}}
        _tools[name] = (definition, handler)
        return handler

    return offer


def arguments(**properties: dict[str, Any]) -> dict[str, Any]:
    """A schema whose properties are all required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def listed(changes: Changes) -> list[dict[str, Any]]:
    definitions = [definition for definition, _ in _tools.values()]
    extra = {"name": "test_extra_tool", "description": "Comes and goes", "inputSchema": {"type": "object"}}
    return [*definitions, extra] if changes.extra_tool else definitions


async def call(changes: Changes, ctx: Context, params: Params) -> Result:
    if params.name == "test_extra_tool" and changes.extra_tool:
        return answer(text("Here for the moment."))
    if params.name not in _tools:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
    return await _tools[params.name][1](changes, ctx, params)


# Contents -------------------------------------------------------------------------------------------------------------


@tool("test_simple_text", "Answers with a text")
async def simple_text(changes: Changes, ctx: Context, params: Params) -> Result:
    return answer(text("This is a simple text response for testing."))


@tool("test_image_content", "Answers with a picture")
async def image_content(changes: Changes, ctx: Context, params: Params) -> Result:
    return answer(image())


@tool("test_audio_content", "Answers with a sound")
async def audio_content(changes: Changes, ctx: Context, params: Params) -> Result:
    return answer(audio())


@tool("test_embedded_resource", "Answers with a resource")
async def embedded_resource(changes: Changes, ctx: Context, params: Params) -> Result:
    return answer(embedded("test://embedded-resource", "This is an embedded resource content."))


@tool("test_multiple_content_types", "Answers with a text, a picture and a resource")
async def multiple_content_types(changes: Changes, ctx: Context, params: Params) -> Result:
    data = json.dumps({"test": "data", "value": 123})
    return answer(
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", data, "application/json"),
    )


@tool("test_error_handling", "Always fails")
async def error_handling(changes: Changes, ctx: Context, params: Params) -> Result:
    return answer(text("This tool intentionally returns an error for testing"), error=True)


# What happens during a call -------------------------------------------------------------------------------------------


async def log(changes: Changes, ctx: Context, words: str) -> None:
    """A message at level info, if this client wants it. In the modern era the SDK looks at the request itself."""
    if is_modern(ctx) or changes.wanted(ctx, "info"):
        await ctx.session.send_log_message("info", words, "conformance", related_request_id=ctx.request_id)


@tool("test_tool_with_logging", "Writes three log messages")
async def with_logging(changes: Changes, ctx: Context, params: Params) -> Result:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await log(changes, ctx, words)
        await anyio.sleep(STEP_S)
    return answer(text("Logged three messages."))


@tool("test_logging_tool", "Writes one log message")
async def logging_tool(changes: Changes, ctx: Context, params: Params) -> Result:
    await log(changes, ctx, "Only for those who asked for it")
    return answer(text("Logged one message, or none."))


@tool("test_tool_with_progress", "Reports progress")
async def with_progress(changes: Changes, ctx: Context, params: Params) -> Result:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await anyio.sleep(STEP_S)
    return answer(text("Reported progress."))


@tool("test_reconnection", "Closes the stream of its call before it answers")
async def reconnection(changes: Changes, ctx: Context, params: Params) -> Result:
    if ctx.close_sse_stream is None:
        await anyio.sleep(LONG_CALL_S)
    else:
        await anyio.sleep(STEP_S)
        await ctx.close_sse_stream()
        await anyio.sleep(STREAM_CLOSED_S)
    return answer(text("Answered after the stream was closed."))


@tool("test_trigger_tool_change", "Adds or removes a tool")
async def trigger_tool_change(changes: Changes, ctx: Context, params: Params) -> Result:
    await changes.toggle_tool()
    return answer(text("The list of tools has changed."))


@tool("test_trigger_prompt_change", "Adds or removes a prompt")
async def trigger_prompt_change(changes: Changes, ctx: Context, params: Params) -> Result:
    await changes.toggle_prompt()
    return answer(text("The list of prompts has changed."))


# Schemas --------------------------------------------------------------------------------------------------------------

ADDRESS = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}


@tool(
    "json_schema_2020_12_tool",
    "Has an elaborate schema",
    {
        "$schema": DIALECT,
        "type": "object",
        "$defs": {"address": ADDRESS},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def elaborate_schema(changes: Changes, ctx: Context, params: Params) -> Result:
    return answer(text(json.dumps(params.arguments)))


@tool(
    "test_x_mcp_header",
    "Has an argument that is sent as a header too",
    arguments(region={"type": "string", "x-mcp-header": "Region"}),
)
async def x_mcp_header(changes: Changes, ctx: Context, params: Params) -> Result:
    return answer(text(f"region: {(params.arguments or {}).get('region')}"))


# Questions to the client ----------------------------------------------------------------------------------------------


async def ask_or_fail(ctx: Context, params: Params, question: dict[str, Any]) -> Result:
    if not declared(ctx, question):
        return answer(text(f"The client cannot be asked for {question['method']}"), error=True)
    given = (await ask(ctx, params, {"answer": question}))["answer"]
    return answer(text(f"The client answered: {json.dumps(given)}"))


@tool("test_sampling", "Asks the client's model", arguments(prompt={"type": "string"}))
async def sampling(changes: Changes, ctx: Context, params: Params) -> Result:
    return await ask_or_fail(ctx, params, sample((params.arguments or {}).get("prompt", "")))


@tool("test_elicitation", "Asks the user", arguments(message={"type": "string"}))
async def elicitation(changes: Changes, ctx: Context, params: Params) -> Result:
    fields = {"username": {"type": "string"}, "email": {"type": "string"}}
    return await ask_or_fail(ctx, params, form((params.arguments or {}).get("message", ""), fields, list(fields)))


@tool("test_elicitation_sep1034_defaults", "Asks the user, with a default for each kind of field")
async def elicitation_defaults(changes: Changes, ctx: Context, params: Params) -> Result:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await ask_or_fail(ctx, params, form("Please look over these", fields, []))


def titled(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in pairs]


@tool("test_elicitation_sep1330_enums", "Asks the user to choose, in every way there is")
async def elicitation_enums(changes: Changes, ctx: Context, params: Params) -> Result:
    plain = ["option1", "option2", "option3"]
    named = titled(("value1", "First"), ("value2", "Second"), ("value3", "Third"))
    fields = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": named},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": named}},
    }
    return await ask_or_fail(ctx, params, form("Please choose", fields, []))


@tool("test_streaming_elicitation", "Asks the user, and sends nothing else")
async def streaming_elicitation(changes: Changes, ctx: Context, params: Params) -> Result:
    return await ask_or_fail(ctx, params, form("Go on?", {"ok": {"type": "boolean"}}, ["ok"]))


@tool("test_missing_capability", "Needs a client that can be asked for sampling")
async def missing_capability(changes: Changes, ctx: Context, params: Params) -> Result:
    if declared(ctx, sample("")):
        return answer(text("The client can be asked for sampling."))
    if not is_modern(ctx):
        return answer(text("The client cannot be asked for sampling"), error=True)
    raise MCPError(
        code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        message="The client cannot be asked for sampling",
        data={"requiredCapabilities": {"sampling": {}}},
    )


# Round trips ----------------------------------------------------------------------------------------------------------

NAME = form("What is your name?", {"name": {"type": "string"}}, ["name"])
CONFIRM = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])
COLOR = form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])


@tool("test_input_required_result_elicitation", "Needs the user's name")
async def needs_name(changes: Changes, ctx: Context, params: Params) -> Result:
    given = (await ask(ctx, params, {"user_name": NAME}))["user_name"]
    return answer(text(f"Hello, {(given.get('content') or {}).get('name', 'stranger')}!"))


@tool("test_input_required_result_sampling", "Needs the client's model")
async def needs_sampling(changes: Changes, ctx: Context, params: Params) -> Result:
    given = await ask(ctx, params, {"capital_question": sample("What is the capital of France?")})
    return answer(text(json.dumps(given["capital_question"].get("content"))))


@tool("test_input_required_result_list_roots", "Needs the client's roots")
async def needs_roots(changes: Changes, ctx: Context, params: Params) -> Result:
    given = await ask(ctx, params, {"client_roots": roots()})
    return answer(text(json.dumps(given["client_roots"].get("roots"))))


@tool("test_input_required_result_request_state", "Needs a confirmation, and its own state back")
async def needs_state(changes: Changes, ctx: Context, params: Params) -> Result:
    await ask(ctx, params, {"confirm": CONFIRM}, "waiting for the confirmation")
    known = not is_modern(ctx) or params.request_state == "waiting for the confirmation"
    return answer(text("state-ok" if known else "state-lost"), error=not known)


@tool("test_input_required_result_tampered_state", "Needs a confirmation, and notices a state that is not its own")
async def needs_untampered_state(changes: Changes, ctx: Context, params: Params) -> Result:
    return await needs_state(changes, ctx, params)


@tool("test_input_required_result_multiple_inputs", "Needs three things at once")
async def needs_three(changes: Changes, ctx: Context, params: Params) -> Result:
    questions = {"user_name": NAME, "greeting": sample("Generate a greeting", 50), "client_roots": roots()}
    given = await ask(ctx, params, questions, "waiting for three answers")
    return answer(text(f"Got {len(given)} answers."))


@tool("test_input_required_result_multi_round", "Needs two things, one after the other")
async def needs_two_rounds(changes: Changes, ctx: Context, params: Params) -> Result:
    if params.request_state != "round 2":
        await ask(ctx, params, {"step1": NAME}, "round 1")
        # a client of the modern era comes back with the first answer only once
        await ask(ctx, params, {"step2": COLOR}, "round 2")
    given = await ask(ctx, params, {"step2": COLOR}, "round 2") if is_modern(ctx) else {}
    return answer(text(f"Thank you. {json.dumps(given)}"))


@tool("test_input_required_result_capabilities", "Asks only what the client can be asked")
async def needs_what_is_declared(changes: Changes, ctx: Context, params: Params) -> Result:
    everything = {"user_name": NAME, "greeting": sample("Generate a greeting"), "client_roots": roots()}
    questions = {key: question for key, question in everything.items() if declared(ctx, question)}
    if not questions:
        return answer(text("The client cannot be asked anything."))
    given = await ask(ctx, params, questions)
    return answer(text(f"Got {len(given)} answers."))
