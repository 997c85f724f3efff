"""What stands in for a model where servers compute: their URLs, and the key that they are sent."""

import logging
import os

import pytest

from orchestrator.engine.model import RemoteSpec
from orchestrator.errors import SettingsError
from orchestrator.model.remote import remote_of
from orchestrator.settings.sources import load

URL = "http://gpu:8000/v1"


def remote(variables, **more):
    settings = load({"XDG_CONFIG_HOME": "/nowhere", **variables}).settings
    return remote_of(settings, variables | more)


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        (URL, (URL,)),
        (f"{URL}/", (URL,)),
        (f'["{URL}", "https://other/team/v1", "{URL}/"]', (URL, "https://other/team/v1")),
        (f"{URL}, http://two:8000/v1", (URL, "http://two:8000/v1")),
        (f"{URL}, HTTP://GPU:8000/v1", (URL,)),
    ],
)
def test_one_url_or_several_each_once(url, urls):
    assert remote({"LORE_ENGINE__URL": url}) == RemoteSpec(urls)


def test_without_a_url_a_model_is_loaded_here():
    assert remote({}) is None


@pytest.mark.parametrize(
    "url",
    [
        "gpu:8000",
        "file:///etc/passwd",
        "http://",
        "http://me:secret@gpu/v1",
        f"{URL}?k=secret",
        "http://gpu:99999/v1",
        "http://[::1/v1",
        "http://gpu\x07/v1",
    ],
)
def test_what_is_no_url_of_a_server_or_holds_a_secret_is_refused_without_showing_it(url):
    with pytest.raises(SettingsError) as refused:
        remote({"LORE_ENGINE__URL": url})
    assert "engine.url" in str(refused.value) and "secret" not in str(refused.value)


def test_the_key_is_the_files_else_the_variables(tmp_path, caplog):
    file = tmp_path / "key"
    file.write_text("from-a-file\n")
    file.chmod(0o644)
    named = {"LORE_ENGINE__URL": URL, "LORE_ENGINE__KEY_FILE": str(file)}
    with caplog.at_level(logging.WARNING):
        found = remote(named, LORE_ENGINE_KEY="from-the-environment")
    assert found is not None and found.key == "from-a-file"
    assert "from-a-file" not in repr(found) + caplog.text and "chmod 600" in caplog.text
    found = remote({"LORE_ENGINE__URL": URL, "LORE_ENGINE_KEY": "from-the-environment"})
    assert found is not None and found.key == "from-the-environment"


@pytest.mark.parametrize("content", [b"", b" \n", b"two\nlines", b"\xff\xfe", b"x" * 20_000])
def test_a_file_without_a_key_is_refused_without_showing_what_it_holds(tmp_path, content):
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match="holds no key") as refused:
        remote({"LORE_ENGINE__URL": URL, "LORE_ENGINE__KEY_FILE": str(file)})
    assert "two" not in str(refused.value)


def test_a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "key")
    with pytest.raises(SettingsError, match="holds no key"):
        remote({"LORE_ENGINE__URL": URL, "LORE_ENGINE__KEY_FILE": str(tmp_path / "key")})


@pytest.mark.parametrize("value", ["two\nlines", "clé"])
def test_a_variable_that_no_header_takes_is_refused_without_showing_what_it_holds(value):
    with pytest.raises(SettingsError, match="LORE_ENGINE_KEY holds no key") as refused:
        remote({"LORE_ENGINE__URL": URL, "LORE_ENGINE_KEY": value})
    assert value not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        remote({"LORE_ENGINE__URL": URL, "LORE_ENGINE__KEY_FILE": str(tmp_path / "gone")})


def test_the_models_file_is_the_vocabulary_and_a_built_in_one_is_none():
    assert remote({"LORE_ENGINE__URL": URL, "LORE_MODEL": "/models/a.gguf"}).vocabulary == "/models/a.gguf"
    assert remote({"LORE_ENGINE__URL": URL, "LORE_MODEL": "builtin:quoter"}).vocabulary == ""
