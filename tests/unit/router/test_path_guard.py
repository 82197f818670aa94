from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.waiting import at_most
from tests.unit.router.fakes import RouterRig, problem_of

from trunkline.core.call import Call, Caller
from trunkline.core.errors import PATH_TRAVERSAL
from trunkline.router.path_guard import traversal_problem


def raw_call(arguments: str) -> Call:
    params = b'{"name":"a..b/../c","arguments":%b}' % arguments.encode()
    return Call("tools/call", params, lambda _: None, caller=Caller(), reply=lambda _: None)


def place(arguments: str) -> str:
    problem = traversal_problem(raw_call(arguments), len(b'{"name":"a..b/../c"'))
    return "" if problem is None else problem.message.removeprefix("Path traversal in ")


@pytest.mark.parametrize(
    "arguments, where",
    [
        ('{"path":"../x"}', "`arguments.path`"),
        ('{"a":{"b":["fine",{"c":1,"deep":"..\\\\x"}]}}', "`arguments.a.b[1].deep`"),
        ('{"list":[1,[2,"x"],"a/.."]}', "`arguments.list[2]`"),
        ('{"a":1,"../x":2}', "a name in `arguments`"),
        ('{"a":{"..":[]}}', "a name in `arguments.a`"),
        ('{"path":"\\u002e\\u002e\\u002fx"}', "`arguments.path`"),
        ('{"path":"fine","path":"../x"}', "`arguments.path`"),
        ('{"path":"../x","path":"fine"}', "`arguments.path`"),
        ('{"path":"%2e%2e/"}', "`arguments.path`"),
        ('{"path":"a\\u0000b"}', "`arguments.path`"),
        ('{"path":"\uff0e\uff0e\uff0f"}', "`arguments.path`"),
        ('{"path":"\\uff0e\\uff0e/"}', "`arguments.path`"),
        ('{"odd \\n name":"../x"}', "`arguments.…`"),
        ('"../x"', "`arguments`"),
        ('{"path":"\\ud800"}', "`arguments.path`"),
        ("{}", ""),
        ('{"path":"a/b","n":1.5,"s":"a..b","t":["..."],"q":"say \\"hi\\""}', ""),
        ('{"text":"one.\\n./configure"}', ""),
    ],
)
def test_the_guard_names_the_place_of_a_path_traversal(arguments: str, where: str) -> None:
    assert place(arguments) == where


@pytest.mark.law
def test_the_refused_path_is_not_repeated() -> None:
    problem = traversal_problem(raw_call('{"path":"../very-private"}'), 20)
    assert problem is not None
    assert "very-private" not in str(problem.data()) + problem.message


@pytest.mark.law
async def test_a_guarded_source_never_sees_a_call_with_a_path_traversal(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    source = rig.add("files", "read", guards_paths=True)
    call = rig.call("files.read", {"arguments": {"path": "../secret"}})
    problem = problem_of(call)
    assert (problem.code, problem.executed, problem.source, problem.tool) == (PATH_TRAVERSAL, "no", "files", "read")
    assert (problem.code.jsonrpc, problem.code.http) == (403, 400)
    assert not source.held
    assert rig.replies == rig.ended == [call]


@pytest.mark.parametrize("members", [{"Arguments": {"path": "../x"}}, {"inputResponses": {"a": "../x"}}])
async def test_what_is_sent_beside_the_arguments_is_checked_too(tmp_path: Path, members: dict[str, Any]) -> None:
    rig = RouterRig(tmp_path)
    source = rig.add("files", "read", guards_paths=True)
    rig.call("files.read", {"arguments": {}, **members})
    assert all(b".." not in bytes(call.params) for call in source.held)


@pytest.mark.parametrize(
    ("meta", "where"),
    [
        ({"cwd": "../../etc"}, "`_meta.cwd`"),
        ({"fine": 1, "deep": {"list": ["x", "..%2fx"]}}, "`_meta.deep.list[1]`"),
        ({"..": 1}, "a name in `_meta`"),
        ({"cwd": "../x", "padding": "x" * 40_000}, "`_meta.cwd`"),
    ],
)
@pytest.mark.parametrize("kind", ["tool", "prompt"])
@pytest.mark.law
async def test_what_is_sent_in_meta_is_checked_too(tmp_path: Path, meta: dict[str, Any], where: str, kind: str) -> None:
    rig = RouterRig(tmp_path)
    source = rig.add("notes", "read", guards_paths=True)
    rig.serve("notes", tools=["read"], prompts=["review"])
    raw = {name: msgspec.json.encode(value) for name, value in meta.items()}

    def ask(meta: dict[str, bytes]) -> Call:
        if kind == "prompt":
            return rig.request("prompts/get", {"name": "review"}, meta=meta)
        return rig.router.call_tool(Caller(), "notes.read", {}, rig.replies.append, meta=meta)

    call = ask(raw)
    async with asyncio.timeout(at_most(60)):
        while not call.done and not source.held:
            await asyncio.sleep(0.001)
    problem = problem_of(call)
    assert (problem.code, problem.executed) == (PATH_TRAVERSAL, "no")
    assert problem.message == f"Path traversal in {where}"
    assert "`_meta`" in problem.hint
    assert not source.held
    fine = ask({"cwd": b'"a/b"', "traceparent": b'"00-1-2-01"'})
    assert source.held == [fine]


async def test_the_arguments_of_a_call_that_may_pass_are_sent_as_they_were_written(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    source = rig.add("files", "read", guards_paths=True)
    written = b'{"path": "a\\u002e\\u002eb", "n": 1.50, "n": 2}'
    rig.router.call_tool(Caller(), "files.read", {"arguments": msgspec.Raw(written)}, rig.replies.append)
    assert bytes(source.held[0].params) == b'{"name":"read","arguments":%b}' % written


async def test_without_the_guard_everything_passes(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    source = rig.add("files", "read")
    rig.call("files.read", {"arguments": {"path": "../secret"}})
    assert len(source.held) == 1


async def test_switching_the_guard_on_counts_from_the_next_call_on(tmp_path: Path) -> None:
    from dataclasses import replace

    rig = RouterRig(tmp_path)
    rig.add("files", "read")
    admission = rig.router.admissions["files"]
    rig.router.registry.update("files", replace(admission.options, guards_paths=True))
    assert problem_of(rig.call("files.read", {"arguments": {"path": "../x"}})).code is PATH_TRAVERSAL


@pytest.mark.parametrize(
    "method, params",
    [
        ("prompts/get", {"name": "review", "arguments": {"file": "../x"}}),
        ("resources/read", {"uri": "notes://box/..%2fsecret"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "file", "value": "../"}},
        ),
    ],
)
async def test_prompts_resources_and_completions_are_guarded_too(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    rig = RouterRig(tmp_path)
    source = rig.add("notes", state=None, guards_paths=True)
    rig.serve("notes", prompts=["review"], templates=["notes://box/{name}"])
    assert problem_of(rig.request(method, params)).code is PATH_TRAVERSAL
    assert not source.held
    fine = json.loads(json.dumps(params).replace("../", "").replace("..%2f", ""))
    rig.request(method, fine)
    assert len(source.held) == 1
