"""The engine's process where servers compute: the same messages as of the child that loads a model.

    daemon ──messages──▶ RemoteWorker ──a task for each ticket──▶ Fleet ──HTTP──▶ the server that has the codex
                              │                                      ▲
                              └── tokens, forecasts, figures         └── looks at each server again and again

One event loop; a thread reads the socket. What only cells can do (checkpoints, files of floors, types of KV, embeddings) is
refused in words, and what a server does not tell is said and not guessed.
"""

import asyncio
import hashlib
import logging
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from orchestrator.engine.embedding.port import Embed, EmbedFailed
from orchestrator.engine.messages import (
    Admitted,
    AdoptFiles,
    CallFailed,
    Cancel,
    Completion,
    Decode,
    DecodedText,
    DropFloor,
    Encode,
    Encoded,
    EngineReady,
    FilesAdopted,
    FindFloor,
    FloorFound,
    Grant,
    InferenceJob,
    Inspect,
    KvMeasured,
    LoadFailed,
    Matched,
    MeasureKv,
    ModelLoading,
    Outcome,
    PrefixMatch,
    PutFloor,
    Reason,
    Reuse,
    Shutdown,
    Tier,
    bytes_to_ids,
)
from orchestrator.engine.model import EngineSpec, ModelInfo
from orchestrator.engine.remote.answer import RemoteAnswer
from orchestrator.engine.remote.fleet import Fleet, Served
from orchestrator.engine.remote.replies import ServerFault, mistake
from orchestrator.engine.remote.requests import Prompt, PromptWay, SentMessage, parts_of, request_of, unsupported
from orchestrator.engine.snapshot import EngineSnapshot, Inspected, TicketState
from orchestrator.engine.transport import Wire

log = logging.getLogger("lorekeep.engine")

NOT_HERE = "the model's memory is a server's: {} (engine.url)"
NO_FILES = NOT_HERE.format("it writes no checkpoints, so no floor can be exported or imported")
NO_KV = NOT_HERE.format("its type of KV is not measured here")
NO_EMBEDDING = NOT_HERE.format("no model is loaded here, so nothing is embedded")
TOKENS_AGAIN_S = (0.2, 1.0)  # pauses before text is tokenised again
LEARNED_OF = 32  # computed tokens, from which a prompt's time tells something


def run(spec: EngineSpec, wire: Wire, messages: Iterator[Any]) -> None:
    """Until the daemon closes its end, or says that it ends."""
    for noisy in ("httpx2", "httpcore2"):  # a line for each request
        logging.getLogger(noisy).setLevel(logging.WARNING)
    asyncio.run(serve(spec, wire, messages))


async def serve(spec: EngineSpec, wire: Wire, messages: Iterator[Any]) -> None:
    assert spec.remote is not None
    loop, inbox = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def read() -> None:
        for message in messages:
            loop.call_soon_threadsafe(inbox.put_nowait, message)
            if isinstance(message, Shutdown):  # nothing behind it is heard: the loop may be closed by then
                return
        loop.call_soon_threadsafe(inbox.put_nowait, Shutdown())

    threading.Thread(target=read, name="frontend", daemon=True).start()
    worker = RemoteWorker(spec, wire.send)
    begun = asyncio.create_task(worker.begin(), name="first server")
    try:
        while not isinstance(message := await inbox.get(), Shutdown):
            worker.take(message)
    finally:
        begun.cancel()
        await worker.stop()


