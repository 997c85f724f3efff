"""Every command: what it prints for people and for scripts, and that each fault has its status."""

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["ask", "huge"], 4, "90,000 tokens"),
        (["ask", "q", "-c", "dmo"], 5, "there are: demo"),
        (["ask", "paused"], 7, "lore resume"),
        (["ask", "loading"], 8, "loading"),
        (["ask", "bug"], 1, "mistake"),
        (["ask", "one break"], 1, "the engine died"),
        (["ask", "  "], 2, "empty"),
        (["ask"], 2, "empty"),
        (["ask", "q", "-f", "/no/such/file"], 2, "/no/such/file"),
        (["ask", "q", "-f", ""], 2, "-f ''"),
        (["load", ""], 2, "a path is empty"),
        (["token", "new", "--sigil", "owner", "--name", "a b"], 2, "'a b' cannot name a token"),
        (["ask", "q", "-s", "a", "--continue"], 2, "exclude"),
        (["ask", "q", "--max-tokens", "0"], 2, "max-tokens"),
        (["ask", "q", "--no-such-option"], 2, "no-such-option"),
        (["no-such-command"], 2, "no-such-command"),
        (["stop"], 2, "Ctrl-C ends lore serve"),
        (["config", "set", "a", "b"], 2, "lore config path"),
        (["codex", "unload", "demo"], 2, "lore codex drop"),
        (["reload", "demo"], 2, "lore codex reload NAME"),
        (["show"], 2, "lore codex show"),
        (["load", "/missing"], 2, "no directory"),
        (["load", "/busy"], 1, "running"),
        (["search", "nothing"], 5, "nothing found"),
        (["codex", "show", "nope"], 5, "no codex nope"),
        (["codex", "drop", "nope"], 5, "no codex nope"),
        (["session", "show", "nope"], 5, "no session nope"),
        (["model", "show", "nope"], 5, "builtin:quoter"),
        (["model", "show", "other", "--measure"], 2, "lore model use other"),
        (["model", "show", "--measure", "-c", "full"], 8, "6,144 tokens of KV are needed"),
        (["load", "--cancel", "nope"], 5, "no codex nope"),
        (["plan", "huge"], 4, "8,000 fit"),
    ],
)
def test_what_goes_wrong_has_its_status_and_says_so_without_a_traceback(lore, lorekeep, arguments, status, words):
    done = lore(*arguments)
    assert done.returncode == status
    assert words in done.stderr or words == "mistake"
    assert "Traceback" not in done.stderr


def test_plan_shows_the_decision_the_six_blocks_and_the_numbers(lore, lorekeep):
    page = lore("plan", "how?").stdout
    for words in (
        "CAG (coverage full)",
        "1,200 tokens fit in 8,192",
        "identity",
        "query",
        "90 cached",
        "first token in 40 ms",
    ):
        assert words in page
    plan = json.loads(lore("plan", "how?", "--json").stdout)
    assert [block["from"] for block in plan["blocks"]] == ["ram"] * 6
    assert lore("plan", "how?", "--prompt").stdout == "<the exact prompt>"


def test_search_piped_prints_path_line_text(lore, lorekeep):
    assert lore("search", "run").stdout == "src/a.py:11:def run():\n"
    assert json.loads(lore("search", "run", "--json").stdout)["hits"][0]["symbol"] == "run"
    nothing = lore("search", "nothing", "--json")
    assert (nothing.returncode, json.loads(nothing.stdout)["hits"]) == (5, [])


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_search_for_what_is_quoted_ends_with_5_where_only_its_words_are_found(lore, lorekeep, more):
    found = lore("search", '"its words"', *more)
    assert (found.returncode, "src/a.py" in found.stdout) == (5, True)


def test_symbols_piped_are_one_line_each_and_a_caller_one_for_each_call(lore, lorekeep):
    assert lore("search", "--definition", "run").stdout == "src/a.py:10:def run(self)\n"
    assert lore("search", "run", "--callers").stdout == "src/a.py:20:App.run\nsrc/a.py:22:App.run\n"
    assert lore("codex", "outline", "src/a.py").stdout == "src/a.py:10:def run(self)\n"
    row = json.loads(lore("search", "--members", "run", "--json").stdout)["symbols"][0]
    assert {name: row[name] for name in ("name", "qualified", "kind", "path", "line")} == {
        "name": "run",
        "qualified": "App.run",
        "kind": "method",
        "path": "src/a.py",
        "line": 10,
    }


def test_a_symbol_that_is_not_found_ends_with_5_and_names_what_is_like_it(lore, lorekeep):
    for asked, said in (
        (("search", "--callers", "nothing"), "nothing is named nothing; like it: noting"),
        (("search", "--callers", "idle"), "no callers of idle are found (src/a.py:10 App.run)"),
        (("codex", "outline", "nothing"), "no file nothing in this codex, or it defines nothing; like it: noting"),
    ):
        done = lore(*asked)
        assert (done.returncode, done.stdout, done.stderr.strip()) == (5, "", said)
        assert lore(*asked, "--json").returncode == 5


