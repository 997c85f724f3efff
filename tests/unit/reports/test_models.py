"""Whether a model fits, and what the settings cost with it, from its header alone."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from support.wire_shapes import unlike

from governor.footprint import KvPlan
from governor.offload import Offload
from governor.readings import MemoryReading
from governor.settings import GIB, MemorySettings, size
from orchestrator.engine.builtin.files import BUILTINS, ensure
from orchestrator.model.model_file import AtHand, FileHeader, at_hand, chosen, header
from orchestrator.model.offloading import unused_gpu
from orchestrator.reports.models import QUANTISED_ON_CPU, Gpu, LoadingConditions, choices, described, fitting, row
from orchestrator.settings.model import KvType
from orchestrator.wire.models import ModelReport

PLAN = KvPlan(sequences=4)


def here(free=16 * GIB, where="RAM", offload=Offload(PLAN), **given):  # noqa: B008 - frozen
    """The machine of these tests."""
    return LoadingConditions(
        offload, MemoryReading(where, 16 * GIB, free, 0), MemorySettings(), host_free=16 * GIB, **given
    )


@pytest.fixture
def models(tiny_model, tmp_path):
    """A folder with a model, two shards' names, something that is no model, and what was made for an older version."""
    tiny_model("llama").rename(tmp_path / "small.gguf")
    (tmp_path / "big-00002-of-00003.gguf").write_bytes(b"GGUF")
    (tmp_path / "odd.gguf").write_bytes(b"GG")
    (tmp_path / "quoter-0123456789ab.gguf").write_bytes(b"GGUF")
    return tmp_path


def test_every_model_of_the_folder_is_at_hand_once_the_loaded_one_first(models):
    known = at_hand(models, AtHand("/elsewhere/mine.gguf", Path("/elsewhere/mine.gguf")))
    assert [one.id for one in known] == ["/elsewhere/mine.gguf", *BUILTINS, "odd", "small"]
    assert chosen(known, "small.gguf") == chosen(known, "small") == chosen(known, str(models / "small.gguf"))
    loaded = at_hand(models, AtHand("the-setting", models / "small.gguf"))
    assert [one.id for one in loaded].count("small") == 0


def test_a_model_fits_with_its_context_and_a_damaged_file_says_what_is_wrong(models):
    known = at_hand(models, AtHand("builtin:quoter", models / "quoter.gguf"))
    rows = {
        one.id: row(one, header(one.path), here(), loaded=False).model_dump()
        for one in known
        if one.id in ("small", "odd")
    }
    assert rows["small"]["fits"] is True
    assert rows["small"]["words"].startswith("yes, context ")
    assert rows["odd"]["fits"] is False
    assert "odd.gguf" in rows["odd"]["words"]


def test_a_model_that_does_not_fit_says_what_it_needs_and_what_there_is(models):
    one = chosen(at_hand(models, AtHand("builtin:quoter", models / "x")), "small")
    full = row(one, header(one.path), here(free=0), loaded=False).model_dump()
    assert (full["fits"], full["context"]) == (False, None)
    assert "weights and buffers need" in full["words"]


def test_the_page_of_a_model_names_each_kv_type_with_what_it_costs(models):
    one = chosen(at_hand(models, AtHand("builtin:quoter", models / "x")), "small")
    report = described(one, header(one.path), here(), loaded=False).model_dump(mode="json")
    assert unlike(ModelReport, report) == []
    costs = [kind["bytes_per_token"] for kind in report["kv"]["types"].values()]
    assert costs == sorted(costs, reverse=True)
    assert set(report["kv"]["types"]) <= set(get_args(KvType)), "each can be set"
    assert report["kv"]["types"]["f16"]["bytes_per_token"] == report["kv"]["bytes_per_token"]
    assert report["ranges"]["cut"] is True
    assert report["template"]["way"] in ("system", "first_user", "none")


@pytest.mark.parametrize(("architecture", "flash"), [("gemma2", None), ("gemma2", True), ("llama", False)])
def test_memory_that_can_be_cut_is_recognised_from_the_header(tiny_model, architecture, flash):
    path = tiny_model(architecture)
    (known, *_) = at_hand(path.parent, AtHand("mine", path))
    report = described(known, header(path), here(offload=Offload(PLAN, flash=flash)), loaded=True)
    assert report.ranges is not None and report.ranges.cut is True


@pytest.mark.parametrize(
    ("architecture", "flash", "word"),
    [("gemma2", False, "sliding"), ("llama4", None, "sliding"), ("mamba", None, "recurrent")],
)
def test_memory_that_cannot_be_cut_is_recognised_from_the_header(tiny_model, recipes, architecture, flash, word):
    if architecture not in recipes:
        pytest.skip(f"no recipe of {architecture}")
    path = tiny_model(architecture)
    known = at_hand(path.parent, AtHand("mine", path))
    offered = here(offload=Offload(PLAN, flash=flash))
    report = described(known[0], header(path), offered, loaded=True).model_dump(mode="json")
    assert unlike(ModelReport, report) == []
    assert report["ranges"]["cut"] is False
    assert word in report["ranges"]["why"]


def settings_of(tiny_model, plan=PLAN, gpus=(), **changed):
    return {
        one.setting: one
        for one in choices(header(tiny_model("llama")).shape, here(offload=Offload(plan, **changed), gpus=gpus), None)
    }


def test_quantised_values_without_flash_attention_do_not_suit(tiny_model):
    plan = KvPlan("q8_0", "q8_0")
    without = settings_of(tiny_model, replace(plan, flash_attention=False))
    assert without["model.kv_type_v"].suits is False
    assert "need flash attention" in without["model.kv_type_v"].note
    assert settings_of(tiny_model, plan)["model.kv_type_v"].suits is True


