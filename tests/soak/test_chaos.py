"""Thousands of turns under chance: codices, lengths, memory that other programs take and give back, kills of the engine.

    others' bytes -> next_outlook -> numbered grant -> claims settled -> job under that number -> the loop over the fake

No decode fails, nothing takes more memory than there is, nothing is cut without its name, every refusal has numbers, and
every answer is what a naive model says of the whole prompt. The same seed is the same life. `LORE_SOAK_TURNS` sets a longer
life (`make nightly`: 10,000).
"""

import os
import random
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.gpus import gpu
from support.lives import SEED
from support.machine import Machine, naive_answer
from support.shapes import shape

from governor.budget import Demand, Ours, Outlook, ceiling_of, next_outlook
from governor.ctc import NEVER_CUT, Action, Claim, ClaimKind, limits_of, settle
from governor.footprint import KvPlan, kv_cost
from governor.model_shape import Layer
from governor.readings import HostReading, SensorSnapshot
from governor.settings import MIB, ClaimSettings, GovernorSettings, MemorySettings
from orchestrator.engine.messages import Grant, InferenceJob, Outcome, PutFloor, Reason, ids_to_bytes

TURNS = int(os.environ.get("LORE_SOAK_TURNS", "150"))
PLAN = KvPlan("f16", "f16")
SHAPE = shape(trained=2_000, layers=(Layer(MIB, 512, 512, 64, 64),) * 4, input=MIB, output=MIB)
DEMAND = Demand(SHAPE, PLAN, gpu_layers=5, buffers=4 * MIB)
TOTAL = 60 * MIB
MEMORY = MemorySettings(margin_bytes=2 * MIB, margin_share=0.01, smallest_window=256)
SETTINGS = replace(GovernorSettings(), memory=MEMORY)
CODICES = {f"code{n}": [(n * 11 + at) % 60 for at in range(120 + 60 * n)] for n in range(5)}
TOO_LONG = SHAPE.trained  # the first question: every life sees a refusal
KILL_EVERY = 50  # turns, beside the kills of chance: every life sees some
MOST_PLANS = 4  # one, and three more under newer grants


@dataclass
class Talk:
    """A session: the claims of its closed turns."""

    codex: str
    closed: list[Claim] = field(default_factory=list)
    turns: int = 0


@dataclass
class Asked:
    """A question under way, planned so many times. `ids` is the whole prompt of its last plan."""

    talk: int
    codex: str  # the talk may be over, and another in its place, before the answer comes
    claims: list[Claim]
    most: int
    plans: int = 0
    grant: int = 0
    ids: list[int] = field(default_factory=list)


