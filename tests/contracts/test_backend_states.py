"""States of sequences, held by the fake and by llama.cpp alike: what is saved goes on elsewhere, whole or in ranges."""

from support.backends import Subject, feed


def test_a_saved_sequence_goes_on_in_another_memory(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    state = memory.save(0)
    memory.close()
    memory = on.open(2048, 3)
    assert memory.restore(2, state) == at
    assert on.same(on.view(memory, feed(memory, 2, on.tail, at)), on.fresh(on.floor + on.tail))
    memory.close()


def test_saving_changes_nothing_and_gives_the_same_twice(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    assert memory.save(0) == memory.save(0)
    assert on.same(on.view(memory, feed(memory, 0, on.tail, at)), on.fresh(on.floor + on.tail))
    memory.close()


def test_ranges_saved_alone_join_in_any_order_to_the_whole(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    ranges = [(0, 64), (64, 150), (150, at)]
    states = []
    for start, end in ranges:
        memory.copy(0, 7, start, end)
        states.append((start, end, memory.save(7)))
        memory.remove(7, 0, -1)
    memory.close()
    memory = on.open(2048, 8)
    for start, end, state in (states[2], states[0], states[1]):
        assert memory.restore(7, state) == end - start
        memory.copy(7, 3, start, end)
        memory.remove(7, 0, -1)
    assert on.same(on.view(memory, feed(memory, 3, on.tail, at)), on.fresh(on.floor + on.tail))
    memory.close()


def test_a_range_alone_is_much_smaller_than_the_whole(on: Subject) -> None:
    memory = on.open()
    feed(memory, 0, on.floor)
    memory.copy(0, 7, 100, 120)
    assert len(memory.save(7)) < len(memory.save(0)) / 4
    memory.close()


def test_a_state_that_does_not_fit_restores_nothing_and_disturbs_nobody(on: Subject) -> None:
    memory, at = on.open(), len(on.floor)
    feed(memory, 0, on.floor)
    state = memory.save(0)
    memory.close()
    memory = on.open(256, 4)
    feed(memory, 0, on.floor[: 256 - at // 2])
    assert memory.restore(1, state) == 0
    memory.remove(1, 0, -1)
    view = on.view(memory, feed(memory, 0, on.tail[:3], 256 - at // 2))
    assert on.same(view, on.fresh(on.floor[: 256 - at // 2] + on.tail[:3]))
    memory.close()
