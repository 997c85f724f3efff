"""The replies to a question: the `lore` object, which says how it was answered; a plan; completions in OpenAI's shape."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from orchestrator.wire.base import ReplyShape, SparseReply, empty

BARE = "none"  # the codex of a question that names none: the bare model answers
Block = Literal["identity", "codex", "environment", "karma", "state", "query"]
Source = Literal["vram", "ram", "disk", "remote", "computed"]
MOST_SAID = 2000  # characters of a refusal's message


class IdentityState(ReplyShape):
    """The identity that answered."""

    name: str = Field(description="its name")
    version: str = Field(description="12 hex digits of its text and of the tools that it describes")
    preparing: str | None = Field(None, description="the version that follows when its prefix is computed")
    fault: str = Field("", description="why its newest version cannot be read")


class CodexInAnswer(ReplyShape):
    """The codex that was asked, in the state that the answer saw."""

    name: str = Field(description="its name")
    root: str = Field(description="the first folder, file or URL that it was loaded from")
    generation: int = Field(description="counts up with every load that changed it")
    branch: str | None = Field(None, description="git's, as seen last")
    revision: str | None = Field(None, description="git's, as seen last")
    amendments: tuple[str, ...] = Field((), description="files that changed since, reported after the generation")
    removed: tuple[str, ...] = Field((), description="those of them that are gone; their last text is still there")
    indexing: bool = Field(False, description="a load of it was running, or changes were being applied")


class StrategyState(ReplyShape):
    """How the codex reached the model, and why."""

    name: str = Field(description="CAG, HYBRID, RAG, RAG+GRAPH or NONE")
    tier: str = Field(description="coverage of the codex in the cached prefix: full, skeleton+hot, map or none")
    retrieval: str = Field(description="what is fetched for this question")
    task: str = Field(description="what kind of question it was taken for")
    confidence: float = Field(description="of the decision, 0 to 1")
    reason: str = Field(description="in words and numbers")
    window: int = Field(description="tokens of prompt and answer together")
    content_tokens: int = Field(description="tokens of the whole codex, amendments included")
    available_tokens: int = Field(
        description="tokens of the window that are left: with the used ones they are all of it"
    )
    used_tokens: int = Field(
        description="tokens of the prompt, with what was fetched, and those promised to its answer"
    )
    retrieval_budget: int = Field(description="tokens that may be fetched")
    steps: tuple[str, ...] = Field((), description="in the order in which they are taken")


class BlockState(ReplyShape):
    """One block of the prompt."""

    kind: Block = Field(description="which of the six")
    tokens: int = Field(description="in it")
    cached: int = Field(description="of these: needed no computing")
    source: Source = Field(
        "computed", alias="from", description="where most of the cached ones were; RAM without a GPU"
    )


class Break(ReplyShape):
    """Where this turn's prompt left the previous one of its conversation, and why."""

    block: Block = Field(description="the first that differs")
    item: str = Field(description="what in it")
    why: str = Field(description="in words")


class Departure(ReplyShape):
    """Where a client's prompt left what its last one shared, so that the same text behind it was computed again."""

    why: str = Field(description="which message of the earlier request, and what happened to it")
    token: int = Field(description="place of the first differing token in the prompt")
    was: str = Field(description="the earlier prompt's text around it: twelve tokens")
    now: str = Field(description="this prompt's text there")
    tokens: int = Field(description="of the same text behind it, computed again; about")
    seconds: float | None = Field(description="that they took; none before the engine has measured its speed")


class PromptState(ReplyShape):
    """The whole prompt in tokens."""

    tokens: int = Field(description="in all")
    cached: int = Field(description="needed no computing")
    computed: int = Field(description="the others")
    left: int = Field(0, description="of the computed ones: on disk, and computed sooner than they would be read")


