"""What would keep a daemon from starting with its settings is found without starting one, and nothing is made."""

import pytest

from orchestrator.preflight import unusable
from orchestrator.settings import Paths, load


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("model.path", "/nope.gguf", "there is no model file /nope.gguf"),
        ("model.path", "builtin:foo", "builtin:noise-m, builtin:noise-s, builtin:quoter"),
        ("model.path", "builtin:words", "embeds and does not answer"),
        ("serve.tcp", "abc", "not HOST:PORT"),
        ("serve.tcp", "127.0.0.1:70000", "not HOST:PORT"),
        ("serve.socket_group", "no-such-group", "no group no-such-group"),
        ("embedding.model", "builtin:word", "built in to embed: builtin:words"),
    ],
)
def test_what_serve_could_not_use_is_told_with_its_key_its_origin_and_a_way_out(tmp_path, key, value, why):
    table, _, name = key.partition(".")
    file = tmp_path / "config.toml"
    file.write_text(f'[{table}]\n{name} = "{value}"')
    environment = {f"XDG_{place}_HOME": str(tmp_path / place) for place in ("CONFIG", "DATA", "STATE", "CACHE")}
    environment["XDG_RUNTIME_DIR"] = "/run/nowhere"
    (fault,) = unusable(load(environment, config=file), Paths.of(environment))
    assert (fault.key, fault.origin) == (key, str(file))
    assert why in fault.message
    assert list(tmp_path.iterdir()) == [file]
