"""Plain text in front of the model, without chat, codex and memory: what its tokens are, and how it goes on.

    a prompt                 BOS? │ prompt
    a prompt and a suffix    BOS? FIM-PREFIX │ prompt FIM-SUFFIX suffix FIM-MIDDLE
    the same behind a lead   BOS? │ lead FIM-PREFIX prompt FIM-SUFFIX suffix FIM-MIDDLE

What stands left of the bar is the same for everybody, what stands right of it is one user's. Texts are tokenised as
content; the model's own tokens for filling in are put between them by their ids. Clients that write those tokens as text
get the same: a prompt that is of the second or third form is taken apart; the lead is what they tell of other files. One
that holds another such text within is ambiguous, as the file at the cursor may hold one, and is read as text.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple, cast

from orchestrator.answering.inference import Inference, InferenceEvent
from orchestrator.answering.question import sampling_of
from orchestrator.answering.waiting import EngineWait, deadline_of, own_task, until_first, within
from orchestrator.codices.successors import Questions
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import (
    ID_BYTES,
    UNSAVED,
    AnswerDelta,
    Completion,
    Ids,
    InferenceJob,
    PrefillProgress,
    Reason,
    ids_to_bytes,
)
from orchestrator.engine.model import FimTokens
from orchestrator.errors import InvalidRequest, OverBudget
from orchestrator.machine.machine import Machine
from orchestrator.machine.yielding import Yielding
from orchestrator.model.chat_model import ChatModel, engine_faults, engine_ready, why_waiting
from orchestrator.service import Continued, Text, TextAsk, TextEvent
from orchestrator.wire.answers import Waiting
from orchestrator.wire.texts import GenerationDefaults, PropsReply

NO_FIM = "the loaded model was not made to fill in: its vocabulary has no tokens for it"


class Gap(NamedTuple):
    """What stands before and behind a gap, and what leads there; without a gap there is no `after`."""

    before: str
    after: str | None
    lead: str = ""


class TextPrompt(NamedTuple):
    """Ids left and right of the bar; `mark`: where the user's next prompt is likely to part from this one."""

    head: Ids
    tail: Ids
    mark: int

    @property
    def tokens(self) -> int:
        return (len(self.head) + len(self.tail)) // ID_BYTES

    @property
    def floor(self) -> str:
        return f"text {hashlib.sha256(self.head).hexdigest()[:16]}"


