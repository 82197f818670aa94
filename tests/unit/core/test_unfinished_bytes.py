from __future__ import annotations

from trunkline.core.unfinished_bytes import UnfinishedBytes


class Holder:
    def __init__(self, all_of_them: UnfinishedBytes) -> None:
        self._all = all_of_them
        self.gave_way = False

    def hold(self, held_bytes: int) -> None:
        self._all.hold(self, held_bytes)

    def give_way(self) -> None:
        self.gave_way = True
        self.hold(0)


def test_the_oldest_gives_way_until_the_rest_fits() -> None:
    unfinished = UnfinishedBytes(100)
    first, second, third = (Holder(unfinished) for _ in range(3))
    first.hold(40)
    second.hold(50)
    first.hold(45)
    assert not first.gave_way, "95 of 100"
    third.hold(60)
    assert (first.gave_way, second.gave_way, third.gave_way) == (True, True, False)
    assert (unfinished.total_bytes, unfinished.given_way) == (60, 2)


def test_whoever_finished_and_begins_again_is_the_youngest() -> None:
    unfinished = UnfinishedBytes(100)
    first, second = Holder(unfinished), Holder(unfinished)
    first.hold(10)
    second.hold(60)
    first.hold(0)
    first.hold(50)
    assert (first.gave_way, second.gave_way) == (False, True)


def test_one_alone_may_hold_more_than_all_together() -> None:
    unfinished = UnfinishedBytes(100)
    only = Holder(unfinished)
    only.hold(1000)
    assert not only.gave_way
    newcomer = Holder(unfinished)
    newcomer.hold(1)
    assert only.gave_way
    assert unfinished.total_bytes == 1


def test_one_that_grows_may_have_to_give_way_to_others_itself() -> None:
    unfinished = UnfinishedBytes(100)
    first, second = Holder(unfinished), Holder(unfinished)
    first.hold(10)
    second.hold(50)
    first.hold(60)
    assert (first.gave_way, second.gave_way) == (True, False)
    assert unfinished.total_bytes == 50


def test_any_number_may_have_to_give_way_to_one() -> None:
    unfinished = UnfinishedBytes(10_000)
    small = [Holder(unfinished) for _ in range(5_000)]
    for holder in small:
        holder.hold(1)
    large = Holder(unfinished)
    large.hold(9_999)
    assert [holder.gave_way for holder in small] == [True] * 4_999 + [False]
    assert (unfinished.total_bytes, unfinished.given_way) == (10_000, 4_999)


def test_one_that_does_not_let_go_is_not_asked_for_ever() -> None:
    class Stubborn(Holder):
        def give_way(self) -> None:
            self.gave_way = True

    unfinished = UnfinishedBytes(100)
    stubborn, other = Stubborn(unfinished), Holder(unfinished)
    stubborn.hold(90)
    other.hold(90)
    assert stubborn.gave_way
    assert unfinished.total_bytes == 90
