from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.router.fakes import FakeSource, RouterRig, item
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.core.events import LogEvent
from trunkline.core.source import Health
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.router.definitions import REPORT_INTERVAL_S, DefinitionStore
from trunkline.router.status import server_statuses, status_json


class DefinitionsRig(RouterRig):
    """A router rig that keeps the log events about definitions."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.notes: list[LogEvent] = []
        self.events.noted.append(lambda note: self.notes.append(note) if note.event == "definitions" else None)
        self.hidden: list[str] = []
        self.events.noted.append(
            lambda note: self.hidden.append(note.message) if note.message.startswith("TL213") else None
        )

    def say(self, **descriptions: str) -> None:
        self.sinks["s"].publish(described(**descriptions))

    def say_to(self, client: str, **descriptions: str) -> None:
        """What the process of one client says."""
        self.sinks["s"].publish_for(client, described(**descriptions))

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(note.level, note.message) for note in self.notes]

    def warnings(self) -> list[str]:
        (status,) = server_statuses(self.router)
        shown = status_json(status).get("warnings", [])
        assert isinstance(shown, list)
        return [str(warning) for warning in shown]


def described(**descriptions: str) -> Snapshot:
    return Snapshot(
        tools=tuple(
            ToolDefinition("s", name, json.dumps({"name": name, "description": text}).encode())
            for name, text in descriptions.items()
        )
    )


def rig_at(folder: Path) -> DefinitionsRig:
    rig = DefinitionsRig(folder)
    rig.add("s", state="ready")
    return rig


async def test_what_changes_in_the_process_of_one_client_is_told_once_however_many_clients_there_are(
    tmp_path: Path,
) -> None:
    rig = rig_at(tmp_path)
    rig.say(add="good", log="Logs")
    for number in range(100):
        rig.say_to(f"c{number}", add="EVIL\u200b", log="Logs")
    ((level, message),) = rig.told
    assert (level, "tool `add`" in message, "`log`" in message) == ("warning", True, False)
    assert ("code", "TL212") in rig.notes[0].fields
    assert len(rig.hidden) == 1
    assert [warning.partition(":")[0] for warning in rig.warnings()] == ["TL212", "TL213"]


async def test_the_list_that_all_share_stays_the_measure(tmp_path: Path) -> None:
    rig = rig_at(tmp_path)
    rig.say(add="good")
    rig.say_to("c", add="EVIL")
    rig.say(add="good", log="Logs")
    rig.say_to("c", add="good")
    assert [level for level, _ in rig.told] == ["warning", "info"], "the shared one never changed"
    again = rig_at(tmp_path)
    again.say(add="good", log="Logs")
    assert again.told == [] and again.warnings() == []


async def test_hidden_characters_that_all_are_shown_are_not_reported_again_for_one_client(tmp_path: Path) -> None:
    rig = rig_at(tmp_path)
    rig.say(add="good\u200b")
    rig.say_to("c", add="good\u200b", log="Logs")
    assert len(rig.hidden) == 1
    assert [warning.partition(":")[0] for warning in rig.warnings()] == ["TL213"]


async def test_a_tool_for_some_clients_alone_is_told_only_when_it_changes(tmp_path: Path) -> None:
    rig = rig_at(tmp_path)
    rig.say(login="Logs in")
    for client in ("a", "b"):
        rig.say_to(client, login="Logs in", vault="Opens the vault")
        rig.say_to(client, login="Logs in")
    assert rig.told == [] and rig.warnings() == []
    rig.say_to("a", vault="Sends the vault away")
    ((_, message),) = rig.told
    assert "tool `vault`" in message


def test_a_server_that_describes_a_tool_to_each_client_anew_is_not_told_of_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        rig = rig_at(tmp_path)
        rig.say(mail="Reads mail")
        for number in range(200):
            rig.say_to(f"c{number}", mail=f"Reads the mail of {number}\u200b", **{f"own{number}\u200b": "x"})
            await asyncio.sleep(REPORT_INTERVAL_S + 1)
        assert 1 <= len(rig.told) <= 5
        assert 1 <= len(rig.hidden) <= 10
        assert len(rig.warnings()) <= 11

    run_with_clock(monkeypatch, main())


CHANGED = ("warning", "Definitions of s changed: tool `add`")


async def test_a_definition_that_changed_since_the_last_start_is_told_once(tmp_path: Path) -> None:
    first = rig_at(tmp_path)
    first.say(add="Adds numbers", log="Logs")
    assert first.told == [] and first.warnings() == []
    second = rig_at(tmp_path)
    second.say(add="Adds numbers, and sends them away", log="Logs")
    assert second.told == [CHANGED]
    assert ("code", "TL212") in second.notes[0].fields
    assert [warning.partition(":")[0] for warning in second.warnings()] == ["TL212"]
    assert "tool `add`" in second.warnings()[0]
    second.say(add="Adds numbers, and sends them away", log="Logs")
    assert second.told == [CHANGED]
    third = rig_at(tmp_path)
    third.say(add="Adds numbers, and sends them away", log="Logs")
    assert third.told == [] and third.warnings() == []


async def test_one_that_changes_during_a_run_is_told_too(tmp_path: Path) -> None:
    rig = rig_at(tmp_path)
    rig.say(add="Adds")
    rig.say(add="Subtracts")
    assert rig.told == [CHANGED]


async def test_one_that_was_away_meanwhile_has_changed_all_the_same(tmp_path: Path) -> None:
    rig = rig_at(tmp_path)
    rig.say(add="Adds", log="Logs")
    rig.say(log="Logs")
    rig.say(add="Subtracts", log="Logs")
    assert rig.told == [
        ("info", "s changed its lists: removed tool `add`"),
        ("info", "s changed its lists: added tool `add`"),
        CHANGED,
    ]


async def test_the_order_of_members_and_the_spelling_of_texts_mean_nothing(tmp_path: Path) -> None:
    rig = rig_at(tmp_path)
    rig.sinks["s"].publish(Snapshot(tools=(ToolDefinition("s", "a", b'{"name":"a","description":"caf\\u00e9"}'),)))
    rig.sinks["s"].publish(Snapshot(tools=(ToolDefinition("s", "a", '{"description":"café", "name":"a"}'.encode()),)))
    assert rig.told == []


async def test_prompts_resources_and_instructions_are_compared_too_and_late_lists_are_no_change(tmp_path: Path) -> None:
    def offered(text: str) -> Snapshot:
        prompts = (item("s", "name", "p", description=text),)
        resources = (item("s", "uri", "test://x", description=text),)
        templates = (item("s", "uriTemplate", "test://{x}", description=text),)
        tools = described(a="A").tools
        return Snapshot(tools=tools, prompts=prompts, resources=resources, templates=templates, instructions=text)

    rig_at(tmp_path).sinks["s"].publish(offered("one"))
    rig = rig_at(tmp_path)
    rig.say(a="A")
    assert rig.told == [], "the other lists may still come"
    rig.sinks["s"].publish(offered("two"))
    ((level, message),) = rig.told
    assert level == "warning"
    for label in ("prompt `p`", "resource `test://x`", "resource template `test://{x}`", "its instructions"):
        assert label in message


async def test_a_new_token_or_version_hides_no_change_and_its_list_is_not_the_old_one(tmp_path: Path) -> None:
    rig_at(tmp_path).say(add="Adds")
    other = DefinitionsRig(tmp_path)
    other.add("s", fingerprint="another", state=None)
    assert other.router.catalog.find("s_add") is None, "it may offer something else altogether"
    other.say(add="Subtracts")
    assert other.told == [CHANGED]
    back = rig_at(tmp_path)
    back.say(add="Adds")
    assert back.told == [CHANGED], "compared with what was said last, not with what this very command said before"


async def test_a_change_behind_a_reload_with_a_new_token_is_told(tmp_path: Path) -> None:
    rig = rig_at(tmp_path)
    rig.say(add="Adds")
    options = replace(rig.router.admissions["s"].options, fingerprint="another")
    sink = rig.router.registry.replace("s", FakeSource(), options)
    sink.publish(described(add="Subtracts"))
    sink.health(Health(state="ready"))
    assert rig.told == [CHANGED]
    rig.router.registry.close()


async def test_sources_of_one_name_in_two_configuration_files_are_two(tmp_path: Path) -> None:
    one, other = DefinitionStore(tmp_path, "one"), DefinitionStore(tmp_path, "other")
    one.save("s", "key", described(add="Adds"))
    assert one.last("s") is not None
    assert one.last("t") is None
    assert other.last("s") is None


def test_a_server_that_changes_all_the_time_is_told_of_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        rig = rig_at(tmp_path)
        for number in range(50):
            rig.say(**{f"t{number % 3}": f"text {number}"})
            await asyncio.sleep(0)
        changes = [message for level, message in rig.told if level == "warning"]
        assert len(changes) == 1
        await asyncio.sleep(REPORT_INTERVAL_S + 1)
        changes = [message for level, message in rig.told if level == "warning"]
        assert len(changes) == 2 and "tool `t2`" in changes[1]
        rig.router.registry.close()

    run_with_clock(monkeypatch, main())


async def test_what_was_kept_back_is_told_at_the_end(tmp_path: Path) -> None:
    rig = rig_at(tmp_path)
    for text in ("one", "two", "three"):
        rig.say(add=text)
    assert rig.told == [CHANGED]
    rig.router.registry.close()
    assert rig.told == [CHANGED, CHANGED], "the next start will compare with the last one only"


async def test_hundreds_of_changes_are_one_line(tmp_path: Path) -> None:
    rig = rig_at(tmp_path)
    rig.say(**{f"t{number}": "one" for number in range(300)})
    rig.say(**{f"t{number}": "two" for number in range(300)})
    ((_, message),) = rig.told
    assert message.endswith("and 290 more")
