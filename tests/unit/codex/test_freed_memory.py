"""Giving memory back is a courtesy: the C library is asked for all of it, and it never fails."""

import ctypes
from types import SimpleNamespace

import pytest

from codex.process_memory import give_back, give_back_at_once


def test_the_c_library_is_asked_to_give_back_all_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=kept.append))
    give_back()
    assert kept == [0]


def test_what_is_in_use_stays() -> None:
    kept = [bytes([number]) * 100_000 for number in range(100)]
    give_back()
    assert all(block == bytes([number]) * 100_000 for number, block in enumerate(kept))


def test_the_c_library_is_told_to_keep_no_large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    mallopt = lambda *option: told.append(option)  # noqa: E731
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    give_back_at_once()
    assert told == [(-3, 1 << 20)]


def test_a_c_library_without_the_call_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    give_back()
    give_back_at_once()
