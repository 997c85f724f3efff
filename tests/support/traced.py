"""Turns to trace, with prompts as they are really composed."""

from collections.abc import Sequence

import anyio
from support.composing import TEMPLATE
from support.small_reports import lore_of
from support.word_encoder import WordEncoder

from formatters.blocks import Role
from formatters.context import CodexPiece, CodexView, IdentityView, SigilView, StateView, TurnContext, TurnView
from formatters.registry import builtin
from formatters.template import ChatTemplate, probe
from orchestrator.answering.traces import TracedTurn, TraceStore
from orchestrator.prompt.composing import Assembler, Composed, Composer, TokenCache
from orchestrator.relevance.gate import Relevance, catalogue, everything
from orchestrator.service import Ask, Message, Principal

_TEMPLATE = ChatTemplate(TEMPLATE)
_COMPOSER = Composer(builtin(), _TEMPLATE, probe(_TEMPLATE), Assembler(TokenCache(WordEncoder()), "root"))
NOTHING_EXCLUDED = everything("RESPOND", catalogue(), "default")
LORE = lore_of(Ask(Principal(1000, 1000, 1), (Message("user", "Where is main?"),)))


def composed(query: str = "Where is main?", said: Sequence[str] = (), code: str = "x = 1\n") -> Composed:
    """The prompt of a question after the turns `said`, of user and model in turn."""
    roles = (Role.USER, Role.ASSISTANT)
    turns = tuple(TurnView(role=roles[place % 2], text=text) for place, text in enumerate(said))
    turn = TurnContext(
        identity=IdentityView(name="keeper", text="You keep the lore."),
        sigil=SigilView(name="owner", uid=1000, scopes=frozenset({"admin"})),
        codex=CodexView(name="demo", pieces=(CodexPiece(path="a.py", text=code),)),
        state=StateView(turns=turns),
        query=query,
    )
    return anyio.run(_COMPOSER.compose, turn)


def traced(
    id: str,  # noqa: A002
    prompt: Composed | None = None,
    uid: int = 1000,
    relevance: Relevance = NOTHING_EXCLUDED,
) -> TracedTurn:
    lore = LORE.model_copy(update={"trace": id})
    return TracedTurn(id, uid, "Where is main?", "In a.py.", "stop", "demo", (), prompt or composed(), lore, relevance)


def check(store: TraceStore) -> None:
    """The law of the file: texts are those that traces have, counted and weighed."""
    prompts = store._read("SELECT prompt, size FROM traces")
    uses: dict[bytes, int] = {}
    for digests, _ in prompts:
        for one in {digests[at : at + 32] for at in range(0, len(digests), 32)}:
            uses[one] = uses.get(one, 0) + 1
    texts = store._read("SELECT digest, uses, size, length(body) FROM texts")
    assert {digest: count for digest, count, _, _ in texts} == uses
    assert all(size == length for _, _, size, length in texts)
    assert store.held == sum(size for _, size in prompts) + sum(size for _, _, size, _ in texts)
