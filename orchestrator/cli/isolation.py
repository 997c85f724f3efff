"""`lore doctor --isolation`: whether what one conversation says reaches another's answer, tried on the running daemon.

    canaries ─▶ private conversations, all asked at once ─▶ each answer again, alone and without any cache ─▶ compared

A canary is a random word that stands in one conversation. An answer computed in a context of its own cannot hold anything
of another conversation: that is what the others are held against, token by token, with the log-probabilities of the
likeliest ones. One more is asked alone with another's canary in its place: where that makes no difference, equal answers
prove nothing. Deciding is pure (`verdict`); `asked_at_once` and `alone` ask.
"""

import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.terminal import clear_progress, count, plural, progress
from orchestrator.wire.checks import Check, checked

ROUTE = "/v1/chat/completions"
CONVERSATIONS, ROUNDS = 4, 2
MOST_TOKENS = 24  # of an answer: a canary and some words
LIKELIEST = 5
# Nats: a probability may differ by a factor of 2.7. Batches of other shapes round otherwise: 0.01 with weights of 16 bits,
# 0.45 at worst with Gemma 3 270M in Q4_K_M, whose activations are quantised too. Another canary is another word.
ALLOWED = 1.0
LIKELY = math.log(0.05)  # below, rounding is a larger share of a probability, and nothing is chosen by it
LINE = "The pass phrase of this conversation is"
REPORT = "report it, with the output of `lore doctor --isolation --json` and the daemon's log"
ONCE_MORE = "lore doctor --isolation"
LISTS = ("sessions", "traces", "memories")
LIMITS = (
    "this holds for these answers, this model and this build on this machine. It does not prove that no other load could "
    "differ, and says nothing of who may ask (docs/security.md)"
)

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class SaidToken:
    """A token of an answer, and the log-probabilities of the likeliest in its place, by their bytes."""

    bytes: tuple[int, ...]
    likeliest: Mapping[tuple[int, ...], float]

    @property
    def is_tie(self) -> bool:
        """Whether rounding alone may choose another one."""
        first, second = sorted((*self.likeliest.values(), -math.inf, -math.inf), reverse=True)[:2]
        return first - second <= ALLOWED


@dataclass(frozen=True)
class Said:
    """One answer: its text, its tokens, and of its prompt the tokens and those out of a cache."""

    text: str
    tokens: Sequence[SaidToken]
    prompt: int
    cached: int


@dataclass(frozen=True)
class Pair:
    """An answer beside others, and the same alone. `conversation` by number."""

    conversation: int
    together: Said
    alone: Said


@dataclass(frozen=True)
class Distance:
    """`nats`: the largest difference of a likely token; infinite where another token was chosen for no tie. `compared`: in
    tokens."""

    nats: float
    compared: int


def isolated(socket: str | None, codex: str) -> list[Check]:
    """Raises Failure where the daemon cannot be asked."""
    canaries = [canary() for _ in range(CONVERSATIONS)]
    try:
        pairs, control = tried(socket, codex, canaries)
        kept = [name for name in LISTS if holds_any(Daemon(socket).call("GET", f"/v1/{name}"), canaries)]
    finally:
        clear_progress()
    return list(verdict(canaries, pairs, control, kept))


def canary() -> str:
    """Digits are tokens of their own in most vocabularies: no two canaries have many in common."""
    return (
        f"{secrets.choice(('amber', 'basalt', 'cobalt', 'garnet', 'indigo', 'quartz'))}-{secrets.randbelow(10**8):08d}"
    )


# ---- what is decided -------------------------------------------------------------------------------------------------


def verdict(canaries: Sequence[str], pairs: Sequence[Pair], control: Distance, kept: Sequence[str]) -> Iterator[Check]:
    """`control`: an answer alone with another's canary, against the one with its own; `kept`: what holds a canary."""
    yield same(pairs)
    yield foreign(canaries, pairs)
    words = f"with another's canary in its prompt an answer differs by {nats(control.nats)}"
    fix = f"{words}: this model does not follow the canaries, so equal answers prove little"
    sees = control.nats > ALLOWED
    yield Check(
        "control", sees, f"{words}, so the comparison sees it" if sees else fix, "" if sees else "ask a larger model"
    )
    words = f"{', '.join(kept)} hold a canary" if kept else "no session, trace or memory holds a canary"
    yield checked("nothing kept", not kept, words, REPORT)
    yield Check("limits", True, LIMITS)


def same(pairs: Sequence[Pair]) -> Check:
    """Every answer against the one alone."""
    ran = f"{plural(len(pairs), 'answer')} of {len({one.conversation for one in pairs})} private conversations at once"
    if moved := [one for one in pairs if one.together.prompt != one.alone.prompt]:
        words = f"{ran}: {len(moved)} prompts changed before they were asked alone, so nothing was compared"
        return Check("isolation", False, words, f"{ONCE_MORE} again, while nothing is loaded or remembered")
    found = [distance(one.together, one.alone) for one in pairs]
    tokens, worst = sum(one.compared for one in found), max(one.nats for one in found)
    cached = f"{count(sum(one.together.cached for one in pairs))} tokens of their prompts from the cache"
    if apart := sum(one.nats > ALLOWED for one in found):
        words = (
            f"{ran}: {apart} differ from the same asked alone, by up to {nats(worst)} ({ALLOWED} nats may be rounding)"
        )
        return Check("isolation", False, words, REPORT)
    if not tokens:
        return Check(
            "isolation", False, f"{ran}: the model answered nothing that can be compared", f"{ONCE_MORE} again"
        )
    words = f"{ran}, {cached}: {plural(tokens, 'token')} as alone, within {nats(worst)} ({ALLOWED} allowed)"
    return Check("isolation", True, words)


