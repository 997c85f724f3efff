"""What is no model to talk with is refused by its header, with what it is and what to do."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from formatters.template import Placement, Way
from governor.footprint import KvPlan
from governor.offload import Offload
from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.model.model_file import find_model, lying_at, setting_of
from orchestrator.model.offloading import noted, suited, usable

PLAIN = Offload(KvPlan())


def refused(path) -> tuple[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        find_model(str(path), Path("/nonexistent"))
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.3, 0.7, 0.999])
def test_a_file_cut_off_anywhere_is_refused_with_its_name(tiny_model, tmp_path, share):
    whole = tiny_model("llama").read_bytes()
    path = tmp_path / "short.gguf"
    path.write_bytes(whole[: int(len(whole) * share)])
    message, hint = refused(path)
    assert message.startswith(f"{path} cannot be used as a model: ")
    assert "--model" in hint


@pytest.mark.parametrize(
    ("architecture", "keys", "words"),
    [
        ("llama", {"pooling_type": 1}, "embedding model"),
        ("llama", {"pooling_type": 4}, "ranking model"),
        ("bert", {}, "embedding model"),
        ("clip", {}, "image part"),
    ],
)
def test_a_model_for_something_else_says_for_what(tiny_model, architecture, keys, words):
    message, hint = refused(tiny_model(architecture, "llama", **keys))
    assert words in message
    assert hint


def test_a_file_that_nobody_may_read_is_refused_with_the_command(tiny_model):
    path = tiny_model("llama")
    path.chmod(0)
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    message, hint = refused(path)
    assert "Permission denied" in message
    assert f"chmod a+r {path}" in hint


def test_a_folder_a_device_and_a_loop_of_links_are_no_files(tmp_path):
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    for path in (tmp_path, Path("/dev/null"), tmp_path / "loop.gguf"):
        message, _ = refused(path)
        assert str(path) in message


# -- settings beside a model


@pytest.fixture
def model(tiny_model):
    return find_model(str(tiny_model("llama")), Path("/nonexistent"))


def test_a_model_without_chat_template_answers_and_says_how(model):
    assert "plain role lines stand in" in suited(model, PLAIN, 0).notice
    templated = replace(model, placement=Placement(Way.SYSTEM))
    assert suited(templated, PLAIN, 0).notice == ""


def test_what_loading_would_fail_with_is_refused_with_what_to_set_instead(model):
    with pytest.raises(InvalidRequest, match=r"model\.context cannot be used with .*trained for") as caught:
        suited(model, replace(PLAIN, context=1 << 30), 0)
    assert caught.value.hint == f"set model.context = {model.shape.trained} or auto"


def test_what_does_nothing_is_said_beside_what_was_said_before(model):
    assert "model.gpu_layers has no effect" in suited(noted(model, "before"), replace(PLAIN, gpu_layers=3), 0).notice
    assert suited(noted(model, "before"), PLAIN, 0).notice.startswith("before; ")


def test_gpus_count_where_the_engine_can_use_them():
    assert usable(2, offloads=False, named="") == 0
    assert usable(2, offloads=True, named="") == 2
    assert usable(2, offloads=True, named="1") == 1
    assert usable(0, offloads=True, named="") is None


def test_a_file_that_is_written_to_or_replaced_has_changed(model):
    assert model.changed() is False
    with model.path.open("ab") as file:
        file.write(b"\0")
    assert model.changed() is True
    model.path.unlink()
    assert model.changed() is True


def test_the_home_of_nobody_holds_no_model(tmp_path):
    assert refused("~nobody-of-that-name/x.gguf")[0] == "there is no model file ~nobody-of-that-name/x.gguf"
    with pytest.raises(InvalidRequest, match="there is no model file ~nobody-of-that-name/x"):
        setting_of("~nobody-of-that-name/x", tmp_path)
    with pytest.raises(NotFound, match="no model nobody"):
        setting_of("nobody", tmp_path)


def test_the_file_is_named_once(tmp_path):
    path = tmp_path / "rand.gguf"
    path.write_bytes(b"J\xaf\x12\x33" + bytes(60))
    message = refused(path)[0]
    assert message == f"{path} cannot be used as a model: is no GGUF: it begins with 4a af 12 33 at byte 0"


def test_at_a_path_that_no_file_can_have_lies_no_model(tmp_path):
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    there = lying_at(str(tmp_path / "one.gguf"))
    assert there is not None
    assert there.path == tmp_path / "one.gguf"
    assert [lying_at(path) for path in ("/" + "x" * 5_000, "/a\0b", str(tmp_path), "one.gguf")] == [None] * 4