class GovernorState(ReplyShape):
    """What the machine allowed."""

    level: str = Field(description="of the memory: calm, elevated, high, critical or unknown")
    kv_bytes: int = Field(description="of KV that the prompt takes")
    budget_tokens: int = Field(description="prompt and answer may have together")
    actions: tuple[str, ...] = Field((), description="what was left out or shortened to fit, and what was not seen")
    left_out: str = Field("", description="what was left out or shortened, in one line; empty: nothing")


class Timings(ReplyShape):
    """Milliseconds since the question arrived."""

    pause_ms: float = Field(0.0, description="the memory was given away")
    model_ms: float = Field(0.0, description="waiting for the model to be loaded")
    assemble_ms: float = Field(0.0, description="preparing the prompt")
    queue_ms: float = Field(0.0, description="waiting in the engine")
    floor_ms: float = Field(0.0, description="then, until the shared prefix was computed; 0: it was there")
    ttft_ms: float = Field(0.0, description="until the first token")
    total_ms: float = Field(0.0, description="until the end")
    tokens_per_second: float = Field(0.0, description="of the answer")


class DraftCounts(ReplyShape):
    """Tokens that were guessed from the text before them and verified together."""

    drafted: int = Field(0, description="guessed")
    accepted: int = Field(0, description="that the model then generated itself")


class Citation(ReplyShape):
    """A place that an answer names or quotes."""

    path: str = Field(description="the file, as the codex names it")
    start: int = Field(description="first line, from 1")
    end: int = Field(description="last line")
    valid: bool = Field(description="it exists and was shown to the model")
    why: str = Field("", exclude_if=empty, description="what is wrong; left out where it is valid")


class ShownMemory(ReplyShape):
    """A memory in the prompt."""

    id: str = Field(description="10 hex digits: lore memory show ID")
    kind: str = Field(description="decision, fact, procedure, episode, censor, or a kind of a package")
    text: str = Field(description="as it is shown")


class NotedMemory(ReplyShape):
    """What the turn told, as it is remembered."""

    id: str = Field(description="10 hex digits: lore memory show ID")
    kind: str = Field(description="decision, fact, procedure, episode, censor, or a kind of a package")
    state: str = Field(description="where it stands; proposed: no model is shown it until a person confirms it")
    text: str = Field(description="as recorded")
    made: bool = Field(description="it is new; false: it was known, and is confirmed")
    suggested: str | None = Field(
        None, exclude_if=empty, description="of a known decision: its outcome as the turn tells it; confirm takes it"
    )


class CensorMark(ReplyShape):
    """A censor that the question or the answer goes against. The text itself is never changed."""

    id: str = Field(description="10 hex digits: lore memory show ID")
    severity: str = Field(description="warn, or block where a person promoted it")
    watches: str = Field(description="question or answer: where the passage stands")
    text: str = Field(description="what the censor says")
    passage: str = Field(description="the sentence that triggered it")


class QuestionReport(ReplyShape):
    """What was decided for one question, answered or only planned."""

    session: str | None = Field(None, description="the conversation that it belongs to")
    model: str = Field("", description="as the settings name it")
    notice: str = Field("", description="what must be known of the model, such as that none was configured")
    notices: tuple[str, ...] = Field((), description="what has no effect yet, and what the answer may not have seen")
    lasting: tuple[str, ...] = Field(
        (), description="those of the notices that tell how things stand: a client may show each of them once"
    )
    identity: IdentityState | None = Field(None, description="the identity; none from an older daemon")
    codex: CodexInAnswer | None = Field(None, description="none: the bare model answers")
    strategy: StrategyState = Field(description="how the codex reaches the model")
    blocks: tuple[BlockState, ...] = Field(description="six, in their order; `cached` of a plan is what is cached now")
    broke_at: Break | None = Field(None, description="none where the prompt goes on where the last one ended")
    prompt: PromptState = Field(description="in tokens")
    governor: GovernorState = Field(description="what the machine allows")
    memories: tuple[ShownMemory, ...] = Field((), description="memories in the Karma block")
    drafts: DraftCounts = Field(DraftCounts(), description="guessed tokens; zeros in a plan")


