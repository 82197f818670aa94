"""The folder of a plugin's socket. What it has in common with others is tested with `temporary_folders`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.plugin_rig import plugin_context

from trunkline.core.errors import SOURCE_START_FAILED, GatewayError
from trunkline.runtime.children import Children
from trunkline.sources.plugin import PluginSection
from trunkline.sources.plugin.process import PREFIX, PluginProcess, start_process

pytestmark = pytest.mark.usefixtures("in_any_folder")


@pytest.fixture
def in_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.runtime.temporary_folders._MAX_PARENT_BYTES", 1000)


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[PluginProcess]:
    children = Children()
    context = plugin_context(children)
    section = PluginSection(command="/bin/sleep", args=("60",))
    try:
        yield await start_process("p", section, context, lambda _, __: None)
    finally:
        await children.close()


async def test_it_is_made_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with started() as process:
        assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 1
        await process.close()
    assert not list(tmp_path.glob(f"{PREFIX}*"))


async def test_where_there_can_be_none_the_plugin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no"))
    with pytest.raises(GatewayError) as caught:
        async with started():
            pass
    assert (caught.value.problem.code, caught.value.problem.source) == (SOURCE_START_FAILED, "p")