class Life:
    def __init__(self, folder: Path) -> None:
        self.chance, self.done = random.Random(SEED), Counter[str]()
        self.machine = Machine(folder=folder, cells=4_096, window=2_000, disk_budget=400_000)
        self.others, self.second = MIB, 0.0
        self.outlook: Outlook | None = None
        self.talks = [Talk(self.chance.choice(sorted(CODICES))) for _ in range(12)]
        self.asked: dict[int, Asked] = {}
        self.ticket = self.turns = 0

    # -- memory

    def look(self) -> None:
        """Others take or give back; what they ask for beyond what is free they do not get."""
        if self.outlook is not None and self.chance.random() < 0.3:
            self.others = self.chance.choice([0, 2, 10, 20, 30, 40, 60]) * MIB + self.chance.randrange(MIB)
        pools = self.machine.loop.pools.by_name.values()
        held = SHAPE.weights + DEMAND.buffers + sum(kv_cost(SHAPE, PLAN, pool.memory.cells) for pool in pools)
        assert held <= TOTAL, "ours alone is more than there is"
        self.second += 2.0
        others = min(self.others, TOTAL - held)
        card = gpu(0, TOTAL, TOTAL - others - held, own=held)
        snapshot = SensorSnapshot(self.second, (card,), HostReading(64 * MIB, 60 * MIB, 0))
        self.outlook = next_outlook(self.outlook, snapshot, Ours(held=held, demand=DEMAND), SETTINGS)
        budget = self.outlook.budget
        assert budget is not None
        kv = kv_cost(SHAPE, PLAN, budget.cells)
        assert kv == 0 or others + budget.fixed + kv <= ceiling_of(TOTAL, MEMORY) + 0.02 * kv
        self.machine.cells, self.machine.window = budget.cells, budget.window
        self.machine.loop.handle(Grant(budget.number, budget.cells, budget.window))

    # -- a turn

    def ask(self) -> None:
        number = self.chance.randrange(len(self.talks))
        talk = self.talks[number]
        floor = len(CODICES[talk.codex])
        size = self.chance.choice([5, 40, 200, 700]) if self.ticket else TOO_LONG
        claims = [
            Claim("identity and codex", ClaimKind.FLOOR, floor, floor * 4),
            Claim("environment", ClaimKind.INSTRUCTION, 12, 40),
            *talk.closed,
            *(Claim(f"a.py:{at}", ClaimKind.EVIDENCE, 30, 90, weight=-at) for at in range(self.chance.randrange(4))),
            Claim("user", ClaimKind.QUERY, size, 4 * size),
        ]
        self.ticket += 1
        self.asked[self.ticket] = Asked(number, talk.codex, claims, self.chance.choice([1, 8, 20]))
        self.plan(self.ticket)

    def plan(self, ticket: int) -> None:
        """Settles the claims under the grant of now, and hands the job in under its number."""
        asked, budget = self.asked[ticket], self.outlook.budget if self.outlook else None
        assert budget is not None
        asked.plans += 1
        limits = limits_of(budget.window, asked.most, budget.cells, ClaimSettings(depth=self.chance.choice([None, 6])))
        settled = settle(asked.claims, limits)
        if settled.refusal is not None:
            self.refused(ticket, settled.refusal.sentence)
            assert all(verdict.action is Action.KEEP for verdict in settled.verdicts)
            return
        assert sum(verdict.tokens for verdict in settled.verdicts) <= limits.tokens
        for claim, verdict in zip(asked.claims, settled.verdicts, strict=True):
            cut = verdict.tokens < claim.tokens
            assert bool(verdict.reason) == cut, "what is cut is named, and only that"
            assert not (cut and claim.kind in NEVER_CUT)
            self.done["cut"] += cut
        floor = CODICES[asked.codex]
        sizes = [(at, verdict.tokens) for at, verdict in enumerate(settled.verdicts) if at > 0]
        tail = [1 + (asked.talk + at) % 30 for at, tokens in sizes for _ in range(tokens)]
        asked.ids, asked.grant = [*floor, *tail], budget.number
        self.hand_in(ticket, budget.number)

    def hand_in(self, ticket: int, grant: int) -> None:
        asked = self.asked[ticket]
        name = asked.codex
        self.machine.floors[name] = CODICES[name]
        self.machine.loop.handle(PutFloor(name, ids_to_bytes(CODICES[name])))
        tail = ids_to_bytes(asked.ids[len(CODICES[name]) :])
        self.machine.loop.handle(InferenceJob(ticket, name, tail, 1 + asked.talk % 3, asked.most, grant=grant))

    def again(self, ticket: int) -> None:
        """Under a ticket of its own, as the daemon does where the grant has changed since."""
        self.done["planned again"] += 1
        self.ticket += 1
        self.asked[self.ticket] = self.asked.pop(ticket)
        self.plan(self.ticket)

    def refused(self, ticket: int, sentence: str) -> None:
        assert len(re.findall(r"\d+", sentence)) >= 2, f"a refusal without its numbers: {sentence!r}"
        self.done["refused"] += 1
        del self.asked[ticket]

    # -- what comes of it

    def listen(self) -> None:
        """Every ticket that has ended since the last time."""
        for ticket in [ticket for ticket in self.asked if ticket in self.machine.ends]:
            (end,) = self.machine.ends.pop(ticket)
            asked, grant = self.asked[ticket], self.outlook.budget if self.outlook else None
            stale = grant is not None and asked.grant != grant.number
            if end.outcome is Outcome.REFUSED and stale and asked.plans < MOST_PLANS:
                self.again(ticket)
            elif end.outcome is Outcome.REFUSED:
                assert end.reason in (Reason.STALE, Reason.CELLS, Reason.WINDOW), end
                self.refused(ticket, end.detail)
            else:
                assert end.outcome is Outcome.DONE, end
                self.answered(self.asked.pop(ticket), self.machine.answers.pop(ticket, []))

    def answered(self, asked: Asked, answer: list[int]) -> None:
        self.done["answered"] += 1
        assert answer == naive_answer(asked.ids, asked.most)
        talk, query = self.talks[asked.talk], asked.claims[-1].tokens
        turn, talk.turns = talk.turns, talk.turns + 1
        said = query + len(answer)
        talk.closed.append(Claim(f"turn {turn}", ClaimKind.TURN, said, 4 * said, weight=turn, turn=turn))
        if self.chance.random() < 0.4:
            talk.closed.append(Claim(f"result of {turn}", ClaimKind.SUPERSEDED, 50, 150, stub=8, turn=turn))
        if talk.turns > 30:
            self.talks[asked.talk] = Talk(self.chance.choice(sorted(CODICES)))

    def kill(self) -> None:
        """The engine ends without a word; what ran is handed in again, as the supervisor does."""
        store = self.machine.store
        if store is not None:
            store.close()
        self.machine.start()
        self.look()
        assert self.outlook is not None
        for ticket in self.asked:
            self.machine.answers.pop(ticket, None)
            self.hand_in(ticket, 0)
        self.done["kill"] += 1

    def round(self) -> None:
        """What it writes is on the disk before the next: what a round finds there follows from the seed, not from how
        busy the disk is."""
        self.machine.round()
        if self.machine.store is not None:
            self.machine.store.flush()
        self.listen()

    def turn(self) -> None:
        self.look()
        self.ask()
        for _ in range(self.chance.randint(0, 12)):
            self.round()
        self.turns += 1
        if self.chance.random() < 0.02 or self.turns % KILL_EVERY == 0:
            self.kill()


@pytest.mark.timeout(3600)
def test_no_turn_fails_whatever_others_take_and_whenever_the_engine_is_killed(tmp_path: Path) -> None:
    life = Life(tmp_path / "kv")
    for _ in range(TURNS):
        life.turn()
    life.others = 0
    life.look()
    while life.asked:
        life.machine.finish()
        life.listen()
    assert life.done["answered"] + life.done["refused"] == TURNS
    assert min(life.done[what] for what in ("answered", "refused", "cut", "kill", "planned again")) > 0, life.done
    counters = life.machine.loop.counters
    assert (counters.pool_failures, counters.broken_pools) == (0, 0)
