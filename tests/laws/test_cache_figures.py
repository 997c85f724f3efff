"""`lore stats cache` against lives whose every hit, eviction and restore is known beforehand."""

from support.fake_engine import FakeBackend
from support.machine import END_EVERY, Machine

from orchestrator.cli.stats import cache_page
from orchestrator.engine.messages import UNSAVED, Cancel, Grant, InferenceJob, Outcome, PutFloor, Urgency, ids_to_bytes
from orchestrator.reports.cache import cache_report

CODE = [n % 50 for n in range(1000)]  # four segments: 256, 256, 256, 232


def report(machine):
    return cache_report(machine.loop.snapshot(), on_gpu=False, ranges=machine.backend.info.ranges).model_dump()


def asked(machine, ticket, tail, most=1):
    machine.ask(ticket, "code", tail, most)
    machine.finish()


def test_a_cold_and_a_warm_question_are_counted_to_the_token():
    machine = Machine(folder=None)
    machine.floor("code", CODE)
    asked(machine, 1, [1, 2, 3])
    asked(machine, 2, [7, 8])
    found = report(machine)
    assert found["tokens"] | {"generated": 0} == {
        "prompt": 2005, "cached": 1000, "computed": 1005, "generated": 0,
    }  # fmt: skip
    assert found["tiers"]["vram"]["tokens"] == 1000
    assert found["hit_rate"] == round(1000 / 2005, 4)
    assert found["saved_ms"] == round(1000 * machine.loop.snapshot().counters["ms_per_token"])


