"""What a demo server has beside tools: resources to read, prompts to fill in, and completion for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from trunkline.demo.rpc_errors import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, RpcError
from trunkline.demo.toolbox import Refusal

Json = dict[str, Any]
Words = Callable[[], Iterable[str]]
_MOST_WORDS: Final = 100


@dataclass(frozen=True, slots=True)
class Resource:
    """A text at a URI."""

    uri: str
    name: str
    description: str
    read: Callable[[], str]

    @property
    def definition(self) -> Json:
        described = {"name": self.name, "description": self.description, "mimeType": "text/plain"}
        return {"uri": self.uri, **described}


@dataclass(frozen=True, slots=True)
class Template:
    """Many texts: the URI is `prefix` and a word, any of those that `words` has."""

    prefix: str
    variable: str
    name: str
    description: str
    read: Callable[[str], str]
    words: Words

    @property
    def uri_template(self) -> str:
        return f"{self.prefix}{{+{self.variable}}}"

    @property
    def definition(self) -> Json:
        described = {"name": self.name, "description": self.description, "mimeType": "text/plain"}
        return {"uriTemplate": self.uri_template, **described}


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """A text to be filled in; with `words`, one of these is proposed."""

    description: str
    required: bool = True
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A message to the model, made of arguments."""

    name: str
    title: str
    description: str
    write: Callable[[Mapping[str, str]], str]
    arguments: Mapping[str, PromptArgument] = field(default_factory=dict[str, PromptArgument])

    @property
    def definition(self) -> Json:
        arguments = [
            {"name": name, "description": argument.description, "required": argument.required}
            for name, argument in self.arguments.items()
        ]
        described = {"title": self.title, "description": self.description}
        return {"name": self.name, **described, "arguments": arguments}


class Library:
    """Resources, templates and prompts of one server, and the methods that they are asked with."""

    def __init__(
        self,
        resources: Iterable[Resource] = (),
        templates: Iterable[Template] = (),
        prompts: Iterable[Prompt] = (),
    ) -> None:
        self._resources = {resource.uri: resource for resource in resources}
        self._templates = tuple(templates)
        self._prompts = {prompt.name: prompt for prompt in prompts}

    @property
    def capabilities(self) -> Json:
        has_resources = bool(self._resources or self._templates)
        declared = {"resources": has_resources, "prompts": bool(self._prompts)}
        found: Json = {name: {} for name, has in declared.items() if has}
        return {**found, "completions": {}} if found else {}

    def answer(self, method: str, params: Json) -> Json:
        match method:
            case "resources/list" if "resources" in self.capabilities:
                return {"resources": [resource.definition for resource in self._resources.values()]}
            case "resources/templates/list" if "resources" in self.capabilities:
                return {"resourceTemplates": [template.definition for template in self._templates]}
            case "resources/read" if "resources" in self.capabilities:
                return self._read(params.get("uri"))
            case "prompts/list" if self._prompts:
                return {"prompts": [prompt.definition for prompt in self._prompts.values()]}
            case "prompts/get" if self._prompts:
                return self._get(params.get("name"), params.get("arguments", {}))
            case "completion/complete" if self.capabilities:
                return self._complete(params.get("ref"), params.get("argument"))
            case _:
                raise RpcError(METHOD_NOT_FOUND, f"Unknown method: {method}")

    def _read(self, uri: Any) -> Json:
        try:
            text = self._text_at(uri) if isinstance(uri, str) else None
        except Refusal as refusal:
            raise RpcError(RESOURCE_NOT_FOUND, str(refusal), {"uri": uri}) from None
        if text is None:
            raise RpcError(RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}

    def _text_at(self, uri: str) -> str | None:
        if uri in self._resources:
            return self._resources[uri].read()
        for template in self._templates:
            if uri.startswith(template.prefix):
                return template.read(uri.removeprefix(template.prefix))
        return None

    def _get(self, name: Any, arguments: Any) -> Json:
        prompt = self._prompts.get(name) if isinstance(name, str) else None
        if prompt is None:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {name}")
        text = prompt.write(_filled_in(prompt, arguments))
        return {
            "description": prompt.description,
            "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
        }

    def _complete(self, ref: Any, argument: Any) -> Json:
        if not isinstance(ref, dict) or not isinstance(argument, dict):
            raise RpcError(INVALID_PARAMS, "`ref` and `argument` are objects")
        asked = cast(Json, argument)
        begun = str(asked.get("value", "")).casefold()
        words = self._words(cast(Json, ref), asked.get("name"))
        found = [word for word in words if word.casefold().startswith(begun)]
        more = {"total": len(found), "hasMore": len(found) > _MOST_WORDS}
        return {"completion": {"values": found[:_MOST_WORDS], **more}}

    def _words(self, ref: Json, name: Any) -> Iterable[str]:
        if ref.get("type") == "ref/prompt" and ref.get("name") in self._prompts:
            argument = self._prompts[ref["name"]].arguments.get(name)
            return argument.words if argument is not None else ()
        for template in self._templates:
            if ref.get("type") == "ref/resource" and ref.get("uri") == template.uri_template:
                return sorted(template.words()) if name == template.variable else ()
        raise RpcError(INVALID_PARAMS, "There is no such prompt and no such template")


def _filled_in(prompt: Prompt, arguments: Any) -> dict[str, str]:
    if not isinstance(arguments, dict):
        raise RpcError(INVALID_PARAMS, "`arguments` is an object")
    given = cast(Json, arguments)
    for name, argument in prompt.arguments.items():
        if argument.required and name not in given:
            raise RpcError(INVALID_PARAMS, f"The argument `{name}` is missing")
    return {name: str(value) for name, value in given.items() if name in prompt.arguments}
