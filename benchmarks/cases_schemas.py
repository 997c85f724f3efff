"""Answers that fit schemas: how many real schemas are taken, and whether what is said, or could be said, fits them.

`--schemas PATH` names a checkout of guidance-ai/jsonschemabench or of json-schema-org/JSON-Schema-Test-Suite; it may be
given for both, and neither is in this repository. The judge is the package `jsonschema[format]`, which is no dependency of
the product either: install it beside the benchmark.

A valid instance may be refused by design: it has properties that the schema does not name, or is of another type than its
keywords are about. It is judged by the schema as the door reads it, and is spelt as that schema has it: properties in its
order, its own constants, whole numbers without a fraction. A schema can say itself that it takes either (`said_out`).
Times are those of the one thread that computes them, so that other work on the machine counts little.
"""

import importlib
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import unquote

import llama_cpp
import numpy as np
from answers import Refused
from cases_engine import Bench
from numpy.typing import NDArray
from report import Row, at_most
from shaped_models import vocabulary_path

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.llama import native
from orchestrator.engine.llama.grammars import Constraint, Grammars
from orchestrator.engine.llama.sampler import LlamaSampler
from orchestrator.engine.llama.schema import ABOUT, KINDS, UNFORESEEN, read, with_inner
from orchestrator.engine.messages import Sampling
from orchestrator.engine.vocab import Vocabulary

VOCABULARY = "qwen2"  # 151,936 words
HARD = "Github_hard"
LEAST_TAKEN = 45.0  # of 100 hard ones; llama.cpp takes 39, Guidance 41
DRAFTS = ("draft2020-12", "draft7")
GENERATED, MOST_TOKENS, ROWS = 2_000, 250, 64
ENDS_AFTER = 40  # tokens, from which on an answer likes to come to its end
DEEPEST = 40


@dataclass(frozen=True)
class Tried:
    """Instances by whether the schema takes them, as `jsonschema` and the file judge them."""

    name: str
    schema: Any
    instances: Sequence[tuple[Any, bool]]


def cases(folders: Sequence[Path] = ()) -> dict[str, Callable[[Bench], Iterator[Row]]]:
    """Without a folder there is none."""
    found: dict[str, Callable[[Bench], Iterator[Row]]] = {}
    if corpus := next((folder for folder in folders if (folder / "data").is_dir()), None):
        found = {"schemas taken": partial(taken, corpus), "schemas and random answers": partial(answers, corpus)}
    return {**found, **({"schemas and instances": partial(instances, folders)} if folders else {})}


class Model:
    """A vocabulary in llama.cpp without weights, and what compiles for it."""

    def __init__(self) -> None:
        native.start()
        settings = llama_cpp.llama_model_default_params()
        settings.vocab_only = True
        path = vocabulary_path(VOCABULARY)
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), settings)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.grammars, self.vocabulary = Grammars(vocabulary), Vocabulary(self.model)
        self.end, self.words = llama_cpp.llama_vocab_eos(vocabulary), llama_cpp.llama_vocab_n_tokens(vocabulary)
        self.grammars.constraint("{}")  # makes the tokenizer

    def takes(self, schema: str, text: str) -> bool:
        constraint = self.grammars.constraint(schema)
        with suppress(SchemaRefused):  # by a limit
            for token in self.vocabulary.content(text):
                if not constraint.allows(token):
                    return False
                constraint.accept(token)
            return bool(constraint.mask()[self.end])
        return False


# -- how many are taken


def taken(corpus: Path, bench: Bench) -> Iterator[Row]:
    del bench
    model, every, all_ms = Model(), Counter[bool](), list[float]()
    for folder in sorted((corpus / "data").iterdir()):
        found = Counter[bool]()
        for path in folder.glob("*.json"):
            schema = json.dumps(json.loads(path.read_bytes()))  # as the API hands it over
            began = time.thread_time()
            found[compiles(model, schema)] += 1
            all_ms.append(1000 * (time.thread_time() - began))
        every += found
        goal = (f"≥ {LEAST_TAKEN:g} of 100", share(found) >= LEAST_TAKEN) if folder.name == HARD else ("", None)
        yield Row(f"schemas, {folder.name}, {found.total():,}", "taken", share(found), None, "of 100", None, *goal)
    yield Row(f"schemas, all {every.total():,}", "taken", share(every), unit="of 100")
    yield Row("a schema", "read and compiled, median", median(all_ms), unit="ms")
    yield at_most("a schema", "read and compiled, 95 of 100", float(np.quantile(all_ms, 0.95)), 5, "ms")
    yield Row("a schema", "read and compiled, longest", max(all_ms), unit="ms")


def compiles(model: Model, schema: str) -> bool:
    try:
        model.grammars.constraint(schema)
    except SchemaRefused:
        return False
    return True


def share(found: Counter[bool]) -> float:
    return 100 * found[True] / max(1, found.total())


# -- instances