def test_what_is_restored_is_counted_in_the_tier_it_came_from(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.floor("code", CODE)
    asked(machine, 1, [1, 2, 3])
    machine.store.flush()
    before = report(machine)
    assert (before["segments"], before["tiers"]["disk"]["bytes"]) == (5, sum(f.stat().st_size for f in files(tmp_path)))
    machine.restart()
    asked(machine, 2, [7, 8])
    found = report(machine)
    assert found["tokens"] | {"generated": 0} == {
        "prompt": 1002, "cached": 1000, "computed": 2, "generated": 0,
    }  # fmt: skip
    assert [found["tiers"][tier]["tokens"] for tier in ("vram", "disk")] == [0, 1000]
    assert found["restores"]["disk_segments"] == 4
    assert found["evictions"]["vram_tokens"] == 0
    machine.loop.handle(Grant(2, 0, 0))  # takes the pool: 1,000 tokens of the floor, 2 of the tail
    assert report(machine)["evictions"]["vram_tokens"] == 1002
    machine.loop.handle(Grant(3, 4096, 2048))
    asked(machine, 3, [7, 8])
    again = report(machine)
    assert again["tiers"]["disk"]["tokens"] == 1000 + 1001
    assert again["tokens"]["computed"] == 2 + 1, "the last token of a prompt is computed for its answer"
    assert again["restores"]["disk_segments"] == 4 + 5


def test_only_what_was_answered_is_counted():
    """Both wait for the floor, which the first computes; neither gets its answer."""
    machine = Machine(folder=None)
    machine.floor("code", CODE)
    for ticket in (1, 2):
        machine.ask(ticket, "code", [ticket], 5)
    for _ in range(4):
        machine.round()
    for ticket in (1, 2):
        machine.loop.handle(Cancel(ticket))
    machine.finish()
    computed = machine.loop.snapshot().counters["computed_tokens"]
    assert computed > 0
    found = report(machine)
    assert (found["tokens"]["prompt"], found["tokens"]["cached"], found["tokens"]["computed"]) == (0, 0, 0)
    assert (found["saved_ms"], found["hit_rate"]) == (0, None)
    asked(machine, 3, [7, 8], most=5)
    found = report(machine)
    assert [found["tokens"][name] for name in ("prompt", "cached", "computed")] == [1002, computed, 1002 - computed]


def test_what_is_computed_or_restored_in_advance_is_the_prompt_of_nobody(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.floor("code", CODE)
    asked(machine, 1, [], most=0)
    machine.restart()
    asked(machine, 2, [], most=0)
    found = report(machine)
    assert (found["tokens"]["prompt"], found["saved_ms"], found["restores"]["disk_segments"]) == (0, 0, 4)
    asked(machine, 3, [7])
    assert [report(machine)["tokens"][name] for name in ("prompt", "cached")] == [1001, 1000]


def test_what_is_asked_in_the_background_is_counted_for_nobody_and_its_pool_leaves_no_file(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.loop.handle(PutFloor("text", ids_to_bytes(CODE), UNSAVED))
    for ticket, most in ((1, 0), (2, 5)):
        tail = ids_to_bytes([7] * most)
        machine.loop.handle(InferenceJob(ticket, "text", tail, 0, most, urgency=Urgency.BACKGROUND))
        machine.finish()
    machine.loop.handle(Grant(2, 0, 0))  # evicts it
    machine.loop.handle(Grant(3, 4096, 2048))
    found = report(machine)
    assert [machine.ends[ticket][0].outcome for ticket in (1, 2)] == [Outcome.DONE] * 2
    assert (found["tokens"]["prompt"], found["segments"], files(tmp_path)) == (0, 0, [])
    machine.restart()
    assert files(tmp_path) == []


def test_a_restore_for_a_question_that_was_cancelled_is_no_cost_of_the_answered_ones(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.floor("code", CODE)
    asked(machine, 1, [1])
    machine.restart()
    machine.ask(2, "code", [2], 50)
    machine.round()
    machine.loop.handle(Cancel(2))
    machine.finish()
    counters = machine.loop.snapshot().counters
    assert counters["tier_restored_ms"] > 0 == counters["restored_ms"]
    assert report(machine)["tiers"]["disk"]["tokens"] == 0


def test_restored_bytes_are_those_of_the_states(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.floor("code", CODE)
    asked(machine, 1, [1])
    machine.restart()
    kept = sum(len(machine.store.load(header)) for header in headers(machine))
    machine.restart()
    asked(machine, 2, [1], most=0)
    assert report(machine)["restores"]["bytes"] == kept


def test_faults_are_counted_each_by_its_kind(tmp_path):
    machine = Machine(folder=tmp_path)
    machine.floor("code", CODE)
    asked(machine, 1, [1])
    machine.restart()
    for file in files(tmp_path):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    asked(machine, 2, [2])
    machine.loop.pools.by_name["code"].tree.spare_sequences().pop()
    machine.loop.audit()
    found = report(machine)
    assert found["faults"] == {"misses": 0, "damaged": 1, "write_failures": 0, "broken_pools": 1, "failed_steps": 0}
    assert "1 damaged, 0 not written" in cache_page(found)
    assert "1 pool given up" in cache_page(found)


def test_checkpoints_over_the_budget_are_counted_as_evicted_from_the_disk(tmp_path):
    machine = Machine(folder=tmp_path, disk_budget=22_000)
    machine.floor("code", CODE)
    for ticket in range(1, 6):
        asked(machine, ticket, [ticket] * 200)
        machine.store.flush()
    found = report(machine)
    assert found["tiers"]["disk"]["bytes"] == sum(file.stat().st_size for file in files(tmp_path)) <= 22_000
    assert found["evictions"]["disk_segments"] == 9 - len(files(tmp_path)) > 0


def test_what_a_memory_without_ranges_restores_is_counted_too(tmp_path):
    machine = Machine(folder=tmp_path, ranges=False)
    machine.backend = FakeBackend(END_EVERY, ranges=False, constant=True)
    machine.start()
    machine.floor("code", CODE)
    asked(machine, 1, [1, 2, 3])
    machine.restart()
    asked(machine, 2, [1, 2, 3, 4])
    found = report(machine)
    assert (found["tiers"]["disk"]["tokens"], found["restores"]["disk_segments"]) == (1003, 2)
    assert "floors and turns" in found["note"]


def files(folder):
    return list(folder.glob("*.kv"))


def headers(machine):
    """The floor's segments and the tail's, in order."""
    found, names = [], [machine.store.root]
    while names:
        for header in machine.store.continuations(names.pop()):
            found.append(header)
            names.append(header.name)
    return found
