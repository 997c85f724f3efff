"""Commands that need no daemon: configuration, doctor, tokens, the service."""

import json

import pytest


@pytest.fixture
def configured(folder):
    def write(text):
        (folder / "lorekeep").mkdir(exist_ok=True)
        (folder / "lorekeep" / "config.toml").write_text(text)
        return {"XDG_CONFIG_HOME": str(folder), "LORE_SOCKET": ""}

    return write


def test_config_shows_values_and_origins_and_refuses_typos_with_2(lore, configured, folder):
    good = configured("[model]\nthreads = 3")
    rows = {row["key"]: row for row in json.loads(lore("config", "show", "--json", **good).stdout)["settings"]}
    assert (rows["model.threads"]["value"], rows["model.threads"]["default"]) == (3, 0)
    assert rows["model.threads"]["origin"] == str(folder / "lorekeep/config.toml")
    assert "model.threads = 3  (" in lore("config", "show", **good).stdout
    page = lore("config", "show", "model.thr", **good).stdout
    assert [line.partition(" ")[0] for line in page.splitlines()[::2]] == ["model.threads"]
    nothing = lore("config", "show", "banana", **good)
    assert (nothing.returncode, "no setting has 'banana' in its name" in nothing.stderr) == (2, True)
    assert lore("config", "check", **good).returncode == 0
    assert str(folder / "lorekeep/config.toml") in lore("config", "path", **good).stdout
    bad = configured("[model]\nthread = 3")
    for command in (["config", "check"], ["config", "show"], ["serve"]):
        done = lore(*command, **bad)
        assert done.returncode == 2
        assert "unknown setting model.thread" in done.stderr
        assert "model.threads" in done.stderr


def test_config_check_refuses_what_serve_could_not_use(lore, configured, folder):
    environment = {**configured('[serve]\ntcp = "abc"'), "XDG_CACHE_HOME": str(folder / "cache")}
    done = lore("config", "check", **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{folder / 'lorekeep/config.toml'}: serve.tcp: " in done.stderr
    assert "not HOST:PORT" in done.stderr
    told = lore("config", "check", "--json", **environment)
    report = json.loads(told.stdout)
    assert (told.returncode, report["ok"], [fault["key"] for fault in report["faults"]]) == (2, False, ["serve.tcp"])
    assert not (folder / "cache").exists()  # looked into, nothing made


def test_doctor_says_what_it_found_and_what_mends_it(lore, configured, folder):
    environment = {**configured('[model]\npath = "/no/such.gguf"'), "XDG_CACHE_HOME": str(folder)}
    (folder / "lorekeep").chmod(0o755)
    done = lore("doctor", "--json", **environment)
    report = json.loads(done.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert (done.returncode, report["ok"]) == (1, False)
    assert (checks["model"]["ok"], checks["folders"]["ok"], checks["settings"]["ok"]) == (False, False, True)
    assert checks["folders"]["fix"] == f"chmod 700 {folder / 'lorekeep'}"
    assert "fix: " in lore("doctor", **environment).stdout


def test_a_token_is_shown_once_with_what_to_configure(lore):
    import hashlib

    made = json.loads(lore("token", "new", "--sigil", "owner", "--json").stdout)
    assert made["sha256"] == hashlib.sha256(made["token"].encode()).hexdigest()
    plain = lore("token", "new", "--sigil", "owner")
    assert plain.stdout.strip() not in plain.stderr
    assert "[tokens.client]" in plain.stderr


def test_a_token_for_a_sigil_that_does_not_exist_is_not_handed_out(lore, tmp_path):
    done = lore("token", "new", "--sigil", "nosuch", LORE_CONFIG="", XDG_CONFIG_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert 'no sigil "nosuch"; there is only owner' in done.stderr


@pytest.mark.parametrize("action", ["install", "status", "uninstall"])
def test_a_service_that_systemd_was_not_told_of_is_no_success(lore, tmp_path, action):
    done = lore("service", action, HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path), PATH=str(tmp_path))
    assert done.returncode == 1
    assert "systemctl" in done.stderr or "systemd" in done.stderr
    assert "linger" not in done.stderr


def test_models_are_listed_and_shown_without_a_daemon(lore, configured, folder, tiny_model):
    models = folder / "cache" / "lorekeep" / "models"
    models.mkdir(parents=True)
    tiny_model("llama").rename(models / "small.gguf")
    environment = {**configured(f'[model]\npath = "{models / "small.gguf"}"'), "XDG_CACHE_HOME": str(folder / "cache")}
    environment["LORE_SOCKET"] = str(folder / "none.sock")
    done = lore("model", "list", "--json", **environment)
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)["models"]
    assert listed[0]["path"] == str(models / "small.gguf")
    assert {"builtin:quoter", "builtin:words"} <= {one["id"] for one in listed}
    assert listed[0]["words"].startswith("yes, context ")
    shown = json.loads(lore("model", "show", "small", "--json", **environment).stdout)["model"]
    configured_one = json.loads(lore("model", "show", "--json", **environment).stdout)["model"]
    assert (shown["path"], shown["loaded"], shown["architecture"]) == (listed[0]["path"], False, "llama")
    assert configured_one["kv"]["bytes_per_token"] == shown["kv"]["bytes_per_token"]
    assert "KV type" in lore("model", "show", "small", **environment).stdout
    missing = lore("model", "show", "smal", **environment)
    assert (missing.returncode, "small" in missing.stderr) == (5, True)
    assert [one.name for one in models.iterdir()] == ["small.gguf"]  # looked into, nothing made