class Lore(QuestionReport):
    """What an answer says about itself."""

    departure: Departure | None = Field(
        None, description="of a client that sends whole conversations; none where its prompt went on from its last one"
    )
    trace: str | None = Field(None, description="an identifier of this answer; none for a private one")
    began: bool = Field(False, description="the conversation began with this answer")
    not_kept: str = Field("", exclude_if=empty, description="why this turn was not saved; left out if it was")
    censored: tuple[CensorMark, ...] = Field(
        (), exclude_if=empty, description="censors that question or answer go against; left out where none"
    )
    noted: tuple[NotedMemory, ...] = Field(
        (), exclude_if=empty, description="memories made of the turn; left out where none"
    )
    timings: Timings = Field(Timings(), description="in milliseconds")
    citations: tuple[Citation, ...] = Field((), description="checked against the files and what was shown")


class Intent(ReplyShape):
    """What the question was taken for."""

    task: str = Field(description="its kind")
    because: str = Field(description="the words that say so")
    frame: str = Field("", description="what kind of talk it is: its memories are chosen by that")
    greeting: bool = Field(False, description="a greeting and nothing else: no memory is looked up")
    recency: float = Field(0.0, description="how much newer memories are preferred, 0 to 1")
    hints: dict[str, float] = Field({}, description="the kinds of memories that its words name")
    entities: tuple[str, ...] = Field((), description="names, paths, dates and symbols in it")


class RelevanceReport(ReplyShape):
    """What the relevance gate decided: nodes of the context, each with the layer and the rule that decided it."""

    mode: str = Field(description="RESPOND, CLARIFY, ACT, ACKNOWLEDGE, or the client's own")
    variant: str = Field("", description="of the rules that decided; empty: the plain ones")
    included: dict[str, str] = Field(description="what is fetched for this turn")
    excluded: dict[str, str] = Field(description="what is not")
    recovered: tuple[str, ...] = Field(description="soft exclusions that were taken back, because there is room")
    tokens: int = Field(description="that the included nodes take on average, estimated")


class RetrievalPlan(ReplyShape):
    """What would be fetched."""

    retrieval: str = Field(description="none, look-ups, search or graph")
    budget: int = Field(description="tokens that may be fetched")
    passages: tuple[str, ...] = Field(description="path:start-end of what was fetched already and is in the prompt")
    memories: dict[str, int] = Field({}, description="most memories of each kind; empty: none is looked up")
    memory_tokens: dict[str, int] = Field({}, description="most tokens of each kind")


def in_short(text: str) -> str:
    """Its beginning and its end: what is refused may be a name of megabytes, which the refusal repeats."""
    return text if len(text) <= MOST_SAID else f"{text[: MOST_SAID // 2]} … {text[-MOST_SAID // 2 :]}"


Said = Annotated[str, AfterValidator(in_short)]


class RefusalReport(ReplyShape):
    """What is wrong, where, and what to do."""

    code: str = Field(description="one of the codes of errors")
    message: Said = Field(description="what is wrong, and where; of one longer than 2,000 characters its two ends")
    hint: Said = Field(description="what to do; may be empty")


class Need(ReplyShape):
    """The coverage that the strategy asked for needs."""

    tier: str = Field(description="its name")
    cost: str = Field(description="in words")


class PrefetchReport(ReplyShape):
    """What may be fetched of the memories before the model is asked, by how full the context is."""

    mode: Literal["stuff", "hybrid", "selective", "skip"] = Field(description="the fuller, the later one of these")
    pressure: float = Field(description="used tokens as a share of the threshold; 0 where the window is unknown")
    used_tokens: int = Field(description="right of the shared prefix, before anything is fetched")
    window: int = Field(description="tokens of prompt and answer together")
    threshold: int = Field(description="tokens that the governor lets the prompt have right of the shared prefix")
    limit: int = Field(description="most memories")
    factor: float = Field(description="what the limits of a retrieval plan are multiplied by")
    min_trust: float = Field(description="least trust of a memory, 0 to 1")
    skipped: bool = Field(description="nothing is fetched in advance for this question")
    advice: str = Field(description="in one line")
    report: str = Field(description="all of this for people")


