"""What the small service tells: one model, one pool, one codex, figures of the caches, and the lore object of an answer."""

from support.wire_shapes import filled

from orchestrator.service import Ask
from orchestrator.wire.answers import (
    BlockState,
    Citation,
    CodexInAnswer,
    GovernorState,
    Lore,
    PromptState,
    StrategyState,
)
from orchestrator.wire.models import ModelReport
from orchestrator.wire.replies import CodexReport, CoverageTokens
from orchestrator.wire.status import EngineReport, PoolReport

MODEL = ModelReport(
    id="builtin:quoter",
    path="/models/quoter.gguf",
    loaded=True,
    bytes=1000,
    fits=True,
    context=8192,
    words="yes, context 8.2k",
)
POOL = PoolReport(
    name="lorekeep/demo", size=1024, free=600, reserved=63, evictable=300, leased=61, sequences=1, bytes=4096
)
ENGINE = filled(
    EngineReport,
    state="ready",
    device="CPU",
    restarts=0,
    kv_bytes=4096,
    answering=0,
    prefills=1,
    prefill_share=1.0,
    pools=(POOL,),
)
COUNTED = {
    "prompt_tokens": 1000,
    "cached_tokens": 900,
    "disk_tokens": 300,
    "computed_tokens": 100,
    "ms_per_token": 2.0,
    "tier_disk_hits": 3,
    "tier_disk_bytes": 2048,
    "drafted_tokens": 40,
    "accepted_tokens": 30,
}
KINDS = ("identity", "codex", "environment", "karma", "state", "query")


def codex(name: str, root: str = "/src/demo") -> CodexReport:
    return CodexReport(
        name=name,
        root=root,
        generation=1,
        files=3,
        skipped={"binary": 1},
        tokens=CoverageTokens(full=1200, skeleton=300, map=90),
        tier="full",
        tier_tokens=1200,
        floor_tokens=1300,
        reason="1,200 tokens fit",
        hint="",
        kv_bytes=4096,
        indexed_chunks=7,
    )


def lore_of(ask: Ask) -> Lore:
    blocks = tuple(BlockState(kind=kind, tokens=20, cached=18, source="ram") for kind in KINDS)
    return Lore(
        trace="t1",
        session=ask.session or ("brave-otter" if ask.session == "" else None),
        began=ask.session in ("", "fresh"),
        model="builtin:quoter",
        notices=ask.notices,
        codex=CodexInAnswer(
            name="demo", root="/src/demo", generation=1, branch="main", revision="1a2b3c4d", amendments=("a.py", "b.py")
        ),
        strategy=StrategyState(
            name="CAG",
            tier="full",
            retrieval="none",
            task="hybrid",
            confidence=0.95,
            reason="1,200 tokens fit in 8,192",
            window=8192,
            content_tokens=1200,
            available_tokens=6000,
            used_tokens=120,
            retrieval_budget=0,
        ),
        blocks=blocks,
        prompt=PromptState(tokens=100, cached=90, computed=10),
        governor=GovernorState(level="calm", kv_bytes=4096, budget_tokens=8000),
        citations=(Citation(path="src/a.py", start=10, end=20, valid=True),),
    )
