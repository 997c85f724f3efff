"""Settings come in layers, each key with its origin; what cannot be used is refused with its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.settings import LibrarySettings
from governor.settings import GovernorSettings, limit_bytes
from orchestrator.prompt.coverage import CoverageSettings
from orchestrator.prompt.strategy import StrategyParameters
from orchestrator.settings import Paths, Settings, SettingsError, load, sources
from orchestrator.settings.sources import describe, nearest
from orchestrator.settings.units import as_limit, in_bytes, in_seconds


@pytest.fixture
def files(tmp_path, monkeypatch):
    """`files(system=..., user=...)` writes the two files and answers with an environment."""

    def write(system=None, user=None):
        monkeypatch.setattr(sources, "SYSTEM_CONFIG", tmp_path / "system.toml")
        (tmp_path / "lorekeep").mkdir()
        for name, text in (("system.toml", system), ("lorekeep/config.toml", user)):
            if text is not None:
                (tmp_path / name).write_text(text)
        return {"XDG_CONFIG_HOME": str(tmp_path), "HOME": "/nonexistent"}

    return write


def test_without_any_source_everything_is_default(files):
    loaded = load(files())
    assert loaded.settings == Settings()
    assert (loaded.origins, loaded.files) == ({}, ())


def test_later_layers_win_key_by_key_and_each_key_knows_its_origin(files, tmp_path):
    environ = files(
        system='[model]\npath = "a"\nthreads = 1\nbatch = 64\n[log]\nlevel = "debug"',
        user='[model]\npath = "b"\nthreads = 2',
    )
    loaded = load({**environ, "LORE_MODEL": "c"}, options={"model.path": "d", "serve.tcp": "h:1"})
    model = loaded.settings.model
    assert (model.path, model.threads, model.batch, loaded.settings.log.level) == ("d", 2, 64, "debug")
    assert loaded.origins == {
        "model.path": "option --model",
        "model.threads": str(tmp_path / "lorekeep/config.toml"),
        "model.batch": str(tmp_path / "system.toml"),
        "log.level": str(tmp_path / "system.toml"),
        "serve.tcp": "option --tcp",
    }


def test_a_named_file_replaces_both_and_must_exist(files, tmp_path):
    environ = files(user="[model]\nthreads = 2")
    (tmp_path / "mine.toml").write_text("[model]\nthreads = 3")
    assert load(environ, config=tmp_path / "mine.toml").settings.model.threads == 3
    assert load({**environ, "LORE_CONFIG": str(tmp_path / "mine.toml")}).settings.model.threads == 3
    with pytest.raises(SettingsError, match=r"no configuration file .*gone\.toml"):
        load(environ, config=tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model]\nthread = 1", "unknown setting model.thread"),
        ("[modle]\nthreads = 1", "unknown section [modle]"),
        ("threads = 1", "unknown setting threads"),
        ('[model]\nthreads = "many"', "model.threads should be a whole number"),
        ("[model]\nthreads = 5000", "should be 1024 or less"),
        ("[model]\ncontext = 10", "below 512 tokens"),
        ('[model]\nkv_type_k = "q9"', "model.kv_type_k should be"),
        ("model = 3", "model should be"),
        ('[serve]\nmax_body = "5 XB"', "unknown unit"),
        ("[serve]\nmax_body = true", "not an amount"),
        ('[governor]\nvram_limit = "120 %"', "between 0 % and 100 %"),
        ('[governor]\nvram_limit = "0.0001 %"', "between 0 % and 100 %"),
        ("[governor]\nvram_limit = 0", "leaves no memory"),
        ('[sigils.x]\nscopes = ["fly"]', 'unknown scope "fly"'),
        ('[tasks]\ndebug = ["panic", " "]', "tasks.debug holds a phrase without a word"),
        ('[tasks]\nfriendly = ["panic"]', "unknown setting tasks.friendly"),
        ('[sigils.x]\nscope = ["query"]', "unknown setting sigils.x.scope"),
        ('[tokens.x]\nsha256 = "abc"', "tokens.x.sha256"),
        (f'[tokens.x]\nsha256 = "{"0" * 64}"\nsigil = "none"', 'tokens.x.sigil: no sigil "none"; there is only owner'),
        ("[model\n", "line 1"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_file_and_the_key(files, text, words):
    with pytest.raises(SettingsError) as caught:
        load(files(user=text))
    assert words in caught.value.message
    assert "lorekeep/config.toml" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LORE_MODLE", "x", "LORE_MODLE: unknown setting modle"),
        ("LORE_MODEL__THREADS", "x", "LORE_MODEL__THREADS: model.threads"),
        ("LORE_SIGILS__X__SCOPES", "[", "LORE_SIGILS__X__SCOPES: not JSON"),
        ("LORE_MODEL__PATH__X", "1", "LORE_MODEL__PATH__X: model.path"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused_by_its_name(files, name, value, words):
    with pytest.raises(SettingsError) as caught:
        load({**files(), name: value})
    assert caught.value.message.startswith(words)


def test_a_key_that_is_a_table_and_a_value_is_refused(files):
    with pytest.raises(SettingsError, match=r"model\.path is a table and a value"):
        load({**files(), "LORE_MODEL__PATH": "x", "LORE_MODEL__PATH__MORE": "x"})


def test_a_file_that_is_not_utf8_is_refused_with_the_byte(files, tmp_path):
    environ = files(user="")
    (tmp_path / "lorekeep/config.toml").write_bytes(b'[model]\npath = "\xff"')
    with pytest.raises(SettingsError, match="not UTF-8 at byte 16"):
        load(environ)


@pytest.mark.parametrize(
    ("typo", "known"),
    [
        ("model.thread", "model.threads"),
        ("threads", "model.threads"),
        ("serve.level", "log.level"),
        ("governor.ram", "governor.vram_limit"),
        ("disk", "storage.checkpoint_disk"),
        ("modle.path", "model.path"),
        ("sigils.review.user", "sigils.review.users"),
        ("port", ""),
        ("max_tokens", ""),
        ("model.temperature", ""),
    ],
)
def test_the_nearest_known_key_is_named(typo, known):
    assert nearest(typo) == known


def test_variables_set_what_files_set(files):
    variables = {
        "LORE_SOCKET": "/s",
        "LORE_MODEL__CONTEXT": "4096",
        "LORE_MODEL__FLASH_ATTENTION": "false",
        "LORE_GOVERNOR__VRAM_LIMIT": "6 GiB",
        "LORE_SIGILS__REVIEW__SCOPES": '["query", "tools:search_archive"]',
        "LORE_DEBUG": "1",
    }
    settings = load({**files(), **variables}).settings
    assert (settings.serve.socket, settings.model.context, settings.model.flash_attention) == ("/s", 4096, False)
    assert settings.governor.vram_limit == str(6 * 1024**3)
    assert settings.sigils["review"].scopes == ("query", "tools:search_archive")


def test_every_setting_has_help_and_every_number_a_range_or_a_unit(files):
    loaded = load(files(user='[sigils.x]\nusers = ["root"]'))
    rows = describe(loaded.settings, loaded.origins)
    assert [row.key for row in rows if not row.help] == []
    numbers = [row for row in rows if isinstance(row.value, (int, float)) and not isinstance(row.value, bool)]
    assert [row.key for row in numbers if not (row.range or row.unit)] == []
    assert [row.value for row in rows if row.origin != "default"] == [["root"]]


@given(st.integers(0, 10**15))
def test_whole_bytes_stand_for_themselves(number):
    assert in_bytes(number) == in_bytes(str(number)) == in_bytes(f"{number} B") == number


@given(
    st.integers(0, 10**6), st.sampled_from([("KiB", 2**10), ("k", 2**10), ("MB", 10**6), ("G", 2**30), ("TB", 10**12)])
)
def test_units_multiply(number, unit):
    assert in_bytes(f"{number}{unit[0]}") == in_bytes(f" {number} {unit[0].lower()} ") == number * unit[1]


def test_durations_have_units():
    assert [in_seconds(text) for text in ("90", 2, "250 ms", "30 min", "2h")] == [90, 2, 0.25, 1800, 7200]


@given(st.integers(1, 10**12), st.integers(1, 100))
def test_a_limit_is_what_the_governor_reads(number, percent):
    assert limit_bytes(as_limit(number), 5) == number
    assert limit_bytes(as_limit(f"{percent} %"), 1000) == percent * 10


def test_the_parts_defaults_are_the_settings_defaults():
    settings = Settings()
    assert settings.for_governor() == GovernorSettings()
    assert settings.for_library() == LibrarySettings()
    assert settings.for_coverage() == CoverageSettings()
    assert settings.for_strategy() == StrategyParameters()


def test_a_setting_reaches_its_part(files):
    given = {"LORE_GOVERNOR__GPU": "1", "LORE_CODEX__SECRETS": "yes", "LORE_STRATEGY__OVERHEAD": "0.5"}
    given |= {"LORE_TASKS__DEBUG": '["panic"]', "LORE_GOVERNOR__SENSOR_RETRY": "5 s"}
    settings = load({**files(), **given}).settings
    assert settings.for_governor().memory.gpu == "1"
    assert settings.for_library().secrets.load_secret_contents
    assert settings.for_coverage().overhead_share == 0.5
    assert settings.for_strategy().phrases.debug == ("panic",)
    assert settings.for_governor().sampler.retry_s == 5.0


@pytest.mark.parametrize(("written", "depth"), [("0", None), ("none", None), ("7", 7)])
def test_a_depth_of_0_or_none_is_as_many_turns_as_fit(files, written, depth):
    settings = load({**files(), "LORE_GOVERNOR__DEPTH": written}).settings
    assert settings.for_governor().claims.depth == depth


def test_a_user_s_folders_are_xdg_s_and_a_system_daemon_s_are_systemd_s():
    user = Paths.of({"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/7", "XDG_CACHE_HOME": "relative/ignored"})
    assert [str(path) for path in (user.config, user.data, user.state, user.cache, user.socket)] == [
        "/home/u/.config/lorekeep",
        "/home/u/.local/share/lorekeep",
        "/home/u/.local/state/lorekeep",
        "/home/u/.cache/lorekeep",
        "/run/user/7/lorekeep/lore.sock",
    ]
    system = Paths.of(
        {
            "HOME": "/",
            "STATE_DIRECTORY": "/var/lib/lorekeep:/other",
            "CACHE_DIRECTORY": "/var/cache/lorekeep",
            "RUNTIME_DIRECTORY": "/run/lorekeep",
            "CONFIGURATION_DIRECTORY": "/etc/lorekeep",
        }
    )
    assert (str(system.data), str(system.socket)) == ("/var/lib/lorekeep", "/run/lorekeep/lore.sock")


def test_folders_are_made_private_and_existing_ones_are_narrowed(tmp_path):
    (tmp_path / "cache/lorekeep").mkdir(parents=True, mode=0o755)
    names = {
        f"XDG_{name}": str(tmp_path / place) for name, place in {"CACHE_HOME": "cache", "DATA_HOME": "data"}.items()
    }
    paths = Paths.of(
        {**names, "XDG_STATE_HOME": str(tmp_path / "s"), "XDG_RUNTIME_DIR": str(tmp_path / "r"), "HOME": "/"}
    )
    paths.prepare()
    assert {folder.stat().st_mode & 0o777 for folder in (paths.cache, paths.data, paths.state, paths.runtime)} == {
        0o700
    }


def test_a_folder_that_cannot_be_made_is_refused_with_its_name(tmp_path):
    (tmp_path / "file").write_text("")
    paths = Paths.of({"HOME": str(tmp_path / "file"), "XDG_RUNTIME_DIR": str(tmp_path)})
    with pytest.raises(SettingsError, match="cannot make") as refused:
        paths.prepare()
    assert "XDG_DATA_HOME" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('[modle]\npath = "x"', "the nearest known one is [model]"),
        ('[banana]\npath = "x"', "`lore config show` lists every setting"),
        ("port = 3", "`lore config show` lists every setting"),
        ('[strategy]\ntier = "banana"', "write one of them, or leave out strategy.tier"),
        ('[model]\ncontext = "abc"', "model.context takes ≥ 512 | auto; `lore config show` lists every range"),
        ("[model]\ncontext = 10", "model.context takes ≥ 512 | auto; `lore config show` lists every range"),
    ],
)
def test_a_wrong_section_is_answered_with_a_known_one_and_a_wrong_value_with_the_range(files, text, hint):
    with pytest.raises(SettingsError) as caught:
        load(files(user=text))
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('model = "x"', "model should be a table"),
        ("sigils = 3", "sigils should be a table"),
        ("[sigils.a]\nusers = 3", "sigils.a.users should be a list"),
        ("[model]\npath = 3", "model.path should be text"),
        ("[codex]\nwatch = 3", "codex.watch should be true or false"),
        ("[serve]\nqueue = -5", "serve.queue should be 1 or more"),
    ],
)
def test_a_wrong_value_is_refused_in_words_of_its_file(files, text, words):
    with pytest.raises(SettingsError) as caught:
        load(files(user=text))
    assert caught.value.message.endswith(f"config.toml: {words}")


@pytest.mark.parametrize(
    "text",
    [
        "[model]\nthread = 3",
        '[model]\nthreads = "x"',
        '[model]\nkv_type_k = "f99"',
        "[codex]\nreaders = 0",
        "model = 3",
    ],
)
def test_a_refusal_names_no_address_of_a_library(tmp_path, text):
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load({}, config=file)
    assert "://" not in f"{refused.value.message} {refused.value.hint}"
