"""What is done to an engine to measure it. Each story takes a fresh engine and returns plain figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from answers import Answer, Engine, Ids, Refused
from prompts import ids, question

TAIL = 200  # tokens of a conversation that has turns


@dataclass(frozen=True)
class Warm:
    cold_s: float  # to the first token, as all seconds here
    warm_s: float  # median of new questions
    computed: float  # tokens of a new question, median


def warm(engines: Sequence[Engine], floor: Ids, runs: int) -> list[Warm]:
    """To each engine a cold question, then others about the same floor, in turns: what else the machine does meanwhile
    meets all of them alike."""
    cold = [engine.ask(floor, question(0), 1).answer().first_s for engine in engines]
    turns = [[engine.ask(floor, question(number), 1).answer() for engine in engines] for number in range(1, runs + 1)]
    return [
        Warm(first_s, median(answer.first_s for answer in answers), median(answer.computed for answer in answers))
        for first_s, answers in zip(cold, zip(*turns, strict=True), strict=True)
    ]


def one_question(engine: Engine, floor: Ids) -> Answer:
    return engine.ask(floor, question(98), 1).answer()


def second_while_first_runs(engine: Engine, floor: Ids) -> tuple[Answer, int]:
    """The second one's answer, and the bytes of KV that both hold."""
    first = engine.ask(floor, question(0), 400)
    first.first.wait()
    second = engine.ask(floor, question(1), 1).answer()
    held = engine.kv_bytes()
    first.answer()
    return second, held


def first_again_after_second(engine: Engine, floor: Ids) -> Answer:
    """Two conversations take turns; what the first must compute when it comes back."""
    tails = [ids(TAIL, "conversation", number) for number in range(2)]
    for tail in tails:
        engine.ask(floor, tail, 1).answer()
    return engine.ask(floor, [*tails[0], *question(0)], 1).answer()


@dataclass(frozen=True)
class Crowd:
    answered: int
    computed: int
    last_first_s: float
    kv_bytes: int
    resident_bytes: int


def crowd(engine: Engine, floor: Ids, size: int) -> Crowd:
    """`size` conversations arrive at the same moment about a cold floor."""
    running = [engine.ask(floor, question(number), 8) for number in range(size)]
    answers = []
    for one in running:
        try:
            answers.append(one.answer())
        except Refused:
            continue
    last = max((answer.first_s for answer in answers), default=float("inf"))
    computed = sum(answer.computed for answer in answers)
    return Crowd(len(answers), computed, last, engine.kv_bytes(), engine.resident_bytes())


@dataclass(frozen=True)
class Branches:
    cold_s: float  # the trunk's own first token
    last_first_s: float  # of the branches, which arrive at the same moment
    computed: int  # tokens of all branches


def branches(engine: Engine, floor: Ids, trunk: Ids, number: int) -> Branches:
    """A conversation that was answered goes on in `number` ways at once."""
    cold = engine.ask(floor, [*trunk, *question(0)], 1).answer()
    running = [engine.ask(floor, [*trunk, *question(one)], 1) for one in range(1, number + 1)]
    answers = [one.answer() for one in running]
    return Branches(cold.first_s, max(one.first_s for one in answers), sum(one.computed for one in answers))


def largest_gap(engine: Engine, floor: Ids, tokens: int) -> float:
    """Seconds that a streaming answer stands still while another, cold prompt is computed."""
    stream = engine.ask([], question(0), tokens)
    stream.first.wait()
    other = engine.ask(floor, question(1), 1)
    other.answer()
    return max(stream.answer().gaps_s)


def next_after_given_up(engine: Engine, floor: Ids, after_s: float) -> float:
    """Seconds to the first token of a short question, right after somebody went away from a cold prompt."""
    engine.give_up(floor, question(0), after_s)
    return engine.ask([], question(1), 1).answer().first_s


def decode_rate(engine: Engine, floor: Ids, answers: int, tokens: int) -> float:
    """Tokens a second over all answers, from the last first token to the end of the first that ends."""
    if floor:
        engine.ask(floor, question(99), 1).answer()
    running = [engine.ask(floor, question(number), tokens) for number in range(answers)]
    for one in running:
        one.answer()
    begun = max(one.marks[0] for one in running)
    ended = min(one.marks[-1] for one in running)
    counted = sum(sum(begun < mark <= ended for mark in one.marks) for one in running)
    return counted / (ended - begun)


def step_time(engine: Engine, answers: int, tokens: int) -> float:
    """Seconds that each of the steps took in which `answers` answers got their tokens together."""
    running = [engine.ask([], question(number), tokens) for number in range(answers)]
    done = [one.answer() for one in running]
    return max(answer.total_s for answer in done) / max(answer.generated for answer in done)
