"""A question on its way: what a client sent, with what it is asked about, and ready to be inferred. Values: nothing is
looked up here.

    messages ─ split ─▶ SplitMessages ─▶ AskedQuestion ─▶ TurnFindings ─▶ PreparedQuestion
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from formatters.context import AttachmentView, TurnContext
from orchestrator.answering.client_tools import ALL_RESULTS, answered_calls, refuse_strangers, results_at_end
from orchestrator.answering.conversations import Conversation
from orchestrator.answering.grounding import Passage, Pointed
from orchestrator.answering.sessions import Session
from orchestrator.codices.coverages import one_line
from orchestrator.codices.serving_identities import ServingIdentity
from orchestrator.codices.state import CodexState, FloorKey
from orchestrator.engine.messages import Grant, InferenceJob, Sampling
from orchestrator.errors import InvalidRequest
from orchestrator.karma.recall import Recalled
from orchestrator.model.chat_model import ChatModel
from orchestrator.prompt.budget import Governed
from orchestrator.prompt.composing import Composed
from orchestrator.prompt.coverage import share
from orchestrator.prompt.evidence import Gathered
from orchestrator.prompt.prefetch import Prefetch
from orchestrator.prompt.situation import renewed
from orchestrator.prompt.strategy import Decision
from orchestrator.relevance.gate import Relevance
from orchestrator.service import Ask, Message, TextAsk

ANSWER_SHARE = 0.25  # of the window: what an answer is promised at most before anything else is cut for it
TEMPERATURE = 0.7  # of a user's model, where the client names none


class SplitMessages(NamedTuple):
    """The question, the messages before it, and what the client's system messages say. `results`: of calls that the last
    answer made; then the question is the one that this answer was given to, and `earlier` end with the answer."""

    question: str
    earlier: tuple[Message, ...]
    system: tuple[str, ...]
    results: tuple[Message, ...] = ()


@dataclass(frozen=True)
class AskedQuestion:
    """A question with what it is asked about. `choice`: what to know of how the codex was chosen, where nobody named one;
    `where`: the user's place in an editor; `variant`: of the rules of relevance; `grant`: the one that it is planned under;
    `began`: when preparing it did."""

    ask: Ask
    messages: SplitMessages
    chat_model: ChatModel
    session: Session | None
    codex_state: CodexState | None
    choice: str
    conversation: Conversation
    variant: str
    where: Pointed | None
    served: ServingIdentity
    grant: Grant
    began: float

    @property
    def promised(self) -> int:
        """Tokens that its answer is promised."""
        return promised(self.ask, self.grant.window)

    @property
    def selection(self) -> Passage | None:
        return self.where.selection if self.where is not None else None

    @property
    def attachments(self) -> tuple[AttachmentView, ...]:
        """What comes with it; a verbatim text that the conversation has already comes once."""
        where = (self.where.attachment,) if self.where is not None else ()
        files = (AttachmentView(name=one_line(one.name), text=one.text) for one in self.ask.attachments)
        had = {one.text for turn in self.conversation.state.turns for one in turn.attachments if one.verbatim}
        new = (text for text in dict.fromkeys(self.ask.verbatim) if text not in had)
        return (*where, *files, *(AttachmentView(name="verbatim", text=text, verbatim=True) for text in new))

    @property
    def silence(self) -> float:
        """Seconds since its session's last turn; 0 for a conversation that is not kept."""
        return max(0.0, time.time() - self.session.used) if self.session is not None else 0.0

    @property
    def is_conversation(self) -> bool:
        """Whether its prompt may say more than the client sent: a client that talks to the bare model has it bare."""
        return self.codex_state is not None or self.ask.session is not None or self.session is not None

    @property
    def goes_on(self) -> bool:
        """Whether results of a client's tools continue the turn: its prompt then only grows."""
        return bool(self.messages.results)

    @property
    def in_session(self) -> bool:
        """Whether its conversation is kept on disk."""
        return self.session is not None or (self.ask.session is not None and not self.ask.private)