def test_two_questions_about_symbols_do_not_go_together(lore):
    for more in ("--members", "--graph"):
        done = lore("search", "run", "--callers", more)
        assert (done.returncode, more in done.stderr) == (2, True)


def test_search_says_what_it_may_not_have_seen(lore, lorekeep):
    assert json.loads(lore("search", "nothing", "--json").stdout)["notices"] == ["demo is being indexed"]
    assert "demo is being indexed" in lore("search", "nothing").stderr


def test_what_is_loaded_is_listed_shown_reloaded_and_dropped(lore, lorekeep):
    assert "/src/demo" in lore("codex", "list").stdout
    shown = lore("codex", "show", "demo").stdout
    assert "coverage  full: 1,200 tokens fit" in shown
    assert "taken in  generation 1" in shown
    assert lore("codex", "reload", "demo").returncode == 0
    assert lore("codex", "drop", "demo").returncode == 0
    assert json.loads(lore("codex", "list", "--json").stdout) == {"codices": []}


def test_a_codex_needs_a_name_to_be_shown_only_beside_others(lore, lorekeep):
    assert lore("codex", "show").stdout == lore("codex", "show", "demo").stdout
    lore("load", "/src/other")
    several = lore("codex", "show")
    assert (several.returncode, "name one: demo, other" in several.stderr) == (2, True)
    lore("codex", "drop", "demo")
    lore("codex", "drop", "other")
    none = lore("codex", "show")
    assert (none.returncode, "lore load PATH" in none.stderr) == (2, True)


def test_conversations_are_listed_shown_exported_renamed_and_dropped(lore, lorekeep):
    lore("ask", "hello", "-s", "one")
    assert "one" in lore("session", "list").stdout
    assert lore("session", "rename", "one", "two").returncode == 0
    assert lore("session", "show", "two").stdout == "user: hello\n"
    assert "## user\n\nhello" in lore("session", "export", "two").stdout
    assert lore("session", "drop", "two").returncode == 0
    assert json.loads(lore("session", "list", "--json").stdout) == {"sessions": []}


def test_status_and_models_have_a_page_and_an_object(lore, lorekeep):
    page = lore("status", "-v").stdout
    assert "memory     calm, 25 % of the memory that the model leaves is used" in page
    assert "lorekeep/demo   1,024   600        63        300      61  4.0 KiB" in page
    assert "plug-in    'odd' of some-package: it is broken" in page
    keys = {"version", "model", "engine", "governor", "codices", "sessions", "queue"}
    assert keys <= set(json.loads(lore("status", "--json").stdout))
    assert "loaded" in lore("model", "list").stdout
    assert "yes, context 8.2k" in lore("model", "list").stdout
    assert json.loads(lore("model", "show", "builtin:quoter", "--json").stdout)["model"]["fits"] is True
    assert "fits       yes, context 8.2k" in lore("model", "show", "builtin:quoter").stdout


def test_the_caches_have_a_page_and_an_object(lore, lorekeep):
    page = lore("stats", "cache").stdout
    assert "900 of 1,000 prompt tokens cached, about 2 s saved (at 2.00 ms a token)" in page
    assert "from checkpoints (disk) 300 30 % 2.0 KiB computed 100 10 %" in " ".join(page.split())
    assert "30 of 40 tokens accepted (75 %)" in page
    assert json.loads(lore("stats", "cache", "--json").stdout)["tiers"]["vram"]["tokens"] == 600


def test_version_and_help_need_no_daemon(lore):
    assert lore("--version").stdout.startswith("lore ")
    assert "ask" in lore("--help").stdout


def test_help_shows_what_each_command_does_uncut(lore):
    shown = " ".join(lore("--help").stdout.split())
    assert "Loads directories, files or a git URL under one name, or brings a loaded codex up to date." in shown
    assert "..." not in shown.split("Commands:")[1]


def test_help_tells_which_codex_is_taken_without_a_name(lore):
    def help_of(command):
        return " ".join(lore(command, "--help", COLUMNS="200").stdout.split())

    for command in ("ask", "plan", "search"):
        assert "the one whose folder you are in (the deepest), else the only one" in help_of(command)
    assert "none: the bare model" in help_of("ask")
    assert "bare model" not in help_of("search")


def test_help_loads_neither_rich_nor_pydantic_nor_an_http_package():
    script = "import sys\nfrom orchestrator.cli.commands import COMMANDS, imported\n"
    script += "[imported(name) for name in COMMANDS]\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"rich", "prompt_toolkit", "pydantic", "httpx2", "http.client", "asyncio", "starlette"} & set(
        loaded
    ) == set()


def test_a_mistake_of_ours_is_one_line(lore, folder):
    (folder / "lorekeep").mkdir()
    script = "import sys\nsys.argv = ['lore', 'status']\nfrom orchestrator.cli import main, status\n"
    script += "status.Daemon = None\nmain()"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith("lore: a mistake in lore itself: TypeError")
    assert "Traceback" not in done.stderr