class RemoteWorker:
    """`send` takes messages for the daemon."""

    def __init__(self, spec: EngineSpec, send: Callable[[Sequence[Any]], None]) -> None:
        assert spec.remote is not None
        self._spec = spec
        self._send = send
        self._fleet = Fleet(spec.remote, spec.context, self._publish)
        self._floors: dict[str, PutFloor] = {}
        self._tickets: dict[int, asyncio.Task[None]] = {}
        self._states: dict[int, TicketState] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._grant = 0
        self._figures: Counter[str] = Counter()
        self._ms_per_token = 0.0

    # -- life

    async def begin(self) -> None:
        """Says when a server can be used, or that none will be."""
        try:
            served = await self._fleet.begin(lambda why: self._send([ModelLoading(0.0, why)]))
        except ServerFault as fault:
            self._send([LoadFailed(str(fault))])
            return
        except Exception as fault:  # of ours: who waits for the engine must be told
            log.exception("no server was found")
            self._send([LoadFailed(mistake(fault))])
            return
        log.info("%s serves %s, asked by %s", self._spec.model, served.model.id, served.way)
        self._send([EngineReady(info_of(served, self._spec))])
        self._watching = asyncio.create_task(self._fleet.watch(), name="servers")
        self._publish()

    async def stop(self) -> None:
        """Requests that run are given up: their servers end them with the connection."""
        tasks = [*self._tickets.values(), *self._calls, *filter(None, [self._watching])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._fleet.close()

    # -- messages

    def take(self, message: object) -> None:
        """Does at once what is no work, and begins a task for what is."""
        match message:
            case PutFloor():
                self._floors[message.name] = message
            case DropFloor():
                self._drop(message.name)
            case Grant():
                self._grant = message.number
                self._publish()
            case InferenceJob():
                self._tickets[message.ticket] = begun = asyncio.create_task(self._ticket(message), name="ticket")
                # Also of one that is cancelled before it has begun.
                begun.add_done_callback(lambda _: self._tickets.pop(message.ticket, None))
            case Cancel() if (task := self._tickets.get(message.ticket)) is not None:
                task.cancel()
            case Encode() | Decode():
                call = asyncio.create_task(self._tokenised(message), name="tokens")
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
            case _:
                if (answer := self._answer(message)) is not None:
                    self._send([answer])

    def _answer(self, message: object) -> object | None:
        match message:
            case PrefixMatch():
                return self._forecast(message)
            case Inspect():
                return Inspected(message.call, tuple(self._states.values()), ())
            case FindFloor():
                return FloorFound(message.call, (), 0)
            case AdoptFiles():
                return FilesAdopted(message.call, NO_FILES)
            case MeasureKv():
                return KvMeasured(message.call, 0, 0, None, NO_KV)
            case Embed():
                return EmbedFailed(message.call, NO_EMBEDDING)
        return None

    def _drop(self, floor: str) -> None:
        """Whoever computes it in advance need not."""
        self._floors.pop(floor, None)
        for ticket, state in self._states.items():
            if state.floor == floor and state.background:
                self._tickets[ticket].cancel()

    async def _tokenised(self, message: Encode | Decode) -> None:
        """Nobody else can count: a server that cannot be reached is tried again before the call fails."""
        answer: Encoded | DecodedText | CallFailed
        for pause in (*TOKENS_AGAIN_S, None):
            try:
                answer = await self._in_tokens(message)
                break
            except ServerFault as fault:
                answer = CallFailed(message.call, str(fault))
                if pause is None or fault.lasting:
                    break
                await asyncio.sleep(pause)
            except Exception as fault:  # of ours: who waits must be told
                log.exception("a text was not tokenised")
                answer = CallFailed(message.call, mistake(fault))
                break
        self._send([answer])

    async def _in_tokens(self, message: Encode | Decode) -> Encoded | DecodedText:
        tokens = self._fleet.served.tokens
        if isinstance(message, Decode):
            return DecodedText(message.call, await tokens.text(bytes_to_ids(message.ids)))
        ids = await asyncio.gather(*(tokens.ids(text, control=message.control) for text in message.texts))
        return Encoded(message.call, tuple(one.tobytes() for one in ids))

    def _forecast(self, message: PrefixMatch) -> Matched:
        """By what was sent to the server that a question would go to."""
        floor = self._floors.get(message.floor)
        prompt = (floor.ids if floor else b"") + message.tail
        tokens = len(prompt) // 4
        url = self._fleet.choose(key_of(floor, message.floor))
        known = self._fleet.prompts[url].longest(prompt) if url is not None else 0
        known = min(known, tokens - 1) if message.max_tokens else known
        return Matched(message.call, max(0, known), parts(max(0, known), tokens))

    # -- a ticket

    async def _ticket(self, job: InferenceJob) -> None:
        began = time.monotonic()
        try:
            completion = await self._answered(job, began)
        except ServerFault as fault:
            refused = fault.reason is not Reason.ENGINE
            completion = Completion(
                job.ticket, Outcome.REFUSED if refused else Outcome.FAILED, fault.reason, str(fault)
            )
        except asyncio.CancelledError:
            completion = Completion(job.ticket, Outcome.CANCELLED, Reason.CANCELLED)
        except Exception as fault:  # of ours: who waits must be told
            log.exception("a ticket failed")
            completion = Completion(job.ticket, Outcome.FAILED, Reason.ENGINE, mistake(fault))
        self._states.pop(job.ticket, None)
        self._send([completion])
        self._publish()

    async def _answered(self, job: InferenceJob, began: float) -> Completion:
        """The one outcome of a ticket that was not refused. Raises ServerFault."""
        floor, served = self._floors.get(job.floor), self._fleet.served
        if floor is None and job.floor:
            return Completion(job.ticket, Outcome.REFUSED, Reason.UNKNOWN_FLOOR, f"no floor {job.floor}")
        if why := unsupported(job, served.model.kind):
            return Completion(job.ticket, Outcome.REFUSED, Reason.SAMPLING, why)
        prompt = (floor.ids if floor else b"") + job.tail
        if (wanted := len(prompt) // 4 + max(1, job.max_tokens)) > served.context:
            why = f"prompt and answer are {wanted:,} tokens, and the server's context is {served.context:,}"
            return Completion(job.ticket, Outcome.REFUSED, Reason.WINDOW, why)
        self._states[job.ticket] = state_of(job, len(prompt) // 4)
        self._publish()
        ids = bytes_to_ids(prompt)
        self._send([Admitted(job.ticket, len(ids), parts(len(ids), len(ids)), 0.0)])
        tries = partial(RemoteAnswer, self._send, job, served, began)
        url, answer = await self._asked(tries, await self._prompt(ids), key_of(floor, job.floor))
        self._fleet.prompts[url].sent(prompt)
        return self._counted(await answer.completion(len(ids)))

    async def _prompt(self, ids: "array[int]") -> Prompt:
        """As the servers take it."""
        served = self._fleet.served
        if served.way is PromptWay.IDS:
            return [*ids]
        if served.way is PromptWay.TEXT:
            return await served.tokens.text(ids)
        return tuple([SentMessage(role, await served.tokens.text(part)) for role, part in parts_of(ids)])

    async def _asked(self, tries: Callable[[], RemoteAnswer], prompt: Prompt, key: str) -> tuple[str, RemoteAnswer]:
        """Streams the answer; with the server that gave it. One that fails before the first text has another try elsewhere,
        of which the first one leaves nothing."""
        tried: list[str] = []
        fault = self._fleet.none_left
        while len(tried) < 2 and (url := self._fleet.choose(key, tried)) is not None:
            tried.append(url)
            answer = tries()
            try:
                await self._streamed(answer, prompt, url)
                return url, answer
            except ServerFault as found:
                fault = found
                if found.elsewhere and found.reason is not Reason.BUSY:  # one that is busy keeps its codices
                    self._fleet.failed(url, found)
                if answer.begun or not found.elsewhere:
                    break
                log.warning("%s; %s", found, "another server is asked" if len(tried) < 2 else "it is not asked again")
        raise fault

    async def _streamed(self, answer: RemoteAnswer, prompt: Prompt, url: str) -> None:
        model = self._fleet.served.model
        request, told = request_of(answer.job, prompt, model.kind, model.id), False
        async with aclosing(self._fleet.answer(url, request)) as events:
            async for event in events:
                if event.model and event.model != model.id and not told:
                    told = True
                    answer.notes.append(f"the server answered as {event.model}, and {model.id} was asked for")
                    self._fleet.other_model(url, event.model)
                if not answer.take(event):
                    break

    # -- figures

    def _counted(self, done: Completion) -> Completion:
        figures = {"cached_tokens": done.cached, "prompt_tokens": done.prompt, "generated_tokens": done.generated}
        if done.reason is not Reason.PREFILLED:
            self._figures.update(figures)
        self._figures["computed_tokens"] += done.computed
        if done.computed >= LEARNED_OF:
            each = done.timings.first_token_ms / done.computed
            self._ms_per_token = each if not self._ms_per_token else (3 * self._ms_per_token + each) / 4
        return done

    def _publish(self) -> None:
        running = [one for one in self._states.values() if one.phase == "answering"]
        learned = {name: self._ms_per_token for name in ("ms_per_token", "ms_per_token_empty") if self._ms_per_token}
        self._send(
            [
                EngineSnapshot(
                    self._grant,
                    running=len(self._states),
                    prefills=len(self._states) - len(running),
                    counters={**self._figures, **learned},
                    servers=self._fleet.states,
                    pressure=self._fleet.pressure,
                )
            ]
        )


def parts(cached: int, tokens: int) -> tuple[Reuse, ...]:
    """A prompt of which so many tokens are in a server's cache."""
    found = [Reuse(0, cached, Tier.REMOTE)] if cached else []
    return (*found, Reuse(cached, tokens, Tier.COMPUTED)) if cached < tokens else tuple(found)


def key_of(floor: PutFloor | None, name: str) -> str:
    """What stays on one server: a codex under an identity."""
    return (floor.pool or floor.name) if floor is not None else name


def state_of(job: InferenceJob, tokens: int) -> TicketState:
    background = job.is_in_advance
    phase = "prefilling" if background else "answering"
    return TicketState(job.ticket, job.floor, phase, 0, background, tokens, 0, 0, 0, job.max_tokens, 0.0, 0.0, 0.0)


def info_of(served: Served, spec: EngineSpec) -> ModelInfo:
    model, name = served.model, served.tokens.name
    digest = hashlib.sha256(repr((model.id, model.kind.value, served.way.value, name, served.template)).encode())
    return ModelInfo(
        name=model.id,
        architecture=model.kind.value,
        fingerprint=f"remote-{digest.hexdigest()}",
        vocabulary=name,
        trained_context=served.context,
        parameters=model.parameters,
        weight_bytes=0,
        kv_bytes_per_token=0.0,
        chat_template=served.template,
        bos=served.bos,
        eos=served.eos,
        add_bos=served.tokens.adds_bos and served.way is PromptWay.IDS,
        ranges=True,
        device=f"{spec.model} ({model.kind.value}, prompts go as {served.way.value})",
        gpu_layers=0,
    )