@dataclass(frozen=True)
class TurnFindings:
    """What was decided about a question, and what was found for it: memories that were `recalled`, passages `gathered`."""

    decision: Decision
    prefetch: Prefetch
    relevance: Relevance
    recalled: Recalled
    gathered: Gathered


@dataclass(frozen=True)
class PreparedQuestion(AskedQuestion):
    """One question, ready to be inferred. `unseen`: what the answer may not know of the codex; among the actions too.
    `behind`: of that what holds for the next question too. `cut`: results of the client's tools."""

    within: Governed
    found: TurnFindings
    job: InferenceJob
    unseen: tuple[str, ...]
    behind: str
    indexing: bool
    assemble_ms: float
    cut: tuple[str, ...]

    @property
    def turn(self) -> TurnContext:
        return self.within.turn

    @property
    def composed(self) -> Composed:
        return self.within.composed

    @property
    def room(self) -> int:
        """Tokens that the window has behind the prompt."""
        return self.grant.window - self.composed.assembled.tokens

    @property
    def shorter_answer(self) -> tuple[str, ...]:
        """That the window has less room behind the prompt than the answer may have tokens."""
        most = self.ask.max_tokens
        return (f"the answer may have {self.room:,} tokens, not {most:,}: the window holds no more",) * (
            most > self.room
        )

    @property
    def actions(self) -> tuple[str, ...]:
        return (*self.cut, *self.within.actions, *self.shorter_answer, *self.unseen)

    @property
    def floor_key(self) -> FloorKey:
        """Whose floor it begins with."""
        return FloorKey.of(self.turn.codex, self.turn.identity)

    @property
    def renewed(self) -> str:
        """What of its Environment has changed since the conversation's last turn, in words."""
        return renewed(self.conversation.environment, self.turn.environment)


# -- what a client sent


def split(messages: Sequence[Message]) -> SplitMessages:
    """Raises InvalidRequest where they do not end with a question, or with results of calls."""
    system = tuple(one.content for one in messages if one.role == "system" and one.content)
    others = [one for one in messages if one.role != "system"]
    refuse_strangers(others)
    if results := results_at_end(others):
        return SplitMessages("", tuple(others[: -len(results)]), system, results)
    if others and others[-1].role == "assistant" and others[-1].tool_calls:
        raise InvalidRequest("messages: no results follow the calls of the last message", ALL_RESULTS)
    if others and others[-1].role == "assistant":
        what = "the last message is the assistant's: an answer that a client begins is not continued here"
        raise InvalidRequest(what, "send a message with role user last")
    if not others or others[-1].role != "user":
        raise InvalidRequest("the last message must be the user's question", "send a message with role user last")
    if not others[-1].content.strip():
        raise InvalidRequest("the question is empty", "say what you want to know")
    return SplitMessages(others[-1].content, tuple(others[:-1]), system)


def question_of(conversation: Conversation, results: Sequence[Message]) -> str:
    """The question that the results belong to. Raises InvalidRequest where they belong to none."""
    opened = conversation.state.reopened()
    if opened is None:
        raise InvalidRequest("messages: results of calls without the question", "send the whole conversation")
    _, question, since = opened
    answered_calls(since, results)
    return question


# -- what its answer may be


def promised(ask: Ask, window: int) -> int:
    """Tokens that its answer is promised."""
    return max(1, min(ask.max_tokens, share(window, ANSWER_SHARE)))


def sampling_of(ask: Ask | TextAsk, greedy: bool) -> Sampling:
    """As the client wants it; `greedy`: what it leaves open is not drawn by chance."""
    usual = Sampling(temperature=0.0 if greedy else TEMPERATURE)
    given: dict[str, Any] = {name: value for name, value in vars(ask.sampling).items() if value is not None}
    if isinstance(ask, Ask):
        given["logprobs"] = ask.logprobs
        given["schema"] = usual.schema if ask.schema is None else json.dumps(ask.schema)
    return replace(usual, **given)
