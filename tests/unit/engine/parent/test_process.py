"""What a child is started in."""

import pytest

from orchestrator.engine.model import EngineSpec
from orchestrator.engine.parent.process import environment_of


def test_what_the_user_told_the_c_library_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    assert environment_of(EngineSpec("fake"))["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1:glibc.malloc.hugetlb=0"
    monkeypatch.delenv("GLIBC_TUNABLES")
    assert environment_of(EngineSpec("fake"))["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


def test_a_card_that_was_chosen_is_the_only_one_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(EngineSpec("fake"))
    assert environment_of(EngineSpec("fake", gpu="1"))["CUDA_VISIBLE_DEVICES"] == "1"
