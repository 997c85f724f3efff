"""One question from its arrival to its saved turn.

    wait for the model → prepare (see `preparing`) → run the agent → citations → save the turn → the lore object

A plan ends after the preparation: nothing is inferred and nothing is saved.
"""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from formatters.blocks import BlockKind, Role
from formatters.context import TurnContext
from orchestrator.answering import report
from orchestrator.answering.client_tools import last_rules
from orchestrator.answering.clients import ClientLedger
from orchestrator.answering.grounding import AnswerSources, citations_of, used_of
from orchestrator.answering.inference import Finished, Inference
from orchestrator.answering.keeping import ClosedTurn, Remembered, SavedTurn, heard_turn, saved
from orchestrator.answering.ledger import excluded_memories
from orchestrator.answering.parsing import AnswerParser, BoundParser, ToldCalls
from orchestrator.answering.preparing import Preparer
from orchestrator.answering.question import PreparedQuestion, SplitMessages, split
from orchestrator.answering.refusals import refusal_of, ungrounded
from orchestrator.answering.report import plan_report
from orchestrator.answering.ritual import Ritual
from orchestrator.answering.running import TurnLimits, job_within, within_window
from orchestrator.answering.traces import TracedTurn, TraceKeeper
from orchestrator.answering.waiting import EngineWait, deadline_of, own_task, until_first, within
from orchestrator.codices.floors import Floors
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.messages import Admitted, InferenceJob, Matched, PrefillProgress, Reuse, bytes_to_ids
from orchestrator.engine.prefill_cost import prompt_s
from orchestrator.errors import LoreError, OverBudget
from orchestrator.karma.memories import Memories
from orchestrator.karma.records import Severity
from orchestrator.machine.yielding import Yielding
from orchestrator.model.chat_model import ChatModel, engine_faults, engine_ready, paused, why_waiting
from orchestrator.prompt.composing import Composed, broke_at
from orchestrator.service import Answered, Ask, AskEvent, CallDelta, Text, Thought, ToolCall
from orchestrator.wire.answers import CensorMark, Citation, GovernorState, Lore, PlanReply, Waiting

if TYPE_CHECKING:
    from orchestrator.answering.agent import Answerer, EngineModel, TurnSoFar

log = logging.getLogger("lorekeep")
gate_log = logging.getLogger("lorekeep.relevance")
PLANS = 4  # of one question: others may take memory between planning and the first token


@dataclass
class RunState:
    """What the run of an answer has given so far. Moments are of the monotonic clock, in seconds."""

    arrived: float
    pause_s: float = 0.0  # the memory was given away meanwhile
    paused_at: float = 0.0  # since when it is
    model_s: float = 0.0  # it waited for the model
    floor_s: float = 0.0  # and, once admitted, for its floor
    admitted: Admitted | None = None
    admitted_at: float = 0.0
    first_token: float = 0.0
    calls: list[ToolCall] = field(default_factory=list)  # of the client's tools
    of_packages: list[ToolCall] = field(default_factory=list)  # calls of tools that packages bring
    finished: Finished | None = None
    composed: Composed | None = None  # what the engine got last
    paused_before: float = 0.0  # seconds of the pause until it was admitted

    def waits(self, waiting: Waiting | None) -> None:
        """What it waits for from now on: what a pause takes is neither the model's time nor the floor's."""
        now, paused = time.monotonic(), waiting is not None and waiting.phase == "pause"
        self.pause_s += now - self.paused_at if self.paused_at else 0.0
        self.paused_at = now if paused else 0.0