def foreign(canaries: Sequence[str], pairs: Sequence[Pair]) -> Check:
    """Answers that hold another conversation's canary; one that is there alone too is the model's own."""
    leaks = [
        f"conversation {one.conversation + 1} says {other}, which is of conversation {number + 1}"
        for one in pairs
        for number, other in enumerate(canaries)
        if number != one.conversation and other in one.together.text
    ]
    own = sum(canaries[one.conversation] in one.together.text for one in pairs)
    words = f"no answer holds another's; {own} of {len(pairs)} say their own"
    return checked("canaries", not leaks, "; ".join(leaks) or words, REPORT)


def distance(together: Said, alone: Said) -> Distance:
    """Compared until another token is chosen, after which the two are answers to different texts."""
    worst = 0.0
    for number, (one, other) in enumerate(zip(together.tokens, alone.tokens, strict=False)):
        shared = one.likeliest.keys() & other.likeliest.keys()
        likely = [key for key in shared if max(one.likeliest[key], other.likeliest[key]) > LIKELY]
        worst = max([worst, *(abs(one.likeliest[key] - other.likeliest[key]) for key in likely)])
        if one.bytes != other.bytes:
            return Distance(worst if other.is_tie else math.inf, number + 1)
    shorter, longer = sorted((together.tokens, alone.tokens), key=len)
    if len(shorter) < len(longer) and not longer[len(shorter)].is_tie:
        return Distance(math.inf, len(shorter))
    return Distance(worst, len(shorter))


def nats(distance: float) -> str:
    return "another word" if math.isinf(distance) else f"{distance:.4f} nats"


def holds_any(report: Any, canaries: Sequence[str]) -> bool:
    text = json.dumps(report, ensure_ascii=False)
    return any(one in text for one in canaries)


# ---- what is asked ---------------------------------------------------------------------------------------------------


def tried(socket: str | None, codex: str, canaries: Sequence[str]) -> tuple[list[Pair], Distance]:
    """All conversations round by round, then each answer alone, then the control."""
    told: list[Messages] = [[] for _ in canaries]
    asked: list[tuple[int, Messages, Said]] = []
    for turn in range(ROUNDS):
        for number, messages in enumerate(told):
            messages.append({"role": "user", "content": question(canaries[number], first=not turn)})
        progress(f"asking {plural(len(told), 'conversation')} at once, {turn + 1} of {ROUNDS}")
        for number, said in enumerate(asked_at_once(socket, codex, told)):
            asked.append((number, list(told[number]), said))
            # Not what it said: tokens that were generated one by one are rounded otherwise than the same in a prompt.
            told[number].append({"role": "assistant", "content": f"{canaries[number]}."})
    pairs = []
    for done, (number, messages, said) in enumerate(asked):
        progress(f"the same alone, without a cache: {done + 1} of {len(asked)}")
        pairs.append(Pair(number, said, alone(socket, codex, messages)))
    number, messages, _ = asked[-1]
    swapped = json.loads(json.dumps(messages).replace(canaries[number], canaries[number - 1]))
    return pairs, distance(alone(socket, codex, swapped), pairs[-1].alone)


def question(canary: str, *, first: bool) -> str:
    return f"{LINE} {canary}. Say it back, and nothing else. {LINE}" if first else f"Once more, nothing else. {LINE}"


def asked_at_once(socket: str | None, codex: str, told: Sequence[Messages]) -> list[Said]:
    """Each over a connection of its own. Raises Failure of the first that fails."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(told)) as threads:
        return list(threads.map(lambda messages: answer(Daemon(socket), codex, messages, cache=True), told))


def alone(socket: str | None, codex: str, messages: Messages) -> Said:
    said = answer(Daemon(socket), codex, messages, cache=False)
    if said.cached:
        raise Failure(1, f"the daemon took {said.cached} tokens from a cache that was refused", REPORT)
    return said


def answer(daemon: Daemon, codex: str, messages: Messages, *, cache: bool) -> Said:
    body = {
        "messages": messages,
        "max_tokens": MOST_TOKENS,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": LIKELIEST,
        "lore": {"codex": codex, "record": False, "think": False, "cache": cache},
    }
    reply = daemon.call("POST", ROUTE, body)
    (choice,), prompt = reply["choices"], reply["lore"]["prompt"]
    chosen = (choice.get("logprobs") or {}).get("content") or ()
    return Said(choice["message"]["content"] or "", tuple(map(token_of, chosen)), prompt["tokens"], prompt["cached"])


def token_of(one: Mapping[str, Any]) -> SaidToken:
    return SaidToken(tuple(one["bytes"]), {tuple(each["bytes"]): each["logprob"] for each in one["top_logprobs"]})
