"""Which real models are worth their download on this machine: a table of published ones, and what fits here.

    recommended.toml ─▶ Published ─▶ shape ─▶ what it is granted here ─▶ AdvisedModel, the best first

The table is data, checked on a date. A model's window is planned by the same code as that of a file at hand, from the shape
that its makers publish, so it can differ a little from what its header says. Loads nothing and fetches nothing.
"""

import tomllib
from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from governor.architectures import SLIDING
from governor.model_shape import Layer, ModelShape
from governor.settings import size
from orchestrator.model.conditions import LoadingConditions, conditions_here
from orchestrator.reports.models import Fitting, fitting
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
from orchestrator.wire.models import AdvisedModel, ModelAdvice

MOST = 3  # of these somebody can choose without reading a page
# A smaller window holds a map of most codebases and little else: the codebase itself is what a floor is for.
WORTHWHILE = 32_000  # tokens
# Billions of parameters that a token passes through: on a few cores more of them read a codebase for hours.
MOST_ON_CPU = 4.1
MOST_OF_RAM = 0.5  # of what may be ours; the rest is for KV, and for the programs that the machine is there for
# Bytes of one weight of an embedding in Q4_K; an output in Q6_K has more, which the layers are then short of.
Q4_K = 9 / 16


class Published(BaseModel):
    """One row of recommended.toml, where each field is explained."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    parameters: float
    active: float
    licence: str
    repository: str
    file: str
    bytes: int
    sha256: str = ""
    architecture: str
    layers: int
    heads: int
    kv: tuple[int, int]
    width: tuple[int, int, int]
    trained: int
    window: int = 0
    tied: bool = False

    @property
    def source(self) -> str:
        """As `lore model get` takes it."""
        return f"hf:{self.repository}/{self.file}"

    @property
    def page(self) -> str:
        """Where a person reads of it."""
        return f"https://huggingface.co/{self.repository}"

    @property
    def shape(self) -> ModelShape:
        kv_heads, head = self.kv
        embedding, feed_forward, vocabulary = self.width
        table = int(vocabulary * embedding * Q4_K)
        outputs = 0 if self.tied else table
        each, wide = (self.bytes - table - outputs) // self.layers, kv_heads * head
        return ModelShape(
            architecture=self.architecture,
            name=self.title,
            trained=self.trained,
            embedding=embedding,
            heads=self.heads,
            kv_heads=kv_heads,
            vocabulary=vocabulary,
            feed_forward=feed_forward,
            layers=tuple(Layer(each, wide, wide, head, head, slides=self._slides(at)) for at in range(self.layers)),
            window=self.window,
            compressed=False,
            input=table,
            output=outputs,
            tied=self.tied,
            by_type={},
            unpredictable=None,
        )

    def _slides(self, at: int) -> bool:
        period = SLIDING[self.architecture].period if self.window else None
        return period is not None and at % period != period - 1


class PublishedModels(BaseModel):
    """recommended.toml: `checked` is the date on which it was compared with what is published; the smallest first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    checked: date
    models: tuple[Published, ...]


@cache
def table() -> PublishedModels:
    text = files(__package__).joinpath("recommended.toml").read_text(encoding="utf-8")
    return PublishedModels.model_validate(tomllib.loads(text))


def published() -> tuple[Published, ...]:
    return table().models


# -- for one machine


def advice_here(settings: Settings, paths: Paths, begun: Callable[[str], bool]) -> ModelAdvice:
    """Those come first whose download has `begun`, by their source: it was chosen before."""
    here = conditions_here(settings, paths)
    models = sorted(recommended(published(), here), key=lambda one: not begun(one.source))
    return ModelAdvice(machine=machine(here), models=tuple(models))


def machine(here: LoadingConditions) -> str:
    """`card A: 23.6 GiB of VRAM free`, or the RAM where nothing goes on a GPU."""
    if here.memory is None:
        return "how much memory there is cannot be read"
    if len(here.gpus) > 1:
        return ", ".join(f"{gpu.name}: {size(gpu.free)} of VRAM free" for gpu in here.gpus)
    of = "" if here.memory.free is None else f"{size(here.memory.free)} of "
    free = f"{of}{size(here.memory.total)} of {here.memory.where} free"
    if here.memory.where == "RAM":
        return f"{free}, no GPU that llama.cpp can use"
    return ": ".join([*(gpu.name for gpu in here.gpus), free])


def recommended(known: Sequence[Published], here: LoadingConditions) -> tuple[AdvisedModel, ...]:
    """At most MOST of those that fit whole and are quick enough, the best first.

    1. A model of which layers stay on the CPU beside a GPU is left out: each token waits for them.
    2. On a CPU alone those are left out that pass a token through too many parameters, or take most of the RAM.
    3. Those with a worthwhile window come first; of equal ones the larger.
    4. Where none is left, the smallest that can be loaded at all.
    """
    fits = [(one, found) for one in known if (found := _fitting(one, here)).fits]
    suited = [(one, found) for one, found in fits if _suits(one, found)]
    best = sorted(suited, key=lambda pair: (_is_worthwhile(pair[1]), pair[0].parameters), reverse=True)
    return tuple(_advised(one, found) for one, found in (best or fits[:1])[:MOST])


def _fitting(one: Published, here: LoadingConditions) -> Fitting:
    suited = here.for_model(Path(one.file), one.shape)
    return fitting(one.shape, suited.offload.plan, suited)


def _suits(one: Published, found: Fitting) -> bool:
    budget = found.budget
    if budget is None:
        return False
    if budget.where == "RAM":
        return one.active <= MOST_ON_CPU and one.bytes <= MOST_OF_RAM * budget.ours
    return budget.gpu_layers == budget.layers


def _is_worthwhile(found: Fitting) -> bool:
    return (found.context or 0) >= WORTHWHILE


def _advised(one: Published, found: Fitting) -> AdvisedModel:
    return AdvisedModel.of(one, window=found.context or 0, words=found.words)