def test_quantised_kv_on_a_cpu_is_called_slow_and_on_a_gpu_not(tiny_model):
    plan = KvPlan("q8_0", "f16")
    slow, quick = settings_of(tiny_model, plan), settings_of(tiny_model, plan, (Gpu("GPU", GIB),))
    if slow["model.kv_type_k"].suits:
        assert (slow["model.kv_type_k"].note, quick["model.kv_type_k"].note) == (QUANTISED_ON_CPU, "")
    assert slow["model.kv_type_v"].note != QUANTISED_ON_CPU


def test_layers_for_a_gpu_that_is_not_there_do_not_suit(tiny_model):
    assert settings_of(tiny_model, gpu_layers=5)["model.gpu_layers"].suits is False
    assert settings_of(tiny_model, gpu_layers=-1)["model.gpu_layers"].suits is True


def test_a_context_longer_than_trained_does_not_suit(tiny_model):
    found = settings_of(tiny_model, context=1 << 30)["model.context"]
    assert found.suits is False
    assert "trained for" in found.note


def test_over_two_gpus_each_is_named_with_what_it_takes(models):
    one = chosen(at_hand(models, AtHand("builtin:quoter", models / "x")), "small")
    gpus = (Gpu("big", 24 * GIB), Gpu("small", 8 * GIB))
    report = described(one, header(one.path), here(where="VRAM", gpus=gpus), loaded=False).model_dump(mode="json")
    assert unlike(ModelReport, report) == []
    held = report["memory"]["gpus"]
    assert [gpu["name"] for gpu in held] == ["big", "small"]
    assert (
        sum(gpu["layers"] for gpu in held) == report["memory"]["gpu_layers"] == len(header(one.path).shape.layers) + 1
    )
    assert held[0]["weights"] > held[1]["weights"] > 0
    settings = {one["setting"]: one["costs"] for one in report["settings"]}
    assert settings["model.tensor_split"] == "75%, 25% on 2 GPUs"


def test_what_the_embedding_model_takes_is_not_there_for_another_ones_context(models):
    shape = header(models / "small.gguf").shape
    alone, beside = fitting(shape, PLAN, here()), fitting(shape, PLAN, replace(here(), embedding_bytes=GIB))
    assert beside.budget.kv_hard == alone.budget.kv_hard - GIB


def test_a_model_that_the_embedding_model_leaves_no_room_for_is_refused_with_both_named(models):
    shape = header(models / "small.gguf").shape
    found = fitting(shape, PLAN, replace(here(free=2 * GIB), embedding_bytes=4 * GIB))
    assert found.fits is False
    needed = shape.weights + found.budget.working + 4 * GIB
    assert f"weights, buffers and the embedding model need {size(needed)} and" in found.words
    assert needed > found.budget.ours


def test_grouped_heads_and_the_quantisation_are_told(models):
    one = chosen(at_hand(models, AtHand("builtin:quoter", models / "x")), "small")
    report = described(one, header(one.path), here(), loaded=False).model_dump(mode="json")
    assert unlike(ModelReport, report) == []
    assert (report["heads"], report["kv_heads"], report["quantisation"]) == (4, 2, "F32")


def test_a_model_that_embeds_does_not_fit_because_it_is_none_to_talk_with(tiny_model, tmp_path):
    path = tiny_model("llama", pooling_type=1)
    found = row(at_hand(tmp_path, AtHand("mine", path))[0], header(path), here(), loaded=False).model_dump()
    assert found["fits"] is False
    assert "for embedding.model alone" in found["words"]


def test_a_gpu_that_stands_idle_is_named_unless_the_settings_want_it_so():
    assert "RTX 9 stands idle" in unused_gpu(["RTX 9"], offloads=False, gpu_layers=-1)
    assert unused_gpu(["RTX 9"], offloads=True, gpu_layers=-1) == ""
    assert unused_gpu(["RTX 9"], offloads=False, gpu_layers=0) == ""
    assert unused_gpu([], offloads=False, gpu_layers=-1) == ""


def test_the_built_in_model_that_embeds_is_for_another_setting_and_shows_what_it_is(tmp_path):
    words = chosen(at_hand(tmp_path, AtHand("builtin:quoter", tmp_path / "quoter.gguf")), "builtin:words")
    waiting = row(words, FileHeader(), here(), loaded=False).model_dump()
    assert "embedding.model" in waiting["words"]
    assert "--model" not in waiting["words"]
    before = described(words, FileHeader(), here(), loaded=False).model_dump(mode="json")
    path = ensure("builtin:words", tmp_path)
    made = chosen(at_hand(tmp_path, AtHand("builtin:quoter", tmp_path / "quoter.gguf")), "builtin:words")
    report = described(made, header(path), here(), loaded=False).model_dump(mode="json")
    assert unlike(ModelReport, report) == []
    assert before["embedding"] == report["embedding"] == {"dimensions": 256, "window": 2048}
    assert report["context"] is None
    assert report["memory"]["weights"] == report["bytes"]
    assert report["memory"]["buffers"] > 2 * report["memory"]["weights"]
    assert "kv" not in report


def test_the_page_tells_which_cache_sliding_layers_have_and_what_the_other_would_hold(tiny_model):
    path = tiny_model("gemma3")
    for windows, other in (("full", "small"), ("small", "full")):
        offered = here(offload=Offload(PLAN, windows=windows, on_gpu=True))
        report = described(AtHand("mine", path), header(path), offered, loaded=False)
        (one,) = [one for one in report.settings if one.setting == "model.window_cache"]
        assert (one.value, one.suits, report.ranges.cut) == (windows, True, windows == "full")
        assert one.costs.endswith(f"with {other}")
    assert not [one for one in settings_of(tiny_model) if one == "model.window_cache"]
