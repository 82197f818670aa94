"""What an object keeps alive, however it is built inside."""

from __future__ import annotations

import gc
from types import CodeType, FrameType, FunctionType, ModuleType

_OF_THE_PROGRAM = (type, ModuleType, FunctionType, CodeType, FrameType)


def texts_held(root: object, *without: object) -> list[str]:
    """Every text that can be reached from it, but not through the program itself nor through what is left out."""
    seen, found, todo = {id(one) for one in without}, list[str](), [root]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, _OF_THE_PROGRAM):
            continue
        seen.add(id(one))
        if isinstance(one, str):
            found.append(one)
        todo.extend(gc.get_referents(one))
    return found
