"""Whatever stands in a configuration file: it is used, or refused in words that name the file and the key."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.settings import SettingsError, load
from orchestrator.settings.model import Settings
from orchestrator.settings.sources import leaves

KEYS = [key for key, _, _ in leaves(Settings())]
DEEP = "[" * 5000 + "]" * 5000


def toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text(key)} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return text(value) if isinstance(value, str) else str(value)


def text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


words = st.text(st.characters(codec="utf-8"), max_size=12)
plain = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    words,
    st.sampled_from(["auto", "90%", "-5 GB", "1e400", "0x10", "\x00", "../..", "1d", "owner"]),
)
values = st.recursive(
    plain, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)), max_leaves=5
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def refused(file: Path, content: str | bytes) -> str:
    """The words of the refusal; '' where the file can be used."""
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    fault = fault_of(file)
    if fault is None:
        return ""
    assert str(file) in fault.message
    assert fault.hint
    return fault.message


def fault_of(file: Path) -> SettingsError | None:
    try:
        load({}, config=file)
    except SettingsError as fault:
        return fault
    return None


many = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


@many
@given(st.sampled_from(KEYS), values)
def test_a_value_of_any_kind_is_used_or_refused_by_the_name_of_its_key(file: Path, key: str, value: object) -> None:
    table, _, leaf = key.rpartition(".")
    said = refused(file, f"[{table}]\n{leaf} = {toml(value)}\n")
    assert not said or table in said


@many
@given(st.dictionaries(words, values, max_size=4))
def test_tables_that_do_not_exist_are_refused(file: Path, table: dict[str, object]) -> None:
    refused(file, "".join(f"{text(key)} = {toml(value)}\n" for key, value in table.items()))


@many
@given(st.binary(max_size=60))
@example(b"a = 1" + b"0" * 5000)
@example(b"a = " + DEEP.encode())
@example(b"\xff\xfe[\x00m\x00o\x00d\x00e\x00l\x00]\x00")
@example(b"[model]\nthreads = 1\nthreads = 2\n")
@example(b"[model]\n[model]\n")
@example(b'model = 3\n"model.threads" = 2\n')
def test_bytes_of_any_kind_are_used_or_refused(file: Path, raw: bytes) -> None:
    refused(file, raw)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model]\nthreads = 1\nthreads = 2\n", "line 3"),
        ("[model]\nthreads = 1" + "0" * 5000, "digits"),
        ("[model]\nthreads = " + DEEP, "nested too deeply"),
        ("[model]\nthreads = 99999999999999999999999999\n", "model.threads"),
        ("[model]\nthreads = 1979-05-27\n", "model.threads"),
        ("[serve]\nshutdown_grace = nan\n", "serve.shutdown_grace"),
        ('[model]\npath = "a\\u0000b"\n', "model.path"),
        ('[serve]\nsocket = "a\\u0000b"\n', "serve.socket"),
        ("[strategy]\nhybrid_share = [0.5]\n", "strategy.hybrid_share"),
    ],
)
def test_what_cannot_be_used_is_named(file: Path, text: str, words: str) -> None:
    assert words in refused(file, text)


@pytest.mark.parametrize("text", [DEEP, "[1" + "0" * 5000 + "]", '["a\\u0000b"]', "{"])
def test_a_variable_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="LORE_MODEL__TENSOR_SPLIT"):
        load({"LORE_MODEL__TENSOR_SPLIT": text, "HOME": "/nonexistent"})
