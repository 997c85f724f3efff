"""Hundreds of real turns through the daemon under chance: sessions, codices, lengths, memory that other programs take and
give back, pauses, kills of the engine and of the daemon.

No answer is wrong, nothing is cut without its name, every refusal has numbers or says what is waited for, and the engine
dies only where it was killed. `LORE_SOAK_REAL_TURNS` sets a longer life (`make nightly`: 500).
"""

import os
import random
import re
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from private_daemon import PrivateDaemon
from support.house import codebase, counters, engine_child, over_socket, question, reply, revived, until
from support.lives import SEED, begin, tell
from support.nvml import GIB, StandIn
from support.scarce_memory import FREE, on_a_card

TURNS = int(os.environ.get("LORE_SOAK_REAL_TURNS", "12"))
LONG = 100  # turns, in which everything happens
CODICES = {f"vaults{n}": (12 * 3**n, {f"zebra{n}": f"{4815 + n}162", f"walrus{n}": f"{9273 + n}645"}) for n in range(3)}
LENGTHS = (0, 0, 0, 200, 2_000, 8_000, 60_000)  # characters beside the question; the last are more than the window
TAKEN = (0, 0, 1, 3, 5, 6)  # GiB that others hold
AT_ONCE = 3
LAST = 20  # turns of a session; then another one begins
WORDS = ("amber", "brook", "cedar", "dune", "ember", "fjord", "grove", "heron")
REFUSED = {"context_length_exceeded", "over_budget"}
AWAY = {"paused", "not_ready", "loading", "not_ready_in_time"}


@dataclass
class Talk:
    """A session, and its questions that were answered."""

    session: str
    codex: str
    answered: list[str] = field(default_factory=list)


@dataclass
class Asked:
    """One question, which `code` answers, and what came of it: `error` is the code of a refusal, or `gone` where the daemon
    was."""

    talk: Talk
    question: str
    code: str
    text: str = ""
    lore: Any = None
    error: str = ""
    message: str = ""