class Predicted(ReplyShape):
    """What asking would cost."""

    ttft_ms: float | None = Field(description="until the first token; null where nothing was measured yet")
    kv_bytes: int = Field(description="of the prompt")
    context_pressure: float = Field(description="share of the window that the conversation takes")


class KvLoss(ReplyShape):
    """What a type of KV changes of the model's predictions, measured on a codex against f16."""

    tokens: int = Field(description="behind which predictions were compared")
    mean: float = Field(description="Kullback-Leibler divergence, in nats")
    worst: float = Field(description="the same: its 99th percentile")
    changed: float = Field(description="share of places with another likeliest token")
    codex: str = Field(description="whose text it was")


class PlanMemory(ReplyShape):
    """How the memory is planned."""

    where: str = Field(description="RAM, VRAM or the server")
    kv_bytes: int = Field(description="for KV")
    weights: int = Field(description="bytes of the model's")
    embedding_bytes: int = Field(description="kept for the model that embeds")
    window: int = Field(description="tokens that one prompt and its answer may have at most")
    bound_reason: str = Field(description="why no more, with the numbers")
    kv_type: str = Field("", description="of keys and values")
    kv_loss: KvLoss | None = Field(None, description="what that changes, where it was measured")


class PlanTimings(ReplyShape):
    """Milliseconds."""

    assemble_ms: float = Field(description="preparing the prompt")


class PlanReply(QuestionReport):
    """Everything decided for a question."""

    timings: PlanTimings = Field(description="of planning")
    relevance: RelevanceReport | None = Field(None, description="which parts of the context were worth fetching")
    intent: Intent = Field(description="what the question was taken for")
    retrieval_plan: RetrievalPlan = Field(description="what would be fetched")
    prefetch: PrefetchReport | None = Field(None, description="of memories, by how full the context is")
    refusal: RefusalReport | None = Field(
        None, description="why asking would be refused now; none where it would be answered"
    )
    needs: Need | None = Field(description="none where the resident coverage serves the strategy")
    predicted: Predicted = Field(description="what asking would cost")
    memory: PlanMemory | None = Field(None, description="how it is planned")
    text: str = Field(
        "",
        exclude_if=empty,
        description="with `prompt`: the exact text that the engine would get; else left out",
    )


class PromptDetails(ReplyShape):
    """OpenAI's place for it."""

    cached_tokens: int = Field(description="of the prompt: needed no computing")


class Usage(ReplyShape):
    """Tokens of one answer."""

    prompt_tokens: int = Field(description="of the prompt")
    completion_tokens: int = Field(description="of the answer")
    total_tokens: int = Field(description="both")
    prompt_tokens_details: PromptDetails = Field(description="how many were cached")


class AnswerFunction(ReplyShape):
    """A tool of the client with its arguments."""

    name: str = Field(description="the tool")
    arguments: str = Field(description="JSON, as the model wrote it")


class AnswerToolCall(ReplyShape):
    """A tool that the client is to call."""

    id: str = Field(description="to be named with the result")
    type: Literal["function"] = Field(description="OpenAI's word")
    function: AnswerFunction = Field(description="what to call")


class StreamedFunction(SparseReply):
    """What a piece adds to a call: first the tool, then its arguments."""

    name: str = Field("", description="the tool, in the first piece")
    arguments: str | None = Field(None, description="JSON, to be joined")


