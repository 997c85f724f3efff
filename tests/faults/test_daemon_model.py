"""A running daemon changes its model: what was computed stays on disk; what cannot be used leaves the old one standing."""

import http.client
import json
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest
from private_daemon import PrivateDaemon
from support.house import (
    ask,
    begun,
    blocks,
    cached_whole,
    codebase,
    counters,
    engine_child,
    first_words,
    living,
    reply,
    shown,
    until,
)
from support.refusals import refusal


class Local(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def put(daemon: PrivateDaemon, model: object) -> tuple[int, dict]:
    connection = Local(daemon.socket)
    connection.request("PUT", "/v1/model", json.dumps({"model": str(model)}))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def told(daemon: PrivateDaemon, model: object) -> list[dict]:
    """All events of a change that is watched."""
    connection = Local(daemon.socket)
    connection.request("PUT", "/v1/model", json.dumps({"model": str(model), "stream": True}))
    lines = connection.getresponse().read().decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


@pytest.fixture(scope="module")
def house(models):
    """A daemon on the quoting model that holds the codex `vaults`."""
    with living(models, "[serve]\nshutdown_grace = 1\n[model]\ncontext = 100000\n") as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


@pytest.fixture(autouse=True)
def quoting(house):
    """Each test begins and ends with the quoting model answering."""
    assert put(house, "builtin:quoter")[0] == 200
    yield
    assert put(house, "builtin:quoter")[0] == 200
    assert ask(house, "zebra")["answer"].strip().startswith("4815162")


def without(model: Path, path: Path, tensor: str, trained: int | None = None) -> Path:
    """The model without one of its tensors: a whole file that llama.cpp refuses. `trained`: for another context."""
    reader, writer = gguf.GGUFReader(model), gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            value = trained if trained and field.name.endswith(".context_length") else field.contents()
            writer.add_key_value(field.name, value, kind, inner)
    for one in reader.tensors:
        if one.name != tensor:
            writer.add_tensor(one.name, np.array(one.data), raw_dtype=one.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_floor_of_a_model_that_is_taken_again_comes_from_disk_instead_of_being_computed(house):
    ask(house, "walrus")
    before = engine_child(house)
    status, changed = put(house, "builtin:noise-s")
    assert (status, changed["changed"], changed["model"]["name"]) == (200, True, "builtin:noise-s")
    assert [floor["name"] for floor in changed["cold"]] == ["vaults"]
    assert house.json("ask", "hello", "--max-tokens", "2")["lore"]["model"] == "builtin:noise-s"
    assert engine_child(house) != before
    assert not Path(f"/proc/{before}").exists(), "the old engine has ended"

    assert put(house, "builtin:quoter")[1]["changed"] is True
    answer = ask(house, "zebra")
    assert answer["answer"].strip().startswith("4815162")
    assert cached_whole(answer["lore"], "identity", "codex")
    own = sum(blocks(answer["lore"])[kind]["tokens"] for kind in ("environment", "karma", "state", "query"))
    found = counters(house)
    assert found["tier_disk_hits"] > 0
    assert found["computed_tokens"] <= own + answer["usage"]["completion_tokens"], "nobody computed the floor"


def test_who_watches_a_change_sees_each_of_its_steps_until_every_codex_is_raised(house):
    events = told(house, "builtin:noise-s")
    phases = list(dict.fromkeys(event.get("phase", "changed") for event in events))
    assert phases == ["checking", "stopping", "loading", "changed", "raising"]
    (changed,) = [event for event in events if event["event"] == "changed"]
    assert (changed["model"]["name"], changed["changed"]) == ("builtin:noise-s", True)
    assert (events[-1]["done"], events[-1]["total"]) == (1, 1)
    assert shown(house, "vaults")["tier"] == "full"
    assert [event["event"] for event in told(house, "builtin:noise-s") if "phase" not in event] == ["changed"]


def test_who_watches_a_change_that_fails_sees_the_way_back_and_the_reason(house, quoter_model):
    path = without(quoter_model, house.folder / "steps.gguf", "output_norm.weight")
    *steps, fault = told(house, path)
    assert [step["phase"] for step in steps][-1] == "loading the model before"
    assert "output_norm" in fault["error"]["message"]


def test_what_show_predicts_of_kv_is_what_the_engine_holds(house):
    for name in ("builtin:noise-s", "builtin:quoter"):
        put(house, name)
        house.json("ask", "hello", "--max-tokens", "1")
        shown = house.json("model", "show")["model"]
        assert shown["id"] == name
        pools = reply(house, "/v1/status")["engine"]["pools"]
        assert {pool["bytes"] for pool in pools} == {shown["kv"]["bytes_per_token"] * pool["size"] for pool in pools}


def test_a_session_goes_on_with_the_model_that_is_there(house):
    name = house.json("ask", "The access code of vault walrus is 1234.", "--max-tokens", "2")["lore"]["session"]
    put(house, "builtin:noise-s")
    turns = house.json("session", "show", name)["session"]["turns"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"]
    assert house.json("ask", "again", "-s", name, "--max-tokens", "2")["lore"]["session"] == name


def test_an_answer_that_outlasts_the_change_ends_with_a_fault_that_may_be_tried_again(house):
    put(house, "builtin:noise-s")
    long = begun(house, "ask", "count", "-c", "none", "--max-tokens", "100000", "--temperature", "1")
    first_words(long)
    assert put(house, "builtin:quoter")[0] == 200
    _, said = long.communicate(timeout=60)
    assert long.returncode == 1
    assert "ask again" in said


def test_a_change_leaves_no_file_open_behind(house):
    def files():
        ask(house, "zebra")
        return len([*Path(f"/proc/{house.process.pid}/fd").iterdir()])

    before = files()
    put(house, "builtin:noise-s")
    put(house, "builtin:quoter")
    until(lambda: files() <= before)


def test_a_file_that_was_replaced_under_its_name_is_another_model(house, models, quoter_model):
    place = house.folder / "mine.gguf"
    shutil.copy(quoter_model, place)
    assert put(house, place)[1]["changed"] is True
    assert put(house, place)[1]["changed"] is False
    assert ask(house, "zebra")["answer"].strip().startswith("4815162")
    other = without(quoter_model, house.folder / "other.gguf", "none of them")
    other.replace(place)
    assert put(house, place)[1]["changed"] is True
    assert ask(house, "zebra")["answer"].strip().startswith("4815162")
    assert counters(house)["tier_damaged"] == 0


# -- what cannot be used


def bad_files(folder: Path, model: Path) -> dict[str, Path]:
    whole = model.read_bytes()

    def written(name: str, content: bytes) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    folder.mkdir()
    return {
        "is no GGUF: 0 bytes": written("empty.gguf", b""),
        "is no GGUF: it begins with": written("foreign.gguf", b"PK\x03\x04" + whole[4:]),
        "is cut off": written("short.gguf", whole[: len(whole) // 2]),
        "at byte": written("shorter.gguf", whole[:100]),
        "is not a file": folder,
        "no model": folder / "missing.gguf",
    }


def test_a_file_that_is_no_model_is_refused_everywhere_and_the_daemon_keeps_its_own(house, quoter_model):
    child = engine_child(house)
    for words, path in bad_files(house.folder / "bad", quoter_model).items():
        status, answer = put(house, path)
        assert status in (400, 404), (words, answer)
        assert words in answer["error"]["message"]
        assert answer["error"]["hint"]
        assert words in refusal(house.lore("model", "use", path), 2)
    assert engine_child(house) == child
    assert "path" not in (house.folder / "config" / "lorekeep" / "config.toml").read_text()


def test_a_whole_file_that_llama_cpp_refuses_gives_its_reason_and_the_old_model_answers_again(house, quoter_model):
    path = without(quoter_model, house.folder / "hollow.gguf", "output_norm.weight")
    status, answer = put(house, path)
    assert status == 400
    assert "output_norm" in answer["error"]["message"]
    assert "builtin:quoter answers again" in answer["error"]["hint"]
    assert reply(house, "/v1/status")["model"]["name"] == "builtin:quoter"


def test_the_model_that_runs_is_the_users_choice_once_it_was_chosen(models, quoter_model):
    with living(models) as daemon:
        assert "no model is configured" in reply(daemon, "/v1/status")["model"]["notice"]
        assert put(daemon, "builtin:quoter")[1]["changed"] is False
        status, answer = put(daemon, without(quoter_model, daemon.folder / "hollow.gguf", "output_norm.weight"))
        assert (status, "builtin:quoter answers again" in answer["error"]["hint"]) == (400, True)
        assert "no model is configured" not in reply(daemon, "/v1/status")["model"]["notice"]


def test_a_part_of_a_model_without_the_others_names_what_is_missing(house, quoter_model):
    path = house.folder / "big-00001-of-00002.gguf"
    reader = gguf.GGUFReader(quoter_model)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.count", 2)
    writer.add_uint16("split.no", 0)
    writer.add_tensor("token_embd.weight", np.array(reader.tensors[0].data))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    for words in (put(house, path)[1]["error"], {"message": refusal(house.lore("model", "use", path), 2), "hint": ""}):
        assert "big-00002-of-00002.gguf" in words["message"] + words["hint"]


def test_two_changes_at_once_are_one_and_a_conflict(house):
    with ThreadPoolExecutor(2) as both:
        answers = sorted(status for status, _ in both.map(lambda _: put(house, "builtin:noise-s"), range(2)))
    assert answers == [200, 409]


def test_a_model_that_the_settings_do_not_suit_is_refused_everywhere_and_the_daemon_keeps_its_own(
    house, tmp_path, quoter_model
):
    narrow = without(quoter_model, tmp_path / "narrow.gguf", "none of them", trained=50_000)
    child = engine_child(house)
    status, answer = put(house, narrow)
    assert (status, answer["error"]["hint"]) == (400, "set model.context = 50000 or auto")
    assert "trained for (50,000)" in answer["error"]["message"]
    assert "trained for (50,000)" in refusal(house.lore("model", "use", narrow), 2)
    places = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    wrong = {**places, "LORE_MODEL": str(narrow)}
    assert "trained for (50,000)" in refusal(house.lore("serve", "--socket", tmp_path / "s", environment=wrong), 2)
    assert engine_child(house) == child