def instances(folders: Sequence[Path], bench: Bench) -> Iterator[Row]:
    del bench
    model, judge = Model(), Judge()
    for folder in folders:
        found, wrong = Counter[str](), list[str]()
        for tried in tried_in(folder):
            schema = json.dumps(tried.schema)
            if compiles(model, schema):
                for value, valid in tried.instances:
                    said = outcome(model, judge, schema, value, valid=valid)
                    found[said] += 1
                    wrong += [f"{said}: {tried.name}: {json.dumps(value)[:80]}"] if said in WRONG else []
        print("\n".join(wrong))
        name = f"instances of {folder.name}"
        yield Row(name, "valid ones that are taken", found["taken"], unit="instances")
        for cause in CAUSES:
            yield Row(name, f"valid ones that are left out: {cause}", found[cause], unit="instances")
        yield at_most(name, "valid ones that are refused", found["valid, refused"], 0, "instances")
        yield Row(name, "invalid ones that are refused", found["refused"], unit="instances")
        yield at_most(name, "invalid ones that are taken", found["invalid, taken"], 0, "instances")


WRONG = ("valid, refused", "invalid, taken")
NAMES, TYPES = "taken where the schema says additionalProperties: true", "taken where it says all types too"
CAUSES = (NAMES, TYPES, "otherwise")
ANY_TYPE = ["object", "array", "string", "number", "boolean", "null"]


def tried_in(folder: Path) -> Iterator[Tried]:
    for path in sorted((folder / "maskbench" / "data").glob("*.json")):
        given = json.loads(path.read_bytes())
        yield Tried(path.name, given["schema"], [(one["data"], one["valid"]) for one in given["tests"]])
    for draft in DRAFTS:
        place = folder / "tests" / draft
        for path in sorted([*place.glob("*.json"), *place.glob("optional/format/*.json")]):
            for given in json.loads(path.read_bytes()):
                found = [(one["data"], one["valid"]) for one in given["tests"]]
                yield Tried(f"{draft}/{path.name}", given["schema"], found)


def outcome(model: Model, judge: "Judge", schema: str, value: Any, *, valid: bool) -> str:
    """Which words stand for it in the figures."""
    if model.takes(schema, json.dumps(value, ensure_ascii=False)):
        return "taken" if valid else "invalid, taken"
    if not valid:
        return "refused"
    closely = read(schema)
    if not judge.fault(closely, value):
        return "taken" if model.takes(schema, as_read(judge, closely, value)) else "valid, refused"
    for cause, types in ((NAMES, False), (TYPES, True)):
        said = json.dumps(said_out(json.loads(schema), types=types))
        if compiles(model, said) and model.takes(said, as_read(judge, read(said), value)):
            return cause
    return "otherwise"


def as_read(judge: "Judge", closely: Any, value: Any) -> str:
    return json.dumps(judge.spelt(value, closely, closely), ensure_ascii=False)


def said_out(given: Any, *, types: bool) -> Any:
    """A schema that says itself that an object may have other properties, and of which `types` what it is about may be."""
    if isinstance(given, list):
        return [said_out(one, types=types) for one in given]
    if not isinstance(given, dict):
        return given
    words = with_inner(given, partial(said_out, types=types))
    about = [kind for kind, keywords in ABOUT.items() if not words.keys().isdisjoint(keywords)]
    other = {"additionalProperties": True} if "properties" in words else {}
    return {**({"type": ANY_TYPE} if types and about and words.keys().isdisjoint(KINDS) else {}), **other, **words}


class Judge:
    """The package `jsonschema`. Raises Refused where it is not installed."""

    def __init__(self) -> None:
        try:
            self._library: Any = importlib.import_module("jsonschema")
        except ModuleNotFoundError as error:
            raise Refused("the judge is not there: pip install 'jsonschema[format]'") from error
        self._unresolvable = importlib.import_module("referencing.exceptions").Unresolvable

    def fault(self, schema: Any, value: Any) -> str | None:
        """The keyword that the value breaks; empty where it breaks none, None where the judge cannot read the schema."""
        kind = self._library.validators.validator_for(schema, default=self._library.Draft202012Validator)
        try:
            errors = kind(schema, format_checker=kind.FORMAT_CHECKER).iter_errors(value)
            found = self._library.exceptions.best_match(errors)
        except (self._unresolvable, re.error, *UNFORESEEN):
            return None
        return str(found.validator) if found is not None else ""

    def spelt(self, value: Any, inside: Any, root: Any, depth: int = 0) -> Any:
        """An equal value, with its properties in the order in which the schema names them."""
        if not isinstance(inside, Mapping) or depth > DEEPEST:
            return whole(value)
        constants = [inside["const"]] if "const" in inside else inside.get("enum", ())
        value = next((one for one in constants if not self.fault({"const": one}, value)), value)
        if "$ref" in inside:
            value = self.spelt(value, found(root, inside["$ref"]), root, depth + 1)
        places = {key: root[key] for key in ("$defs", "definitions") if key in root}
        either = [*inside.get("anyOf", ()), *inside.get("oneOf", ())]
        fitting = [one for one in either if one is True or not self.fault({**places, **one}, value)][:1]
        for one in (*fitting, *reversed(inside.get("allOf", ()))):  # the first of them gives the order
            value = self.spelt(value, one, root, depth + 1)
        if isinstance(value, list):
            first, rest = inside.get("prefixItems", ()), inside.get("items", True)
            within = [*first, *(rest for _ in value[len(first) :])]
            return [self.spelt(one, part, root, depth + 1) for one, part in zip(value, within, strict=False)]
        if isinstance(value, dict):
            named, others = inside.get("properties", {}), inside.get("additionalProperties", True)
            names = [*(name for name in named if name in value), *(name for name in value if name not in named)]
            return {name: self.spelt(value[name], named.get(name, others), root, depth + 1) for name in names}
        return whole(value)


def whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def found(root: Any, reference: str) -> Any:
    for name in reference.split("/")[1:]:
        name = unquote(name).replace("~1", "/").replace("~0", "~")
        root = root[int(name)] if isinstance(root, list) else root[name]
    return root


# -- answers on random logits


class Timed(Constraint):
    """Another constraint; `masks_ms` gets the milliseconds of its masks."""

    def __init__(self, inner: Constraint, masks_ms: list[float]) -> None:
        self._inner = inner
        self.spelled = inner.spelled
        self._masks_ms = masks_ms
        self.allows, self.forced, self.accept = inner.allows, inner.forced, inner.accept  # type: ignore[method-assign]

    def mask(self) -> NDArray[np.bool_]:
        began = time.thread_time()
        found = self._inner.mask()
        self._masks_ms.append(1000 * (time.thread_time() - began))
        return found


class Talker:
    """Says what random logits would, and from some token on likes to close what is open."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._draw = np.random.default_rng(5)
        self._rows = self._draw.standard_normal((ROWS, model.words)).astype(np.float32)
        closing = [model.vocabulary.content(text)[0] for text in ('"', "}", "]", '"}', '"]', "}}")]
        self._closing = [*closing, model.end]
        self.masks_ms, self.rejected_ms = list[float](), list[float]()

    def said(self, schema: str, sampling: Sampling) -> str | None:
        """A whole answer; None where it does not come to its end."""
        constraint = Timed(self._model.grammars.constraint(schema), self.masks_ms)
        sampler, ids = LlamaSampler(sampling, self._model.model, constraint), list[int]()
        try:
            for number in range(MOST_TOKENS):
                logits = self._rows[self._draw.integers(ROWS)].copy()
                logits[self._closing] += 12.0 if number > ENDS_AFTER else 2.0
                masks, began = len(self.masks_ms), time.thread_time()
                token, _ = sampler.choose(logits)
                if len(self.masks_ms) > masks:
                    self.rejected_ms.append(1000 * (time.thread_time() - began))
                if token == self._model.end:
                    return self._model.vocabulary.text(ids).decode()
                sampler.accept(token)
                ids.append(token)
        finally:
            sampler.close()
        return None


def answers(corpus: Path, bench: Bench) -> Iterator[Row]:
    del bench
    model, judge, judged, begun, refused, unread, wrong = Model(), Judge(), 0, 0, 0, 0, 0
    talker, draw = Talker(model), random.Random(7)
    paths = sorted((corpus / "data").glob("*/*.json"))
    while judged < GENERATED:
        schema = json.loads(draw.choice(paths).read_bytes())
        if not compiles(model, json.dumps(schema)):
            continue
        begun += 1
        try:
            said = talker.said(json.dumps(schema), Sampling(temperature=float(begun % 2), seed=begun))
        except SchemaRefused:
            refused += 1
            continue
        if said is None:
            continue
        fault = judge.fault(schema, json.loads(said))
        judged, unread = judged + (fault is not None), unread + (fault is None)
        if fault:
            wrong += 1
            print(f"{fault}: {said[:200]!r} of {json.dumps(schema)[:200]}")
    name = f"{judged:,} random answers of {begun:,}, 152k words"
    yield at_most(name, "do not fit, by jsonschema", wrong, 0, "answers")
    yield Row(name, "more, to schemas that jsonschema cannot read", unread, unit="answers")
    yield Row(name, "were refused while they were said", refused, unit="answers")
    yield at_most(name, "the mask, median", median(talker.masks_ms), 0.5, "ms")
    yield Row(name, "the mask, 99 of 100", float(np.quantile(talker.masks_ms, 0.99)), unit="ms")
    yield at_most(name, "a token whose first draw was rejected, median", median(talker.rejected_ms), 2, "ms")
    yield Row(name, "the same, 99 of 100", float(np.quantile(talker.rejected_ms, 0.99)), unit="ms")