@dataclass(frozen=True)
class Answers:
    """Asks and plans. `model_ready` gives a future of the chat model; it fails where there is no model to wait for.
    `outdated` says, in a worker thread, which of these files differ on disk."""

    preparer: Preparer
    answerer: Callable[[], "Answerer"]  # made when it is first asked for: what reads the tools' schemas is large
    client: EngineClient
    floors: Floors
    inference: Inference
    yielding: Yielding
    model_ready: Callable[[], "asyncio.Future[ChatModel]"]
    model_name: str
    notice: str
    outdated: Callable[[str, Sequence[str]], str]
    traces: TraceKeeper
    memories: Memories
    clients: ClientLedger
    turn_s: float  # that the calls of one turn may take

    @property
    def _engine(self) -> EngineWait:
        return EngineWait(self.client, self.yielding)

    # -- asking

    async def ask(self, ask: Ask) -> AsyncIterator[AskEvent]:
        """Events until Answered. Closing the iterator cancels what runs. Raises LoreError."""
        with self.yielding.question():
            state, deadline = RunState(time.monotonic()), deadline_of(ask)
            messages = split(ask.messages)  # what is no question is refused before it waits for a model
            asked = own_task(self._asked(ask, messages, state, deadline))
            async with aclosing(self._engine.with_waiting(asked, wait=ask.wait, told=state.waits)) as events:
                async for event in events:
                    yield event

    async def _asked(
        self, ask: Ask, messages: SplitMessages, state: RunState, deadline: float | None
    ) -> AsyncGenerator[AskEvent]:
        chat_model = await self._ready_model(deadline)
        state.waits(None)
        state.model_s = time.monotonic() - state.arrived - state.pause_s
        machine, ritual = self.preparer.machine, Ritual(self.preparer, self.inference, self.floors)
        for left in reversed(range(PLANS)):
            prepared = await self._prepared(ask, messages, chat_model, deadline)
            if ritual.is_due(prepared):
                yield Waiting("gist", 0, 0)
                prepared = await within(deadline, ritual.condensed(prepared), lambda: "older turns are being condensed")
            gate_log.info("relevance", extra={"fields": prepared.found.relevance.event()})
            try:
                async for event in self._run(prepared, state, deadline):
                    yield event
                return
            except OverBudget:  # others may have taken memory since this was planned
                stale = state.admitted is None and machine.grant.number != prepared.grant.number
                if not (left and stale):
                    raise

    async def _prepared(
        self, ask: Ask, messages: SplitMessages, chat_model: ChatModel, deadline: float | None
    ) -> PreparedQuestion:
        """Planned under the grant of now, or refused."""
        prepared = await within(
            deadline,
            self.preparer.prepare(ask, messages, chat_model),
            lambda: f"not ready in time: {self.client.reason or 'the codex is being counted'}",
        )
        refusal = refusal_of(prepared, 0 if ask.wait else (await self._matched(prepared)).length)
        if refusal is not None:
            raise refusal
        return prepared

    async def _ready_model(self, deadline: float | None) -> ChatModel:
        ready = engine_ready(self.model_ready(), self.client)
        return await within(deadline, ready, lambda: f"not ready in time: {why_waiting(self.client)}")

    async def _matched(self, prepared: PreparedQuestion) -> Matched:
        """What its prompt would find in the cache now. Raises EngineFailed."""
        prompt = prepared.composed.assembled
        with engine_faults(), self.floors.held(prompt.floor, prepared.floor_key, asked=False):
            return await self.client.match(prompt.floor.name, prompt.tail, prompt.owner, max_tokens=1)

    async def _run(
        self, prepared: PreparedQuestion, state: RunState, deadline: float | None
    ) -> AsyncIterator[AskEvent]:
        ids: dict[str, bytes] = {}
        model = await self._model(prepared, ids, state)
        used = prepared.composed.assembled.tokens + prepared.promised
        deps = prepared.turn.model_copy(update={"strategy": report.strategy_view(prepared.found.decision, used)})
        with self.floors.held(prepared.composed.assembled.floor, prepared.floor_key):
            async with aclosing(self.answerer().answer(deps, model)) as events:  # type: ignore[type-var]
                async for event in until_first(
                    events, deadline, lambda: state.first_token > 0, lambda: self.client.reason
                ):
                    shown = self._event_of(event, state, prepared)
                    if shown is not None:
                        yield shown
        assert state.finished is not None
        for permitted in await self._permitted(prepared, state):
            yield permitted
        closed = await self._closed(prepared, state, ids)
        answered = await self._departed(prepared, state, self._answered(prepared, state, closed))
        self._traced(prepared, state, answered)
        yield answered

    async def _permitted(self, prepared: PreparedQuestion, state: RunState) -> list[ToolCall | Text]:
        """The calls of the client's tools, and in the place of each that a blocking censor refuses a text that says so.
        Raises LoreError: what cannot be looked up permits nothing."""
        assert state.finished is not None
        events: list[ToolCall | Text] = []
        for call in state.calls:
            why = await self._blocked(prepared, call)
            events.append(Text(f"[the call of {call.name} was refused, because {why}]") if why else call)
        refused = "".join(one.delta for one in events if isinstance(one, Text))
        if refused:
            left = {one.id for one in events if isinstance(one, ToolCall)}
            reason = state.finished.finish_reason
            reason = "stop" if reason == "tool_calls" and not left else reason
            running = tuple(
                one.model_copy(update={"calls": tuple(call for call in one.calls if call.id in left)})
                if one.role is Role.ASSISTANT
                else one
                for one in state.finished.running
            )
            text = state.finished.text + refused
            state.finished = replace(state.finished, finish_reason=reason, text=text, running=running)
        return events

    async def _blocked(self, prepared: PreparedQuestion, call: ToolCall) -> str:
        """Why a blocking censor refuses this call; '' where none does. Raises LoreError."""
        marks = await self._censored(prepared, calls=[call])
        blocking = next((one for one in marks if one.severity == Severity.BLOCK), None)
        return "" if blocking is None else f"it goes against {blocking.text!r}: lore memory show {blocking.id}"

    async def _censored(
        self,
        prepared: PreparedQuestion,
        question: str = "",
        said: str = "",
        calls: Sequence[ToolCall] = (),
        *,
        counted: bool = False,
    ) -> tuple[CensorMark, ...]:
        """What these go against; nothing for who may not read memories."""
        principal, codex = prepared.ask.principal, prepared.codex_state
        if not principal.may("memory:read"):
            return ()
        shown = {one.id for one in prepared.found.recalled.karma.entries}
        about = (principal.uid, codex.name if codex is not None else None, question, said, shown)
        written = [f"{one.name} {one.arguments}" for one in calls]
        return await asyncio.to_thread(self.memories.watch, *about, written, counted=counted)

    async def _remembered(
        self, prepared: PreparedQuestion, state: RunState, turn: SavedTurn, trace: str | None
    ) -> Remembered:
        """Which memories the answer used is kept, which censors it goes against, and what a turn of a session tells; where
        that cannot be, the answer stands without it."""
        assert state.finished is not None
        principal, finished, kept = prepared.ask.principal, state.finished, Remembered()
        try:
            read = (prepared.messages.question, finished.text, (*state.calls, *state.of_packages))
            kept = replace(kept, censored=await self._censored(prepared, *read, counted=trace is not None))
            if trace is not None:
                await self.preparer.recall.used(principal.uid, prepared.found.recalled, finished.text)
            if trace is not None and turn.session is not None and not turn.not_kept and principal.may("memory:write"):
                self.preparer.conversations.sessions.may_be_told(turn.session.id)
                kept = replace(kept, noted=await asyncio.to_thread(self.memories.note, heard_turn(prepared, trace)))
        except LoreError as fault:
            log.warning("the memories of a turn were not kept: %s", fault.message)
            kept = replace(kept, fault=f"nothing was remembered of this turn: {fault.message}")
        return kept

    def _traced(self, prepared: PreparedQuestion, state: RunState, answered: Answered) -> None:
        """Hands the turn to the traces, which write it while the answer goes on; a private one leaves none."""
        lore, finished = answered.lore, state.finished
        if lore.trace is None or finished is None:
            return
        nodes = excluded_memories(prepared.found.relevance) if prepared.ask.principal.may("memory:read") else ()
        pinned, recall = prepared.conversation.karma, self.preparer.recall
        self.traces.later(
            TracedTurn(
                id=lore.trace,
                uid=prepared.ask.principal.uid,
                question=prepared.messages.question,
                answer=finished.text,
                finish_reason=finished.finish_reason,
                codex=prepared.codex_state.name if prepared.codex_state else None,
                memories=tuple(one.id for one in prepared.found.recalled.karma.entries),
                composed=state.composed or prepared.composed,
                lore=lore,
                relevance=prepared.found.relevance,
                said="\n".join(one.text for one in finished.running if one.role is Role.ASSISTANT),
            ),
            partial(recall.kept_out, prepared.found.recalled.question, pinned, nodes) if nodes else tuple,
        )

    def _outdated(self, prepared: PreparedQuestion, citations: Sequence[Citation]) -> str:
        """What the cited files, or the revision, are on disk by now; evidence was looked at when it was found."""
        if prepared.codex_state is None:
            return ""
        shown = {one.path for one in prepared.turn.state.evidence}
        return self.outdated(prepared.codex_state.name, sorted({one.path for one in citations if one.valid} - shown))

    async def _told_calls(self, prepared: PreparedQuestion) -> Callable[[], ToldCalls | None]:
        """Makes what tells the client's calls while they are said, but where a form has no JSON, or a memory may refuse a
        call that it reads whole. Raises LoreError."""
        form, names = prepared.chat_model.placement.calls, frozenset(tool.name for tool in prepared.ask.tools)
        principal, codex = prepared.ask.principal, prepared.codex_state
        reads = principal.may("memory:read")
        if not names or form.style is not None or not form.before:
            return lambda: None
        if reads and await asyncio.to_thread(self.memories.may_block, principal.uid, codex.name if codex else None):
            return lambda: None
        encode = prepared.chat_model.tokens.encode
        (control,), (plain,) = await encode([form.trigger], control=True), await encode([form.trigger])
        mark = None if control == plain else bytes_to_ids(control)[0]
        return lambda: ToldCalls(form, names, mark)

    async def _model(self, prepared: PreparedQuestion, ids: dict[str, bytes], state: RunState) -> "EngineModel":
        from orchestrator.answering.agent import EngineModel

        chat_model = prepared.chat_model

        def learn(text: str, generated: bytes) -> None:
            ids[text] = generated
            chat_model.tokens.learn_answer(text, generated)

        async def compose(turn: TurnContext, asked: "TurnSoFar") -> InferenceJob:
            if not asked.requests:
                return prepared.job
            write = partial(chat_model.composer.compose, think=prepared.ask.think)
            state.composed = await within_window(turn, write, prepared.grant.window)
            job = job_within(prepared.job, state.composed, prepared.grant.window, asked.generated)
            return last_job(job, prepared.ask) if asked.last else job

        async def refuse(name: str, arguments: str) -> str:
            call = ToolCall("", name, arguments)
            state.of_packages.append(call)
            return await self._blocked(prepared, call)

        limits = TurnLimits(prepared.ask.max_tokens, self.turn_s)
        parser = partial(parser_of, chat_model, told=await self._told_calls(prepared))
        return EngineModel(self.inference, compose, learn, parser, limits, refuse)

    def _event_of(self, event: object, state: RunState, prepared: PreparedQuestion) -> AskEvent | None:
        if isinstance(event, Admitted) and state.admitted is None:
            state.admitted, state.admitted_at, state.paused_before = event, time.monotonic(), state.pause_s
        elif isinstance(event, PrefillProgress):
            codex = prepared.codex_state.name if prepared.codex_state else ""
            floor = prepared.composed.assembled.floor.tokens
            if event.done <= floor:
                state.floor_s = time.monotonic() - state.admitted_at - (state.pause_s - state.paused_before)
            return waiting_of(event, floor, codex, self.client.snapshot.counters)
        elif isinstance(event, Finished):
            state.finished = event
        elif isinstance(event, Text | Thought | CallDelta | ToolCall):
            state.first_token = state.first_token or time.monotonic()
            if not isinstance(event, ToolCall):
                return event
            state.calls.append(event)  # a censor may refuse it
        return None

    # -- afterwards

    async def _closed(self, prepared: PreparedQuestion, state: RunState, ids: dict[str, bytes]) -> ClosedTurn:
        """Its citations checked, the turn saved and remembered. `ids`: of each text that was generated."""
        assert state.finished is not None
        citations = citations_of(state.finished.text, sources_of(prepared, state.finished))
        outdated = await asyncio.to_thread(self._outdated, prepared, citations)
        turn = saved(prepared, self.preparer.conversations, state.finished, ids)
        trace = None if prepared.ask.private else uuid.uuid4().hex
        remembered = await self._remembered(prepared, state, turn, trace)
        self.preparer.lifecycle.answered(prepared.floor_key, used_of(citations, prepared.turn.state.evidence))
        return ClosedTurn(turn, citations, outdated, trace, remembered)

    async def _departed(self, prepared: PreparedQuestion, state: RunState, answered: Answered) -> Answered:
        """With the place where a client's prompt left its last one; without, where the engine has just ended."""
        assert state.finished is not None
        try:
            found = await self.clients.departure(prepared, state.finished.text, answered.lore.prompt.computed)
        except (LoreError, EngineUnavailable):
            return answered
        return replace(answered, lore=answered.lore.model_copy(update={"departure": found}))

    def _answered(self, prepared: PreparedQuestion, state: RunState, closed: ClosedTurn) -> Answered:
        assert state.finished is not None
        now, remembered = time.monotonic(), closed.remembered
        completions = state.finished.completions
        timings = report.timings(
            completions,
            prepared.assemble_ms,
            1000 * ((state.first_token or now) - state.arrived),
            1000 * (now - state.arrived),
            pause_ms=1000 * state.pause_s,
            model_ms=1000 * state.model_s,
            floor_ms=1000 * state.floor_s,
        )
        reuse = report.true_reuse(state.admitted, completions)
        left = state.admitted.left if state.admitted is not None else 0
        told = (one.detail for one in completions)
        lore = self._lore(prepared, reuse, left, closed.saved, closed.outdated, remembered.fault, *told).model_copy(
            update={
                "trace": closed.trace,
                "timings": timings,
                "drafts": report.drafts(completions),
                "citations": closed.citations,
                "censored": remembered.censored,
                "noted": remembered.noted,
            }
        )
        return Answered(
            finish_reason=state.finished.finish_reason,
            lore=lore,
            prompt_tokens=lore.prompt.tokens,
            cached_tokens=lore.prompt.cached,
            completion_tokens=sum(one.generated for one in completions),
            effort=report.effort(prepared, prepared.composed.assembled, self._placed(reuse), completions),
        )

    def _lore(
        self, prepared: PreparedQuestion, reuse: Iterable[Reuse], left: int, turn: SavedTurn, *further: str
    ) -> Lore:
        prompt, codex_state = prepared.composed.assembled, prepared.codex_state
        info = self.client.info
        parts = self._placed(reuse)
        before = prepared.conversation.composed
        why = {BlockKind.ENVIRONMENT: prepared.renewed, BlockKind.KARMA: prepared.found.recalled.karma.why}
        why = {block: reason for block, reason in why.items() if reason}
        limited = codex_state.limited if codex_state is not None else ""
        lasting = (prepared.choice, limited, prepared.served.notice, prepared.found.recalled.notice, prepared.behind)
        own = (ungrounded(prepared), *further, *prepared.shorter_answer)
        notices = (*prepared.ask.notices, *lasting[:-1], *prepared.unseen, *own)
        return Lore(
            session=turn.session.name if turn.session else None,
            began=turn.began,
            not_kept=turn.not_kept,
            model=self.model_name,
            notice=self.notice,
            notices=tuple(dict.fromkeys(filter(None, notices))),
            lasting=tuple(one for one in dict.fromkeys(lasting) if one and one in notices),
            identity=prepared.served.state(),
            codex=codex_state.in_answer(indexing=prepared.indexing) if codex_state else None,
            strategy=report.strategy_state(prepared.found.decision, prompt.tokens + prepared.promised),
            blocks=report.block_states(prompt, parts),
            memories=report.shown_memories(prepared),
            broke_at=broke_at(before, prepared.composed, why) if before is not None else None,
            prompt=report.prompt_state(prompt, parts, left),
            governor=GovernorState(
                level=self.preparer.machine.levels.memory or "unknown",
                kv_bytes=round(prompt.tokens * (info.kv_bytes_per_token if info else 0.0)),
                budget_tokens=prepared.grant.window,  # `model.context` may allow less than the memory does
                actions=prepared.actions,
                left_out=prepared.within.left_out(in_session=prepared.in_session),
            ),
        )

    def _placed(self, reuse: Iterable[Reuse]) -> tuple[Reuse, ...]:
        info = self.client.info
        return report.placed(reuse, gpu=info is not None and info.device != "CPU")

    # -- planning

    async def plan(self, ask: Ask, *, prompt: bool = False) -> PlanReply:
        """What would be done, and nothing done: the end of a pause is not waited for. Raises LoreError."""
        if (away := self.yielding.paused) is not None:
            raise paused(away)
        with self.yielding.question():
            return await self._planned(ask, prompt=prompt)

    async def _planned(self, ask: Ask, *, prompt: bool) -> PlanReply:
        messages = split(ask.messages)
        if not ask.wait:
            self._engine.lacked(0, wait=False)
        prepared = await self.preparer.prepare(ask, messages, await self._ready_model(deadline_of(ask)))
        matched = await self._matched(prepared)
        lore = self._lore(prepared, matched.reuse, matched.left, SavedTurn(prepared.session))
        refusal, text = refusal_of(prepared, matched.length), prepared.composed.text if prompt else ""
        return plan_report(prepared, lore, refusal, self.client.snapshot, self.preparer.machine.budget, text)


