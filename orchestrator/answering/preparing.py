"""Everything that is decided about a question before it is inferred: shared by asking and planning.

    who and where → codex → conversation → strategy → evidence → context → prompt → within the budget

Each step is a method that reads like its name; nothing here runs the model.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from codex.library import Library
from formatters.blocks import ORDER, BlockKind, Role
from formatters.context import SigilView, ToolView, TurnContext, changed
from formatters.plugins import ContextNode
from governor.ctc import HEADROOM, PromptLimits, limits_of
from governor.settings import ClaimSettings
from orchestrator.answering.client_tools import (
    RESULTS_SHARE,
    answered_calls,
    cut_results,
    cuts_reported,
    open_calls,
    shares,
    tool_rules,
)
from orchestrator.answering.conversations import Conversations, resumed
from orchestrator.answering.grounding import Pointed, pointed
from orchestrator.answering.question import (
    AskedQuestion,
    PreparedQuestion,
    SplitMessages,
    TurnFindings,
    question_of,
    sampling_of,
)
from orchestrator.answering.running import with_stubs
from orchestrator.answering.sessions import Session
from orchestrator.codices.freshness import Freshness
from orchestrator.codices.lifecycle import CodexLifecycle
from orchestrator.codices.state import CodexState
from orchestrator.engine.calling import ToolRules
from orchestrator.engine.messages import InferenceJob
from orchestrator.errors import LoreError, NotFound, OverBudget
from orchestrator.karma.recall import PinnedKarma, Recall, Recalled, RecallQuestion, frame_in, unremembered
from orchestrator.machine.machine import Machine
from orchestrator.model.chat_model import ChatModel
from orchestrator.prompt.budget import Governed, condensed, governed, within_reach
from orchestrator.prompt.composing import Assembled, Composed
from orchestrator.prompt.coverage import share
from orchestrator.prompt.evidence import Gathered, Searcher, gather
from orchestrator.prompt.phrases import classify, read_part
from orchestrator.prompt.prefetch import ContextUse, Prefetch, prefetch_for
from orchestrator.prompt.situation import (
    SessionCodex,
    choose_codex,
    discussed,
    environment_of,
    named_documents,
)
from orchestrator.prompt.strategy import (
    PREFETCH,
    Decision,
    QuestionFigures,
    Retrieval,
    StrategyParameters,
    decide,
)
from orchestrator.relevance.gate import BUILTIN, GateRules, Relevance, chosen_variant, relevance
from orchestrator.relevance.notes import NoteFacts, notes_of
from orchestrator.relevance.signals import ACKNOWLEDGE, SILENCE, Turn, signals_of
from orchestrator.service import Ask, Principal
from orchestrator.wire.requests import ToolFunction

log = logging.getLogger("lorekeep.relevance")

KARMA_SHARE = 0.25  # of what the window leaves: more memories would push out turns and passages
TOKEN_CHARS = 16  # a token of a text that is worth reading has fewer
NOTE_TOKENS = 64  # for what says that a result was cut, and the tokens at its seams
UNREAD = "memories and constraints were not looked up for this answer"
NOTHING_LOADED = "no codex is loaded, so the model answers without any code: lore load ~/src/project"


@dataclass(frozen=True)
class Preparer:
    """The parts that preparing needs. `fresh` tells how true a codex is to its files; `greedy`: the model is a
    built-in one, whose answers are not drawn by chance."""

    lifecycle: CodexLifecycle
    library: Library
    conversations: Conversations
    machine: Machine
    searcher: Searcher
    claims: ClaimSettings
    strategy: StrategyParameters
    fresh: Callable[[str], Freshness]
    recall: Recall
    gate_rules: GateRules | None
    nodes: Mapping[str, ContextNode]
    greedy: bool

    async def prepare(self, ask: Ask, messages: SplitMessages, chat_model: ChatModel) -> PreparedQuestion:
        """`messages`: those of the ask. Raises LoreError. Changes nothing."""
        asked = await self._asked(ask, messages, chat_model)
        limits = self.limits(asked)
        whole = self._turn(asked)
        turn = within_reach(whole, limits)
        composed = await chat_model.composer.compose(turn, ask.think)
        turn, composed, cut = await self._with_results(asked, turn, composed, limits)
        found = await self._found(asked, turn, composed, limits)
        came = turn if asked.goes_on else self._with_context(asked, turn, found)
        if came is not turn:
            turn, composed = came, await chat_model.composer.compose(came, ask.think)
        try:
            within = await governed(
                turn, chat_model.composer, chat_model.tokens, limits, composed, whole.state, ask.think
            )
        except OverBudget as fault:
            state = asked.codex_state
            if state is None or (wait := self.lifecycle.wait_for_room(state, fault.over)) is None:
                raise
            raise wait from fault
        return self._prepared(asked, within, found, cut)

    async def with_gist(self, prepared: PreparedQuestion, text: str, read: int, cached: int) -> PreparedQuestion:
        """The same with this gist in the place of the extract; as it was where it does not fit. `read`: tokens that the
        model was given for it, `cached` of which were in the cache. Raises LoreError."""
        model, limits = prepared.chat_model, self.limits(prepared)
        within = await condensed(prepared.within, text, model.composer, model.tokens, limits, prepared.ask.think)
        if within is None:
            return prepared
        by_model = f"the model read {read:,} tokens for it, {cached:,} of them cached"
        made = replace(prepared, within=replace(within, by_model=by_model))
        return replace(made, job=self._job(made, within.composed))

    def limits(self, asked: AskedQuestion) -> PromptLimits:
        return limits_of(asked.grant.window, asked.promised, asked.grant.cells, self.claims)

    # -- who and where

    async def _asked(self, ask: Ask, messages: SplitMessages, chat_model: ChatModel) -> AskedQuestion:
        session, codex_state, choice = await self._codex_and_session(ask)
        codex = codex_state.name if codex_state is not None else None
        if session is not None:
            conversation = self.conversations.of_session(session, chat_model.tokens)
        else:
            form = chat_model.placement.calls
            conversation = self.conversations.of_messages(ask.principal.uid, codex, messages.earlier, form)
        if messages.results:
            messages = messages._replace(question=question_of(conversation, messages.results))
        return AskedQuestion(
            ask=ask,
            messages=messages,
            chat_model=chat_model,
            session=session,
            codex_state=codex_state,
            choice=choice,
            conversation=conversation,
            variant=chosen_variant(ask.variant, session.variant if session is not None else "", self.gate_rules),
            began=time.monotonic(),
            where=await self._where(ask, codex_state),
            served=await self.lifecycle.served(codex_state, ask.identity),
            grant=self.machine.usable_grant,
        )

    async def _codex_and_session(self, ask: Ask) -> tuple[Session | None, CodexState | None, str]:
        """The session, the codex, and a notice where the codex was chosen for the user."""
        session = self.conversations.sessions.named(ask.principal.uid, ask.session) if ask.session else None
        kept = SessionCodex(session.name, session.codex) if session is not None else None
        cwd = ask.client.get("cwd", "")
        candidates = await self.lifecycle.candidates(ask.principal, ask.codex, cwd)
        if not candidates and ask.codex is None and kept is None:
            name, choice = None, "" if ask.continue_last else NOTHING_LOADED
        else:
            name, choice = choose_codex(ask.codex, cwd, candidates, kept)
        codex_state = await self.lifecycle.ensure_built(name) if name is not None else None
        if session is None and ask.continue_last:
            session = self._last_session(ask, name)
        return session, codex_state, choice

    def _last_session(self, ask: Ask, codex: str | None) -> Session:
        last = self.conversations.sessions.last_of(ask.principal.uid, codex)
        if last is None:
            about = f"about codex {codex}" if codex else "with the bare model"
            raise NotFound(f"there is no session {about} to continue", "ask without --continue first")
        return last

    async def _where(self, ask: Ask, codex_state: CodexState | None) -> Pointed | None:
        """The user's place in an editor; None where none asks."""
        if not (ask.client.get("file") or ask.client.get("selection")):
            return None
        return await asyncio.to_thread(pointed, ask.client, codex_state, self._text_now)

    # -- the context

    def _turn(self, asked: AskedQuestion) -> TurnContext:
        sigil = sigil_of(asked.ask.principal)
        client_tools = tuple(map(tool_view, asked.ask.tools))
        tools = [tool.name for tool in asked.chat_model.tools] or None
        codex, state = resumed(asked.conversation, asked.codex_state)
        # One form in a prompt: Identity shows it where there are tools of ours.
        calling = asked.chat_model.placement.calls.example if client_tools and not asked.chat_model.tools else ""
        karma, system = asked.conversation.karma or PinnedKarma(), asked.messages.system
        around = environment_of(self.machine.levels, sigil, tools, system, client_tools, calling, karma.around)
        turn = TurnContext(
            identity=asked.served.view,
            sigil=sigil,
            codex=codex,
            environment=around,
            karma=karma.view,
            state=state,
            query=asked.messages.question,
            private=asked.ask.private,
        )
        if not asked.goes_on:
            came = asked.attachments
            return changed(turn, state=changed(state, attachments=came))
        opened = state.reopened()
        assert opened is not None, "a conversation without a question was refused"
        before, _, since = opened
        results = answered_calls(since, asked.messages.results)
        results = cut_results(results, [TOKEN_CHARS * asked.grant.window] * len(results))  # before they are tokenised
        return turn.model_copy(update={"state": before, "running": (*since, *results)})

    async def _with_results(
        self, asked: AskedQuestion, turn: TurnContext, composed: Composed, limits: PromptLimits
    ) -> tuple[TurnContext, Composed, tuple[str, ...]]:
        """With new results cut where the prompt has no room for them, and what was cut."""
        new = len(asked.messages.results)
        if not new:
            return turn, composed, ()
        since, results = turn.running[:-new], turn.running[-new:]
        whole, model = answered_calls(since, asked.messages.results), asked.chat_model
        if composed.assembled.tokens > limits.tokens:
            counts = await model.tokens.count([one.text for one in results])
            allowed = shares(counts, room_for_results(composed.assembled, sum(counts), limits.tokens))
            sizes = zip(results, counts, allowed, strict=True)
            results = cut_results(whole, [len(one.text) * may // max(1, had) for one, had, may in sizes])
            for running in (since, *with_stubs(since)):
                turn = turn.model_copy(update={"running": (*running, *results)})
                composed = await model.composer.compose(turn, asked.ask.think)
                if without_turns(composed.assembled) <= limits.tokens:
                    break
        return turn, composed, tuple(cuts_reported(open_calls(since), [len(one.text) for one in whole], results))

    def _text_now(self, path: str, digest: str) -> str:
        return self.library.catalog.document_by_digest(path, digest).text

    # -- how

    async def _found(
        self, asked: AskedQuestion, turn: TurnContext, composed: Composed, limits: PromptLimits
    ) -> TurnFindings:
        """By the question and its prompt so far. A turn that goes on behind tool calls finds nothing new."""
        prefetch = self._prefetch(asked, composed, limits)
        relevant = await self._relevance(asked, prefetch)
        decision = self._decide(asked, composed, asks=relevant.mode != ACKNOWLEDGE)
        room = share(max(0, limits.tokens - composed.assembled.tokens), KARMA_SHARE)
        question = self._recall_question(asked, decision, prefetch, relevant, room)
        recalled = await self._recalled(asked, question)
        gathered = Gathered() if asked.goes_on else await self._evidence(decision, turn, asked.chat_model)
        return TurnFindings(decision, prefetch, relevant, recalled, gathered)

    def _decide(self, asked: AskedQuestion, composed: Composed, *, asks: bool) -> Decision:
        question, codex_state, window = read_part(asked.messages.question), asked.codex_state, asked.grant.window
        task, because = classify(question, asked.ask.frame or "", self.strategy.phrases)
        paths = codex_state.generation.paths if codex_state is not None else ()
        return decide(
            codex_state.floor_coverage() if codex_state is not None else None,
            QuestionFigures(
                task=task,
                window=window,
                used=spoken_for(composed.assembled, asked.promised, window),
                because=because,
                tools=frozenset(tool.name for tool in asked.chat_model.tools),
                documents=named_documents(question, paths),
                asks=asks,
            ),
            self.strategy,
            forced=asked.ask.strategy,
            sizes=codex_state.sizes if codex_state is not None else None,
            room=self.machine.room(composed.assembled.blocks[0].tokens) if asked.ask.strategy is not None else None,
        )

    def _prefetch(self, asked: AskedQuestion, composed: Composed, limits: PromptLimits) -> Prefetch:
        floor = composed.assembled.floor.tokens
        use = ContextUse(composed.assembled.tokens - floor, asked.grant.window, limits.tokens - floor)
        return prefetch_for(asked.messages.question, use, more=self.strategy.phrases)

    async def _relevance(self, asked: AskedQuestion, prefetch: Prefetch) -> Relevance:
        """Which parts of the context are worth fetching for it. One log event a turn."""
        question = asked.messages.question
        # Its own: in the Query block are the template's words too, and results of calls.
        (tokens,) = await asked.chat_model.tokens.count([question])
        turn = Turn(
            question=read_part(question),
            tokens=tokens,
            turns=sum(turn.role is Role.USER for turn in asked.conversation.state.turns),
            silence=asked.silence,
            mode=asked.ask.mode or "",
            urgency=asked.ask.urgency or "",
            pressure=prefetch.pressure,
            vram_level=self.machine.levels.memory or "",
        )
        frame = frame_in(question, asked.ask.frame, asked.conversation.karma)
        rules = self.gate_rules.of(asked.variant) if self.gate_rules is not None else None
        return relevance(signals_of(turn), rules, self.nodes, frame.total)

    def _recall_question(
        self, asked: AskedQuestion, decision: Decision, prefetch: Prefetch, relevant: Relevance, room: int
    ) -> RecallQuestion:
        return RecallQuestion(
            uid=asked.ask.principal.uid,
            codex=asked.codex_state.name if asked.codex_state is not None else None,
            text=asked.messages.question,
            turns=[turn.text for turn in asked.conversation.state.turns],
            room=room,
            prefetch=prefetch,
            wants=relevant.wants,
            frame=asked.ask.frame,
            files=(*decision.asked.documents, *filter(None, [asked.ask.client.get("file")])),
        )

    async def _recalled(self, asked: AskedQuestion, question: RecallQuestion) -> Recalled:
        """Its memories; none for who may not read them; what the conversation has of them where they cannot be read."""
        if not asked.ask.principal.may("memory:read"):
            return unremembered(question)
        notice = ""
        if not asked.goes_on:
            try:
                return await self.recall.recall(question, asked.conversation.karma)
            except LoreError as fault:
                log.warning("the memories of a question were not read: %s", fault.message)
                notice = f"{UNREAD}: {fault.message}"
        return replace(unremembered(question), karma=asked.conversation.karma or PinnedKarma(), notice=notice)

    async def _evidence(self, decision: Decision, turn: TurnContext, chat_model: ChatModel) -> Gathered:
        if decision.retrieval is Retrieval.NONE or turn.codex is None:
            return Gathered()
        known = [one for earlier in turn.state.turns for one in earlier.evidence]
        return await gather(
            self.searcher,
            chat_model.tokens,
            turn.codex.name,
            read_part(turn.query),
            min(decision.retrieval_budget, PREFETCH),
            known,
            graph=decision.retrieval is Retrieval.GRAPH,
        )

    def _with_context(self, asked: AskedQuestion, turn: TurnContext, found: TurnFindings) -> TurnContext:
        """The turn with what was found for it."""
        relevant, recalled = found.relevance, found.recalled
        notes = notes_of(self._note_facts(asked, recalled), turn.state.turns, relevant.wants)
        left_out = tuple(sorted(relevant.excluded.keys() - BUILTIN))
        notes = notes if asked.is_conversation else ()
        around = changed(turn.environment, about=recalled.karma.around)
        state = changed(turn.state, evidence=found.gathered.evidence, notes=notes, left_out=left_out)
        return changed(turn, karma=recalled.karma.view, environment=around, state=state)

    def _note_facts(self, asked: AskedQuestion, recalled: Recalled) -> NoteFacts:
        turns, codex_state = asked.conversation.state.turns, asked.codex_state
        away = asked.silence if asked.silence >= SILENCE and turns else None
        questions = [one.text for one in turns if one.role is Role.USER]
        paths = codex_state.generation.paths if codex_state is not None and away is not None else ()
        return NoteFacts(
            frame=recalled.frame,
            away=away,
            last=questions[-1] if questions else "",
            files=discussed(turns, paths),
            loaded=asked.choice != NOTHING_LOADED,
            calibration=recalled.calibration,
        )

    # -- the result

    def _prepared(
        self, asked: AskedQuestion, within: Governed, found: TurnFindings, cut: tuple[str, ...]
    ) -> PreparedQuestion:
        fresh = self.fresh(asked.codex_state.name) if asked.codex_state is not None else None
        behind = fresh.unseen if fresh is not None else ""
        unseen = not_seen(behind, found.gathered)
        if self.gate_rules is not None and (many := crowd(found.relevance, within.composed, self.gate_rules.most)):
            log.warning("a prompt has %d parts, more than most_nodes allows: %s", len(many), ", ".join(many))
        karma = found.recalled.karma.held(within.turn.karma)
        if karma is not found.recalled.karma:
            found = replace(found, recalled=replace(found.recalled, karma=karma))
        return PreparedQuestion(
            **vars(asked),
            within=within,
            found=found,
            job=self._job(asked, within.composed),
            unseen=unseen,
            behind=behind,
            indexing=fresh is not None and fresh.is_behind,
            assemble_ms=(time.monotonic() - asked.began) * 1000,
            cut=cut,
        )

    def _job(self, asked: AskedQuestion, composed: Composed) -> InferenceJob:
        ask, room = asked.ask, asked.grant.window - composed.assembled.tokens
        return InferenceJob(
            ticket=0,  # the client numbers it
            floor=composed.assembled.floor.name,
            tail=composed.assembled.tail,
            owner=ask.principal.uid,
            max_tokens=min(ask.max_tokens, room),
            sampling=replace(sampling_of(ask, self.greedy), calls=self._calls(asked)),
            stop=(*ask.stop, *asked.chat_model.stop),
            marks=composed.assembled.marks,
            uncached=not ask.cache,
        )

    def _calls(self, asked: AskedQuestion) -> ToolRules | None:
        model = asked.chat_model
        sigil = sigil_of(asked.ask.principal)
        return tool_rules(asked.ask, model.placement.calls, model.tools, sigil, thinking=model.opens_thought)


@lru_cache(maxsize=64)
def sigil_of(principal: Principal) -> SigilView:
    return SigilView(name=principal.sigil, uid=principal.uid, scopes=principal.scopes)


def crowd(relevant: Relevance, composed: Composed, most: int) -> tuple[str, ...]:
    """The counted nodes that the prompt holds something of, where they are more than `most`; the gate counts also those of
    which there is nothing."""
    blocks = (block for block in composed.prompt.blocks if block.kind is not BlockKind.CODEX)
    written = {item.node for block in blocks for item in block.items} if relevant.crowded else set()
    held = tuple(name for name in relevant.crowded if name in written)
    return held if len(held) > most else ()


def spoken_for(prompt: Assembled, answer: int, window: int) -> int:
    """Tokens of the window that no passage may have. Earlier turns go down to three quarters of what may be cut where a
    prompt does not fit, so passages have the rest in any case."""
    turns = prompt.blocks[ORDER.index(BlockKind.STATE)].tokens
    fixed = prompt.tokens - turns + answer
    return min(window, fixed + min(turns, share(max(0, window - fixed), 1 - HEADROOM)))


def not_seen(unseen: str, gathered: Gathered) -> tuple[str, ...]:
    """What the answer may not know of the codex: also one that searches for nothing says so."""
    included = not unseen or any(unseen in notice for notice in gathered.notices)
    return gathered.notices if included else (*gathered.notices, unseen)


def room_for_results(prompt: Assembled, results: int, limit: int) -> int:
    """Tokens that new results may have, which have so many: what is left beside all else, but no less than half of what is
    left beside all but earlier turns."""
    most = share(max(0, limit - (without_turns(prompt) - results)), RESULTS_SHARE)
    return max(limit - (prompt.tokens - results), most) - NOTE_TOKENS


def without_turns(prompt: Assembled) -> int:
    """Tokens of what is not an earlier turn, or came with one."""
    return prompt.tokens - prompt.blocks[ORDER.index(BlockKind.STATE)].tokens


def tool_view(tool: ToolFunction) -> ToolView:
    return ToolView(name=tool.name, description=tool.description or "", parameters_json_schema=tool.parameters or {})