class StreamedCall(SparseReply):
    """A piece of a call. The first has its id and the tool."""

    index: int = Field(description="which of the answer's calls, from 0")
    id: str = Field("", description="to be named with the result")
    type: Literal["function"] | None = Field(None, description="OpenAI's word")
    function: StreamedFunction = Field(description="what is added")


class TokenChance(ReplyShape):
    """A token and how likely it was."""

    token: str = Field(description="its text; a token may end within a character")
    logprob: float = Field(description="natural logarithm of its probability")
    bytes: tuple[int, ...] = Field(description="its text exactly")


class ChosenToken(TokenChance):
    """A token of the answer."""

    top_logprobs: tuple[TokenChance, ...] = Field(description="the likeliest ones in its place")


class Logprobs(ReplyShape):
    """Log-probabilities of tokens."""

    content: tuple[ChosenToken, ...] = Field(description="of the text, in order")
    refusal: None = Field(description="OpenAI's; none")


class AnswerMessage(ReplyShape):
    """The answer."""

    role: Literal["assistant"] = Field(description="OpenAI's word")
    content: str | None = Field(description="the text; none where only tools are called")
    reasoning_content: str = Field(
        "", exclude_if=empty, description="what a thinking model thought; left out where it did not"
    )
    tool_calls: tuple[AnswerToolCall, ...] = Field(
        (), exclude_if=empty, description="calls of the client's tools; left out where none"
    )


class Choice(ReplyShape):
    """The one answer."""

    index: int = Field(description="0")
    message: AnswerMessage = Field(description="the answer")
    logprobs: Logprobs | None = Field(
        None, exclude_if=empty, description="log-probabilities of its tokens, where asked for"
    )
    finish_reason: str = Field(description="stop, length or tool_calls")


class CompletionReply(ReplyShape):
    """A whole answer."""

    id: str = Field(description="of this answer")
    object: Literal["chat.completion"] = Field(description="OpenAI's word")
    created: int = Field(description="seconds since 1970")
    model: str = Field(description="as it was asked for")
    choices: tuple[Choice, ...] = Field(description="one")
    usage: Usage = Field(description="in tokens")
    lore: Lore = Field(description="what the answer says of itself")


@dataclass(frozen=True)
class Waiting:
    """Progress before the first token. `phase` is queue, pause, model (in percent), gist (of older turns), floor or prompt;
    `left_s` is the time left, if known. `detail`: of a pause, in words."""

    phase: str
    done: int
    total: int
    codex: str = ""
    left_s: float | None = None
    detail: str = ""


class WaitingComment(ReplyShape):
    """A comment between the events of a stream."""

    progress: Waiting = Field(description="what is waited for")


class Delta(SparseReply):
    """What a piece adds: one of these; the first piece has the role, the last nothing."""

    role: Literal["assistant"] | None = Field(None, description="OpenAI's word")
    content: str = Field("", description="text")
    reasoning_content: str = Field("", description="what a thinking model thinks")
    tool_calls: tuple[StreamedCall, ...] = Field((), description="a tool to call")


class ChunkChoice(ReplyShape):
    """A piece of the answer."""

    index: int = Field(description="0")
    delta: Delta = Field(description="what is added")
    logprobs: Logprobs | None = Field(None, exclude_if=empty, description="of the piece's tokens, where asked for")
    finish_reason: str | None = Field(description="stop, length or tool_calls in the last one")


class CompletionChunk(SparseReply):
    """One event of a stream; `[DONE]` ends it. Comments between events report what is waited for."""

    ends = "[DONE]"
    id: str = Field(description="of this answer")
    object: Literal["chat.completion.chunk"] = Field(description="OpenAI's word")
    created: int = Field(description="seconds since 1970")
    model: str = Field(description="as it was asked for")
    choices: tuple[ChunkChoice, ...] = Field(description="one; none in the chunk of include_usage")
    usage: Usage | None = Field(None, description="in the last one")
    lore: Lore | None = Field(None, description="in the last one")
