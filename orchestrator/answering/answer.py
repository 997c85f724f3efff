"""The story of one question: prepared, inferred, told, remembered.

    wait for the model → prepare (see `preparing`) → run the agent → account, citations → the session's next turn

A plan is the same story without its end: nothing is inferred and nothing is remembered.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from formatters.blocks import BlockKind
from orchestrator.answering import report
from orchestrator.answering.agent import Answerer, EngineModel, Finished
from orchestrator.answering.conversations import Conversation, Conversations, key_of, session_key, stored_turns
from orchestrator.answering.grounding import AnswerSources, citations_of, used_of
from orchestrator.answering.inference import EngineInference, InferenceRequest
from orchestrator.answering.preparing import PreparedQuestion, Preparer, refuse_blind, refuse_other_floor
from orchestrator.answering.report import plan_report
from orchestrator.answering.sessions import SessionStore
from orchestrator.answering.waiting import deadline_of, loop_time, refuse_waiting, until_first, within
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.foresight import prompt_s
from orchestrator.engine.messages import Admitted, PrefillProgress, Reuse
from orchestrator.errors import LoreError, NotReady
from orchestrator.model.chat_model import WHOLE, ChatModel, arriving, why_waiting
from orchestrator.prompt.composing import broke_at
from orchestrator.service import Answered, Ask, AskEvent, Message, Report, Text, Thought, ToolCall, Waiting
from orchestrator.wire.lore import Citation, Lore


@dataclass
class RunState:
    """What an answer's run has told so far."""

    admitted: Admitted | None = None
    first_token: float = 0.0
    finished: Finished | None = None


@dataclass(frozen=True)
class ConversationStore:
    sessions: SessionStore
    conversations: Conversations

    def kept(self, prepared: PreparedQuestion, finished: Finished, ids: Mapping[str, bytes]) -> PreparedQuestion:
        """With its session, where one begins. The answer was given: that it could not be kept is told beside it."""
        if prepared.ask.private:
            return prepared
        try:
            prepared = self._with_session(prepared)
            self._remember(prepared, finished, ids)
        except LoreError as fault:  # also a conflict: another question began one of that name meanwhile
            return replace(prepared, actions=(*prepared.actions, f"this turn is not kept: {fault.message}"))
        return prepared

    def _with_session(self, prepared: PreparedQuestion) -> PreparedQuestion:
        """A new session, named or not, begins with its first answer: a question that was refused leaves none behind."""
        ask = prepared.ask
        if prepared.session is not None or ask.session is None:
            return prepared
        codex = prepared.standing.name if prepared.standing else None
        session = self.sessions.create(ask.principal.uid, codex, ask.session or None)
        return replace(prepared, session=session, began=True)

    def _remember(self, prepared: PreparedQuestion, finished: Finished, ids: Mapping[str, bytes]) -> None:
        """The turn becomes State."""
        state = prepared.turn.state.closed(prepared.turn.query, *finished.running)
        kept = Conversation(state, prepared.turn.environment, prepared.turn.codex, prepared.composed)
        if prepared.session is not None:
            self.sessions.append(prepared.session.id, stored_turns(state, ids, len(prepared.turn.state.turns)))
            self.conversations.keep(session_key(prepared.session.id), kept)
        else:
            codex = prepared.standing.name if prepared.standing else None
            self.conversations.keep(next_key(prepared.ask, codex, finished.text), kept)


def next_key(ask: Ask, codex: str | None, answer: str) -> str:
    """The name under which a stateless client will come back: its messages and our answer."""
    return key_of(ask.principal.uid, codex, [*ask.messages, Message("assistant", answer)])