def parser_of(
    chat_model: ChatModel, job: InferenceJob, told: Callable[[], ToldCalls | None] = lambda: None
) -> AnswerParser | BoundParser:
    """Of the text that the job gives. `told` makes what tells its calls while they are said."""
    rules = job.sampling.calls
    bound = job.sampling.schema or (rules is not None and rules.required)  # from the first token on: nothing is thought
    thinking = chat_model.opens_thought and not bound
    if rules is None or not rules.tools:
        return AnswerParser(thinking=thinking)
    schemas = {tool.name: json.loads(tool.parameters) for tool in rules.tools}
    return BoundParser(chat_model.placement.calls, schemas, thinking=thinking, told=told())


def last_job(job: InferenceJob, ask: Ask) -> InferenceJob:
    """The job of a turn's last request: it calls none of our tools."""
    rules = job.sampling.calls
    return replace(job, sampling=replace(job.sampling, calls=last_rules(rules, ask))) if rules is not None else job


def waiting_of(event: PrefillProgress, floor: int, codex: str, counters: Mapping[str, float]) -> Waiting:
    """What is computed: first the floor, of as many tokens as the codex's report says, then the rest of the prompt."""
    phase, total = ("floor", floor) if event.done < floor else ("prompt", event.total)
    return Waiting(phase, event.done, total, codex, prompt_s(counters, event.done, total))


def sources_of(prepared: PreparedQuestion, finished: Finished) -> AnswerSources:
    """What the answer was shown."""
    codex_state = prepared.codex_state
    said = (*prepared.turn.running, *finished.running)
    sources = AnswerSources(prepared.turn, said, selection=prepared.selection)
    return sources if codex_state is None else replace(sources, log=codex_state.log, files=codex_state.files)
