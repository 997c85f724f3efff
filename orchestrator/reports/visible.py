"""What of a report a user may see: nothing of codices that the user does not read. Pure.

What is the machine's stays: its model, its memory, how many prompts run or wait, and why it is paused.
"""

from collections.abc import Iterable
from typing import TypeVar

from orchestrator.codices.state import pool_parts
from orchestrator.service import Principal
from orchestrator.wire.answers import KvLoss
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.identities import IdentityReply, IdentityReport, IdentityRow
from orchestrator.wire.models import ModelReport
from orchestrator.wire.status import (
    BranchReport,
    EngineWork,
    LoadReportedEvent,
    NowEvent,
    PoolEvent,
    PrefillEvent,
    PrefillReport,
    StatusReply,
)

Identity = TypeVar("Identity", IdentityRow, IdentityReport)
Change = TypeVar("Change", bound=IdentityReply)


def status(principal: Principal, found: StatusReply) -> StatusReply:
    """Its codices and sessions are the principal's already."""
    pools = tuple(one for one in found.engine.pools if reads(principal, pool_parts(one.name)[2]))
    engine = found.engine.model_copy(update={"pools": pools, "prefill": prefill(principal, found.engine.prefill)})
    return found.model_copy(update={"engine": engine})


def event(principal: Principal, found: ReplyShape) -> ReplyShape | None:
    """None: it says nothing that the principal may know."""
    if isinstance(found, PoolEvent | PrefillEvent | LoadReportedEvent):
        return found if reads(principal, found.codex) else None
    if isinstance(found, NowEvent):
        pools = tuple(one for one in found.pools if reads(principal, pool_parts(one)[2]))
        loads = tuple(one for one in found.loads if principal.reads(one.codex))
        shown = {"pools": pools, "prefill": prefill(principal, found.prefill), "loads": loads}
        return found.model_copy(update=shown)
    return found


def work(principal: Principal, found: EngineWork) -> EngineWork:
    """The engine does not tell whose a job or a conversation is: without `admin` neither is told. With it, jobs about what
    the principal does not read have no name."""
    caches = tuple(one for one in found.caches if reads(principal, pool_parts(one.name)[2]))
    if not principal.may("admin"):
        floors = tuple(one.model_copy(update={"conversations": 0, "branches": shared(one.branches)}) for one in caches)
        return found.model_copy(update={"tickets": (), "caches": floors})
    jobs = tuple(one if reads(principal, one.codex) else one.model_copy(update={"codex": ""}) for one in found.tickets)
    return found.model_copy(update={"tickets": jobs, "caches": caches})


def shared(branches: Iterable[BranchReport]) -> tuple[BranchReport, ...]:
    return tuple(one for one in branches if not one.private)


def prefill(principal: Principal, found: PrefillReport | None) -> PrefillReport | None:
    return found if found is not None and reads(principal, found.codex) else None


def identity(principal: Principal, found: Identity) -> Identity:
    """Identities are the daemon's; which codices are asked under one is not."""
    shown: dict[str, object] = {"codices": tuple(filter(principal.reads, found.codices))}
    if isinstance(found, IdentityReport):
        shown["cost"] = tuple(one for one in found.cost if principal.reads(one.name))
    return found.model_copy(update=shown)


def identity_change(principal: Principal, found: Change) -> Change:
    return found.model_copy(update={"identity": identity(principal, found.identity)})


def model(principal: Principal, found: ModelReport) -> ModelReport:
    """What a type of KV changes is the model's; on whose text it was measured is not."""
    if found.kv is None:
        return found
    losses = {kind: kv_loss(principal, one) for kind, one in found.kv.losses.items()}
    return found.model_copy(update={"kv": found.kv.model_copy(update={"losses": losses})})


def kv_loss(principal: Principal, found: KvLoss | None) -> KvLoss | None:
    return found.model_copy(update={"codex": ""}) if found and not principal.reads(found.codex) else found


def reads(principal: Principal, codex: str) -> bool:
    """Prompts without a codex begin with an identity alone, which is everybody's."""
    return not codex or principal.reads(codex)