@dataclass(frozen=True)
class Answers:
    """Asks and plans. `voice` waits for the model; it raises NotReady or EngineFailed when there is none to wait for.
    `outdated` says, in a worker thread, what of these files is otherwise on disk."""

    preparing: Preparer
    answerer: Answerer
    client: EngineClient
    inference: EngineInference
    keeping: ConversationStore
    voice: Callable[[], "asyncio.Future[ChatModel]"]
    model_name: str
    notice: str
    outdated: Callable[[str, Sequence[str]], str]

    # -- asking

    async def ask(self, ask: Ask) -> AsyncIterator[AskEvent]:
        """Events until Answered. Closing the iterator cancels what runs. Raises LoreError."""
        machine = self.preparing.machine
        machine.busy(True)
        try:
            arrived = time.monotonic()
            deadline = deadline_of(ask, arrived)
            if not self.voice().done():
                refuse_waiting(ask, why_waiting(self.client))
                until = None if deadline is None else loop_time(deadline)
                async for percent in arriving(self.voice(), self.client, until):
                    yield Waiting("model", percent, WHOLE)
            voice = await self._spoken(deadline)
            prepared = await within(deadline, self.preparing.prepare(ask, voice), lambda: "the codex is being counted")
            refuse_blind(prepared)
            refuse_other_floor(prepared.decision)
            await self._refuse_cold_floor(prepared)
            async for event in self._run(prepared, voice, arrived, deadline):
                yield event
        finally:
            machine.busy(False)

    async def _spoken(self, deadline: float | None) -> ChatModel:
        voice: ChatModel = await within(deadline, self.voice(), lambda: why_waiting(self.client))
        return voice

    async def _refuse_cold_floor(self, prepared: PreparedQuestion) -> None:
        """For who will not wait. A floor that a tier keeps stands: it is restored with the answer, and not computed."""
        if prepared.ask.wait:
            return
        prompt = prepared.composed.assembled
        with self.preparing.shelf.floors.held(prompt.floor, prepared.place, asked=False):
            matched = await self.client.match(prompt.floor.name, b"", prompt.owner)
        if matched.length < prompt.floor.tokens and prepared.standing is not None:
            raise NotReady(
                f"the prefix of {prepared.standing.name} is not computed yet: {matched.length:,} of "
                f"{prompt.floor.tokens:,} tokens stand",
                "ask without --no-wait to wait for it",
                retry_after=2.0,
            )

    async def _run(
        self, prepared: PreparedQuestion, voice: ChatModel, arrived: float, deadline: float | None
    ) -> AsyncIterator[AskEvent]:
        heard = RunState()
        ids: dict[str, bytes] = {}
        model = self._model(prepared, voice, ids)
        with self.preparing.shelf.floors.held(prepared.composed.assembled.floor, prepared.place):
            async with aclosing(self.answerer.answer(prepared.turn, model)) as events:  # type: ignore[type-var]
                async for event in until_first(
                    events, deadline, lambda: heard.first_token > 0, lambda: self.client.reason
                ):
                    told = self._told(event, heard, prepared)
                    if told is not None:
                        yield told
        assert heard.finished is not None
        citations = citations_of(heard.finished.text, sources_of(prepared, heard.finished))
        outdated = await asyncio.to_thread(self._outdated, prepared, citations)
        if outdated:
            prepared = replace(prepared, unseen=(*prepared.unseen, outdated))
        yield self._answered(prepared, heard, arrived, ids, citations)

    def _outdated(self, prepared: PreparedQuestion, citations: Sequence[Citation]) -> str:
        """What the cited files, or the revision, are on disk by now; evidence was looked at when it was found."""
        if prepared.standing is None:
            return ""
        shown = {one.path for one in prepared.turn.state.evidence}
        return self.outdated(prepared.standing.name, sorted({one.path for one in citations if one.valid} - shown))

    def _model(self, prepared: PreparedQuestion, voice: ChatModel, ids: dict[str, bytes]) -> EngineModel:
        def learn(text: str, generated: bytes) -> None:
            ids[text] = generated
            voice.tokens.learn(text, generated)

        async def compose(ctx: Any) -> InferenceRequest:
            running = ctx.deps.running
            composed = await voice.composer.compose(ctx, prepared.ask.think) if running else prepared.composed
            return InferenceRequest(
                prompt=composed.assembled,
                owner=prepared.ask.principal.uid,
                max_tokens=prepared.max_tokens,
                sampling=prepared.sampling,
                stop=prepared.stop,
                calls=bool(voice.tools),
                thinking=voice.opens_thought,
            )

        return EngineModel(self.model_name, self.inference, compose, learn)

    def _told(self, event: object, heard: RunState, prepared: PreparedQuestion) -> AskEvent | None:
        if isinstance(event, Admitted) and heard.admitted is None:
            heard.admitted = event
        elif isinstance(event, PrefillProgress):
            floor = prepared.composed.assembled.floor.tokens
            phase, codex = "floor" if event.done < floor else "prompt", prepared.standing
            left = prompt_s(self.client.snapshot.counters, event.done, event.total)
            return Waiting(phase, event.done, event.total, codex.name if codex else "", left)
        elif isinstance(event, Finished):
            heard.finished = event
        elif isinstance(event, Text | Thought | ToolCall):
            heard.first_token = heard.first_token or time.monotonic()
            return event
        return None

    # -- afterwards

    def _answered(
        self,
        prepared: PreparedQuestion,
        heard: RunState,
        arrived: float,
        ids: dict[str, bytes],
        citations: tuple[Citation, ...],
    ) -> Answered:
        assert heard.finished is not None
        prepared = self.keeping.kept(prepared, heard.finished, ids)
        now = time.monotonic()
        first = ((heard.first_token or now) - arrived) * 1000
        completions = heard.finished.completions
        timings = report.timings(completions, prepared.assemble_ms, first, (now - arrived) * 1000)
        reuse = report.true_reuse(heard.admitted, completions)
        trace = None if prepared.ask.private else uuid.uuid4().hex
        lore = self._lore(prepared, reuse).model_copy(
            update={
                "trace": trace,
                "timings": timings,
                "drafts": report.drafts(completions),
                "citations": citations,
            }
        )
        self.preparing.shelf.answered(prepared.place, used_of(citations, prepared.turn.state.evidence))
        return Answered(
            finish_reason=heard.finished.finish_reason,
            lore=lore,
            prompt_tokens=lore.prompt.tokens,
            cached_tokens=lore.prompt.cached,
            completion_tokens=sum(one.generated for one in completions),
        )

    def _lore(self, prepared: PreparedQuestion, reuse: Iterable[Reuse]) -> Lore:
        prompt, standing = prepared.composed.assembled, prepared.standing
        gpu = self.client.info is not None and self.client.info.device != "CPU"
        parts = report.placed(reuse, gpu=gpu)
        machine = self.preparing.machine
        before = prepared.conversation.composed
        why = {BlockKind.ENVIRONMENT: prepared.renewed} if prepared.renewed else {}
        told = prepared.served.notice
        return Lore(
            session=prepared.session.name if prepared.session else None,
            began=prepared.began,
            model=self.model_name,
            notice=self.notice,
            notices=tuple(dict.fromkeys(filter(None, (*report.not_used(prepared.ask), told, *prepared.unseen)))),
            identity=prepared.served.state(),
            codex=standing.state(indexing=prepared.indexing) if standing else None,
            strategy=report.strategy_state(prepared.decision),
            blocks=report.block_states(prompt, parts),
            broke_at=broke_at(before, prepared.composed, why) if before is not None else None,
            prompt=report.prompt_state(prompt, parts),
            governor=report.governor_state(
                machine.levels.memory or "unknown",
                prompt.tokens,
                self.client.info.kv_bytes_per_token if self.client.info else 0.0,
                machine.grant,
                prepared.actions,
            ),
        )

    # -- planning

    async def plan(self, ask: Ask, *, prompt: bool = False) -> Report:
        """What would be done, and nothing done. Raises LoreError."""
        if not self.voice().done():
            refuse_waiting(ask, why_waiting(self.client))
        voice = await self._spoken(deadline_of(ask, time.monotonic()))
        prepared = await self.preparing.prepare(ask, voice)
        assembled = prepared.composed.assembled
        with self.preparing.shelf.floors.held(assembled.floor, prepared.place, asked=False):
            matched = await self.client.match(assembled.floor.name, assembled.tail, assembled.owner, max_tokens=1)
        lore = self._lore(prepared, matched.reuse)
        report = plan_report(prepared, lore, self.client.snapshot, self.preparing.machine.budget)
        return report | ({"text": prepared.composed.text} if prompt else {})


def sources_of(prepared: PreparedQuestion, finished: Finished) -> AnswerSources:
    """What the answer was shown."""
    standing = prepared.standing
    ground = AnswerSources(prepared.turn, finished.running, selection=prepared.selection)
    return ground if standing is None else replace(ground, log=standing.log, files=standing.files)
