"""The configuration of an embedded gateway: a file, a mapping with the same keys, or the file in the usual place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from trunkline.config.found import find_config
from trunkline.config.load import Loaded, load_config, load_text
from trunkline.config.settings import Settings
from trunkline.core.errors import CONFIG_UNREADABLE, LITERAL_SECRET, WRONG_TYPE, Problem
from trunkline.gateway.library.errors import ConfigurationError
from trunkline.sources import section_kinds

Config = str | os.PathLike[str] | Mapping[str, Any] | None

_NAME: Final = "trunkline.json"
_SHOWN_AS: Final = "config"


def read_config(config: Config) -> tuple[Settings, tuple[Problem, ...]]:
    """The settings, and what deserves a warning. Raises ConfigurationError."""
    loaded = _of_mapping(config) if isinstance(config, Mapping) else _of_file(config)
    if loaded.settings is None:
        raise ConfigurationError(loaded.problems, loaded.text)
    return loaded.settings, loaded.problems


def _of_file(path: str | os.PathLike[str] | None) -> Loaded:
    found = find_config(None if path is None else Path(path).expanduser(), Path.cwd(), Path.home())
    if found is None:
        hint = 'name one: `Gateway("trunkline.yaml")`, or give its keys as a dict'
        raise ConfigurationError([Problem(code=CONFIG_UNREADABLE, message="No configuration file found", hint=hint)])
    return load_config(found, environ=os.environ, kinds=section_kinds())


def _of_mapping(config: Mapping[str, Any]) -> Loaded:
    """As if it stood in a file in the working folder. Secrets in it are the program's own affair."""
    try:
        text = json.dumps(dict(config), indent=2, default=_plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        problem = Problem(
            code=WRONG_TYPE, message=f"Not made of text, numbers, lists and dicts: {error}", where=_SHOWN_AS
        )
        raise ConfigurationError([problem]) from None
    loaded = load_text(text, Path.cwd() / _NAME, environ=os.environ, kinds=section_kinds())
    problems = (replace(problem, where=_SHOWN_AS) for problem in loaded.problems if problem.code is not LITERAL_SECRET)
    return replace(loaded, problems=tuple(problems))


def _plain(value: Any) -> Any:
    """What programs write in such places beside what JSON has."""
    if isinstance(value, os.PathLike):
        return os.fspath(cast(os.PathLike[str], value))
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, Any], value))
    raise TypeError(f"{type(value).__name__} is none of these")
