"""What a type of KV changes of a model's predictions: measured on a user's own codex, kept by model and type.

The engine compares (`engine.scheduler.kv_measuring`); here is what it is asked, and a small file with what came of it. A
file that cannot be read is empty: what it held is measured again.
"""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from governor.footprint import KvPlan, misfit
from governor.model_shape import ModelShape
from governor.offload import FLOATS
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.errors import EngineFailed, InvalidRequest, NotReady, SettingsError
from orchestrator.model.model_file import ModelFile
from orchestrator.settings.paths import write_whole
from orchestrator.wire.answers import KvLoss
from orchestrator.wire.models import KvLossEvent, KvLossProgress

KV_LOSSES = "kv-losses.json"  # beside the databases
TOKENS, LEAST = 2_048, 256  # of the text: as many as are measured, and fewer of which nothing is learned
MEASURED = "q8_0"  # where KV is not quantised: what it could be instead
Losses = dict[str, dict[str, object]]  # of each model, by type
log = logging.getLogger("lorekeep")


@dataclass(frozen=True)
class KvLosses:
    """Those of all models, in a file of this folder, which is read again where it is another."""

    folder: Path
    _seen: dict[tuple[int, int], Losses] = field(default_factory=dict)  # the last one, by its inode and time

    def of(self, model: Path, shape: ModelShape) -> dict[str, KvLoss]:
        """By type."""
        try:
            kept = self._read().get(key_of(model, shape), {})
            return {kind: KvLoss.model_validate(one) for kind, one in kept.items()}
        except ValidationError as error:
            log.warning("what types of KV change is measured again: %s", error)
            return {}

    def keep(self, model: Path, shape: ModelShape, kind: str, loss: KvLoss) -> None:
        known, key = self._read(), key_of(model, shape)
        content = {**known, key: {**known.get(key, {}), kind: loss.model_dump()}}
        try:
            write_whole(self.folder / KV_LOSSES, json.dumps(content, indent=1) + "\n")
        except (OSError, SettingsError) as error:
            log.warning("what KV type %s changes was measured and is not kept: %s", kind, error)

    def _read(self) -> Losses:
        file = self.folder / KV_LOSSES
        try:
            found = file.stat()
            stamp = found.st_ino, found.st_mtime_ns
            if stamp not in self._seen:
                self._seen.clear()
                self._seen[stamp] = losses_of(json.loads(file.read_bytes()))
            return self._seen[stamp]
        except (OSError, ValueError):
            return {}


def losses_of(content: object) -> Losses:
    known = content.items() if isinstance(content, dict) else ()
    return {key: kept for key, kept in known if isinstance(kept, dict)}


def key_of(model: Path, shape: ModelShape) -> str:
    """A file may be moved; another one of its name has other weights."""
    return f"{model.name} {shape.weights}"


async def measured(
    client: EngineClient, losses: KvLosses, model: ModelFile, plan: KvPlan, codex: str, ids: bytes
) -> AsyncIterator[KvLossProgress | KvLossEvent]:
    """On the end of a codex's prefix, `ids`. Of the type that is in use where that is quantised.

    Raises InvalidRequest for a type that does not suit the model or too short a prefix, NotReady where there is no room.
    """
    kind = MEASURED if plan.values in FLOATS else plan.values
    if why := misfit(model.shape, KvPlan(kind, kind)):
        raise InvalidRequest(f"KV type {kind} cannot be measured: {why}", "`lore model show` lists those that suit")
    if len(ids) // 4 < LEAST:
        have = f"the prefix of codex {codex} has {len(ids) // 4:,} tokens, and {LEAST} are needed"
        raise InvalidRequest(have, "load a larger folder, and name it with -c")
    try:
        async with aclosing(client.measure_kv(ids[-4 * TOKENS :], kind)) as events:
            async for one in events:
                if one.refusal:
                    raise NotReady(
                        f"KV type {kind} cannot be measured now: {one.refusal}", "`lore status` shows what is held"
                    )
                yield KvLossProgress(event="measuring", kind=kind, done=one.done, total=one.total)
                if one.change is not None:
                    loss = KvLoss.of(one.change, codex=codex)
                    losses.keep(model.path, model.shape, kind, loss)
                    yield KvLossEvent(event="measured", kind=kind, loss=loss)
    except EngineUnavailable as error:
        raise EngineFailed(f"KV type {kind} was not measured: {error}", "ask again", retry_after=2.0) from error
