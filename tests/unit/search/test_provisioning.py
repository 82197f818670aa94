"""The tools provisioned for a session, within its budget."""

from __future__ import annotations

import pytest

from trunkline.config.call_arguments import InvalidArguments
from trunkline.core.call import Caller
from trunkline.search.provisioning import MAX_GRANTED, MAX_HANDLES_PER_PRINCIPAL, ProvisionedTools, Provisioning


def test_what_is_found_is_listed_and_may_be_executed() -> None:
    held = ProvisionedTools(100)
    held.add_found("a.x", 40)
    assert list(held.listed()) == ["a.x"]
    assert "a.x" in held.granted
    assert held.tokens == 40


def test_what_is_found_makes_room_for_later_finds_and_stays_executable() -> None:
    held = ProvisionedTools(100)
    for address in ("a.x", "a.y", "a.z"):
        held.add_found(address, 40)
    assert list(held.listed()) == ["a.y", "a.z"]
    assert set(held.granted) == {"a.x", "a.y", "a.z"}


def test_what_is_found_again_counts_as_found_last() -> None:
    held = ProvisionedTools(100)
    held.add_found("a.x", 40)
    held.add_found("a.y", 40)
    held.add_found("a.x", 40)
    held.add_found("a.z", 40)
    assert list(held.listed()) == ["a.x", "a.z"]


def test_finding_the_same_again_changes_no_list() -> None:
    held = ProvisionedTools(100)
    held.add_found("a.x", 40)
    version = held.version
    held.add_found("a.x", 40)
    assert held.version == version


def test_what_was_asked_for_stays_and_finds_make_way_for_it() -> None:
    held = ProvisionedTools(100)
    held.add_found("a.x", 60)
    assert held.add_requested("a.y", 60)
    assert list(held.listed()) == ["a.y"]
    held.add_found("a.z", 40)
    held.add_found("a.w", 40)
    assert list(held.listed()) == ["a.y", "a.w"]


def test_what_does_not_fit_beside_what_was_asked_for_is_refused() -> None:
    held = ProvisionedTools(100)
    assert held.add_requested("a.x", 60)
    assert not held.add_requested("a.y", 60)
    assert list(held.listed()) == ["a.x"]
    assert "a.y" not in held.granted
    assert held.room == 40


def test_a_find_that_is_asked_for_is_counted_once() -> None:
    held = ProvisionedTools(100)
    held.add_found("a.x", 60)
    assert held.add_requested("a.x", 60)
    assert held.add_requested("a.x", 60)
    assert held.tokens == 60


def test_what_is_taken_back_is_neither_listed_nor_executable() -> None:
    held = ProvisionedTools(100)
    held.add_requested("a.x", 10)
    held.add_found("a.y", 10)
    assert held.remove("a.x")
    assert held.remove("a.y")
    assert not held.remove("a.z")
    assert not list(held.listed())
    assert not held.granted


def test_a_smaller_budget_sends_finds_away_and_keeps_what_was_asked_for() -> None:
    held = ProvisionedTools(100)
    held.add_requested("a.x", 50)
    held.add_found("a.y", 50)
    held.set_budget(60)
    assert list(held.listed()) == ["a.x"]
    held.set_budget(20)
    assert list(held.listed()) == ["a.x"]
    assert not held.add_requested("a.z", 1)


def test_what_may_be_executed_has_an_end() -> None:
    held = ProvisionedTools(10)
    for number in range(MAX_GRANTED + 5):
        held.add_found(f"a.{number}", 1)
    assert len(held.granted) == MAX_GRANTED
    assert "a.0" not in held.granted
    assert len(held.found) == 10


@pytest.mark.law
def test_sessions_handles_and_principals_hold_their_own() -> None:
    provisioning = Provisioning(100)
    callers = {
        "session": (Caller("me", "s1"), None),
        "other session": (Caller("me", "s2"), None),
        "principal": (Caller("me"), None),
        "other principal": (Caller("you"), None),
        "handle": (Caller("me"), "s1"),
        "same handle of another": (Caller("you"), "s1"),
    }
    for name, (caller, handle) in callers.items():
        provisioning.of(caller, handle).add_found(name, 1)
    for name, (caller, handle) in callers.items():
        held = provisioning.existing(caller, handle)
        assert held is not None
        assert list(held.listed()) == [name]


def test_a_session_that_ends_is_forgotten() -> None:
    provisioning = Provisioning(100)
    provisioning.of(Caller("me", "s1")).add_found("a.x", 1)
    provisioning.of(Caller("me")).add_found("a.x", 1)
    provisioning.forget("s1")
    assert provisioning.existing(Caller("me", "s1")) is None
    assert provisioning.existing(Caller("me")) is not None


def test_of_many_handles_the_one_not_used_for_longest_is_forgotten() -> None:
    provisioning = Provisioning(100)
    me = Caller("me")
    for number in range(MAX_HANDLES_PER_PRINCIPAL):
        provisioning.of(me, f"h{number}")
    provisioning.of(Caller("you"), "h")
    provisioning.of(me, "h0")
    provisioning.of(me, "new")
    assert provisioning.existing(me, "h0") is not None
    assert provisioning.existing(me, "h1") is None
    assert provisioning.existing(me, "new") is not None
    assert provisioning.existing(Caller("you"), "h") is not None


@pytest.mark.parametrize("handle", ["a\nb", "x" * 201, "\x00"])
def test_a_handle_is_a_short_printable_name(handle: str) -> None:
    with pytest.raises(InvalidArguments, match="`session`"):
        Provisioning(100).of(Caller("me"), handle)


def test_a_tool_that_is_gone_stays_listed_until_its_room_is_needed() -> None:
    held = ProvisionedTools(100)
    assert held.add_requested("a.x", 60)
    held.demote("a.x")
    assert list(held.listed()) == ["a.x"]
    held.add_found("a.y", 40)
    assert held.add_requested("a.z", 60)
    assert sorted(held.listed()) == ["a.y", "a.z"]
    assert "a.x" in held.granted


def test_another_budget_is_for_everybody_who_chose_none() -> None:
    provisioning = Provisioning(100)
    mine, yours = (provisioning.of(Caller("me", session)) for session in ("mine", "yours"))
    yours.chose_budget = True
    provisioning.set_budget(50)
    assert (mine.budget, yours.budget, provisioning.of(Caller("me", "new")).budget) == (50, 100, 50)