@dataclass(frozen=True)
class PlainTexts:
    """`setting` and `sequences` are the settings' own; `greedy`: what a client leaves open is not drawn by chance."""

    client: EngineClient
    machine: Machine
    yielding: Yielding
    inference: Inference
    questions: Questions
    model_ready: Callable[[], "asyncio.Future[ChatModel]"]
    model_now: Callable[[], ChatModel]
    setting: str
    sequences: int
    version: str
    greedy: bool

    # -- what it is

    @property
    def window(self) -> int | None:
        """Tokens of prompt and answer together; None before that is known."""
        return self.machine.grant.window or None

    def props(self) -> PropsReply:
        """Raises NotReady."""
        info = self.model_now().info
        return PropsReply(
            default_generation_settings=GenerationDefaults(n_ctx=self.machine.grant.window),
            total_slots=self.sequences - 1,
            model_path=self.setting,
            model_alias=info.name,
            chat_template=info.chat_template,
            bos_token=info.bos,
            eos_token=info.eos,
            build_info=f"lorekeep {self.version}",
        )

    # -- tokens

    async def tokens_of(self, text: str) -> Sequence[int]:
        """Ids of a text; none is a control token's. Raises NotReady, EngineFailed."""
        self.model_now()
        with engine_faults():
            (ids,) = await self.client.encode([text])
        return ids

    async def text_of(self, ids: Sequence[int]) -> str:
        """The text that ids stand for; an id that no token has, and a control token, stand for none. Raises NotReady,
        EngineFailed."""
        self.model_now()
        with engine_faults():
            return await self.client.decode(ids_to_bytes(ids))

    # -- going on

    async def continued(self, ask: TextAsk) -> AsyncIterator[TextEvent]:
        """Events until Continued. Closing the iterator cancels what runs. Raises LoreError."""
        with self.yielding.question(), self.questions.running():
            asked = own_task(self._continued(ask, deadline_of(ask)))
            async with aclosing(EngineWait(self.client, self.yielding).with_waiting(asked, wait=ask.wait)) as events:
                async for event in events:
                    yield event

    async def _continued(self, ask: TextAsk, deadline: float | None) -> AsyncGenerator[TextEvent]:
        ready = engine_ready(self.model_ready(), self.client)
        chat_model = await within(deadline, ready, lambda: f"not ready in time: {why_waiting(self.client)}")
        prompt = await self._prompt(ask, chat_model)
        job = self._job(ask, prompt)
        self.client.put_floor(prompt.floor, prompt.head, pool=UNSAVED)
        begun = asyncio.Event()
        async with aclosing(cast(AsyncGenerator[InferenceEvent], self.inference.infer(job))) as events:
            async for event in until_first(events, deadline, begun.is_set, lambda: self.client.reason):
                if isinstance(event, AnswerDelta):
                    begun.set()
                if (shown := shown_of(event, ask)) is not None:
                    yield shown

    async def _prompt(self, ask: TextAsk, chat_model: ChatModel) -> TextPrompt:
        """Raises InvalidRequest where the model cannot fill in, or nothing is asked."""
        info = chat_model.info
        filling = filling_of(ask, info.fim)
        texts = (filling.lead, filling.before, filling.after or "")
        bos = await chat_model.tokens.encode([info.bos], True) if info.add_bos and info.bos else [b""]
        lead, before, after = await chat_model.tokens.encode(texts, False)
        if filling.after is None:
            if not before and not bos[0]:
                raise InvalidRequest(
                    "prompt: is empty, and the model has no token that begins a text", "send some text"
                )
            return TextPrompt(bos[0], before, len(before) // ID_BYTES)
        assert info.fim is not None, "else it was refused"
        return laid_out(bos[0], info.fim, lead, before, after)

    def _job(self, ask: TextAsk, prompt: TextPrompt) -> InferenceJob:
        """Raises OverBudget with the numbers."""
        room = self.machine.grant.window - prompt.tokens
        if room < 1:
            what = f"the text has {prompt.tokens:,} tokens and {self.machine.grant.window:,} can be held"
            raise OverBudget(what, "send less of what stands before and behind the cursor")
        return InferenceJob(
            ticket=0,  # the client numbers it
            floor=prompt.floor,
            tail=prompt.tail,
            owner=ask.principal.uid,
            max_tokens=min(ask.max_tokens, room),
            sampling=sampling_of(ask, self.greedy),
            stop=ask.stop,
            marks=(prompt.mark,) if 0 < prompt.mark < len(prompt.tail) // ID_BYTES else (),
        )


def filling_of(ask: TextAsk, fim: FimTokens | None) -> Gap:
    """Raises InvalidRequest where there is a suffix and the model cannot fill in."""
    if ask.suffix:
        if fim is None:
            raise InvalidRequest(f"suffix: {NO_FIM}", "leave out the suffix, or load a model that fills in")
        return Gap(ask.prompt, ask.suffix)
    return taken_apart(ask.prompt, fim) if fim is not None else Gap(ask.prompt, None)


def taken_apart(prompt: str, fim: FimTokens) -> Gap:
    """A prompt that a client wrote in the model's own form for filling in; any other stays as it is."""
    prefix, suffix, middle = fim.texts
    once = all(prompt.count(text) == 1 for text in fim.texts)
    if not (once and prompt.find(prefix) < prompt.find(suffix) and prompt.endswith(middle)):
        return Gap(prompt, None)
    lead, _, rest = prompt.partition(prefix)
    before, _, after = rest[: -len(middle)].partition(suffix)
    return Gap(before, after, lead)


def laid_out(bos: Ids, fim: FimTokens, lead: Ids, before: Ids, after: Ids) -> TextPrompt:
    """The second or third form. The prefix comes first: while somebody types, what stands before it is in the cache."""
    prefix, suffix, middle = (ids_to_bytes([one]) for one in (fim.prefix, fim.suffix, fim.middle))
    head, first = (bos, lead + prefix) if lead else (bos + prefix, b"")
    tail = first + before + suffix + after + middle
    return TextPrompt(head, tail, (len(first) + len(before)) // ID_BYTES)


def shown_of(event: InferenceEvent, ask: TextAsk) -> TextEvent | None:
    """What of the engine's events a client is told."""
    match event:
        case PrefillProgress():
            return Waiting("prompt", event.done, event.total)
        case AnswerDelta():
            return Text(event.text) if event.text else None
        case Completion():
            reason = "length" if event.reason is Reason.LENGTH else "stop"
            return Continued(reason, ask.notices, event.prompt, event.cached, event.generated)
        case _:
            return None