@dataclass
class Life:
    house: PrivateDaemon
    driver: StandIn
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    done: Counter[str] = field(default_factory=Counter)
    talks: dict[int, Talk] = field(default_factory=dict)
    restarts: int = 0  # of engines, under daemons that are gone
    killed: int = 0
    broken: bool = False  # a turn ago: a kill may be noticed a moment later

    # -- what happens

    def turn(self, number: int) -> None:
        self.others()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asking = [pool.submit(self.ask, one) for one in self.questions()]
            event = self.event(number)
            if event is not None:
                self.done[event.__name__] += 1
                event()
            answers = [one.result() for one in asking]
        broken, self.broken = self.broken, event in (self.kill_engine, self.kill_daemon)
        ended = event == self.kill_daemon
        revived(self.house)
        for one in answers:
            self.check(one, broken=broken or self.broken, ended=ended)

    def event(self, number: int) -> Callable[[], None] | None:
        if number % 10 == 9:
            return self.kill_daemon
        if number % 5 == 4:
            return self.kill_engine
        return self.chance.choice([None, None, None, self.pause])

    def others(self) -> None:
        self.driver.show(free=FREE - self.chance.choice(TAKEN) * GIB)

    def pause(self) -> None:
        reply(self.house, "/v1/pause", {"why": "chance", "for": 0.3})

    def kill_engine(self) -> None:
        if reply(self.house, "/v1/status")["engine"]["pid"] is None:
            return
        os.kill(engine_child(self.house), signal.SIGKILL)
        self.killed += 1

    def kill_daemon(self) -> None:
        self.restarts += self.engines()
        self.house.kill()

    def engines(self) -> int:
        return int(reply(self.house, "/v1/status")["engine"]["restarts"])

    # -- questions

    def questions(self) -> list[Asked]:
        """Each in a session of its own, as one session answers one question at a time."""
        return [self.question(number) for number in self.chance.sample(range(4), self.chance.randint(1, AT_ONCE))]

    def question(self, number: int) -> Asked:
        talk = self.talks.get(number)
        if talk is None or len(talk.answered) >= LAST:
            talk = self.talks[number] = Talk(f"talk-{self.done['asked']}", self.chance.choice(sorted(CODICES)))
        vault, code = self.chance.choice(sorted(CODICES[talk.codex][1].items()))
        self.done["asked"] += 1
        padding = " ".join(self.chance.choices(WORDS, k=self.chance.choice(LENGTHS) // 6))
        return Asked(talk, f"{self.done['asked']}: {padding} {question(vault)}", code)

    def ask(self, one: Asked) -> Asked:
        body = {"model": "lore", "messages": [{"role": "user", "content": one.question}], "max_completion_tokens": 10}
        lore = {"session": one.talk.session, "codex": one.talk.codex, "timeout_s": 30}
        try:
            with over_socket(self.house) as http:
                answer = http.post("/v1/chat/completions", json={**body, "lore": lore})
        except httpx2.HTTPError:
            one.error = "gone"
            return one
        if answer.is_success:
            one.text, one.lore = answer.json()["choices"][0]["message"]["content"], answer.json()["lore"]
        else:
            error = answer.json()["error"]
            one.error, one.message = error["code"], f"{error['message']}; {error['hint']}"
        return one

    # -- what must be so

    def check(self, one: Asked, *, broken: bool, ended: bool) -> None:
        if one.error in REFUSED:
            self.done["refused"] += 1
            assert len(re.findall(r"\d+", one.message)) >= 2, f"a refusal without its numbers: {one.message!r}"
        elif one.error:
            self.done["put off"] += 1
            assert broken or one.error in AWAY, (one.error, one.message)
        else:
            self.done["answered"] += 1
            assert one.text.strip().startswith(one.code), (one.question[-60:], one.text, one.lore["governor"])
            assert one.lore["prompt"]["tokens"] <= one.lore["governor"]["budget_tokens"]
            self.check_nothing_was_lost(one, ended=ended)

    def check_nothing_was_lost(self, one: Asked, *, ended: bool) -> None:
        """Each question of the session stands in the exact prompt, or the answer says that something does not. `ended`: the
        daemon was killed in this turn."""
        with over_socket(self.house) as http:
            trace = http.get(f"/v1/traces/{one.lore['trace']}?prompt=1")
        if ended and trace.status_code == 404:  # it is written while the answer goes out
            self.done["without a trace"] += 1
            return
        assert trace.is_success, trace.text
        prompt = "".join(item["text"] for item in trace.json()["trace"]["prompt"])
        assert one.question in prompt
        if any(earlier not in prompt for earlier in one.talk.answered):
            self.done["cut"] += 1
            assert one.lore["governor"]["left_out"]
        if not one.lore.get("not_kept"):
            one.talk.answered.append(one.question)


@pytest.fixture
def life(tmp_path: Path, models: Path) -> Any:
    with on_a_card(models, tmp_path, "[model]\ncontext = 4096\n") as (house, driver):
        for name, (functions, codes) in CODICES.items():
            assert house.lore("load", codebase(house.folder / name, codes, functions), "--wait").returncode == 0
        yield Life(house, driver)


@pytest.mark.timeout(4 * 3600)  # 500 turns took an hour beside other work
def test_real_turns_are_answered_or_refused_with_a_reason_whatever_happens(life: Life) -> None:
    begin()
    for number in range(TURNS):
        life.turn(number)
    life.driver.show(free=FREE)
    until(lambda: reply(life.house, "/v1/status")["paused"] is None)
    figures = counters(life.house)
    tell("of a daemon", life.done)
    assert life.restarts + life.engines() <= life.killed, "an engine died by itself"
    assert (figures["pool_failures"], figures["broken_pools"]) == (0, 0)
    seen = ("answered", "refused", "kill_engine", "kill_daemon", *(("cut", "pause") if TURNS >= LONG else ()))
    assert min(life.done[what] for what in seen) > 0, life.done
