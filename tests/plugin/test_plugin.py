"""A third package, really installed: its formatters are found through entry points, keep the laws, and write prompts."""

import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from private_daemon import PrivateDaemon
from support.house import living, reply

from formatters.blocks import BlockKind
from formatters.context import Turning
from formatters.registry import Registry, discover, write_prompt
from formatters.testing import check_formatter, samples

SAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "house-rules"
AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@b"]
RICH = samples()[1]  # its codex is on branch main


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip has installed the sample package into."""
    folder = tmp_path_factory.mktemp("site")
    wheel = built(SAMPLE, tmp_path_factory.mktemp("wheel"))
    pip = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        folder,
        wheel,
    ]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(site)
    yield
    sys.modules.pop("sample_formatters", None)


def built(project: Path, folder: Path) -> Path:
    """The project's wheel. Written here, because a build backend would have to be downloaded for it."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    stem = f"{about['name'].replace('-', '_')}-{about['version']}"
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in about["entry-points"].items()
    ]
    files = {
        "sample_formatters.py": (project / "sample_formatters.py").read_text(),
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/entry_points.txt": "\n".join(groups),
    }
    files[f"{stem}.dist-info/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{stem}.dist-info/RECORD"])
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def of_the_sample(registry: Registry) -> list[str]:
    return [failure.entry for failure in registry.failures if failure.distribution == "lorekeep-sample-formatters"]


def test_an_installed_injector_takes_part_and_is_named(installed: None) -> None:
    prompt = write_prompt(RICH, discover())
    last = prompt[BlockKind.ENVIRONMENT].items[-1]
    assert last.text == "House rule: Nothing is pushed to main without a review.\n\n"
    assert (last.source, last.node) == ("house-rules", "house-rules")
    assert prompt.failures == ()


def test_the_samples_tool_answers_about_the_branch_of_the_turn(installed: None) -> None:
    run = discover().tools["rule_of_branch"].part.run
    assert run(Turning(RICH), {}) == "Nothing is pushed to main without a review."
    assert run(Turning(RICH), {"branch": "release"}) == "Only fixes on this branch."


def test_an_entry_that_leads_nowhere_is_reported_and_the_others_work(installed: None) -> None:
    registry = discover()
    assert of_the_sample(registry) == ["moved_away"]
    assert "house-rules" in registry.injectors


def test_the_samples_formatter_keeps_the_laws(installed: None) -> None:
    check_formatter(discover().injectors["house-rules"].part)


def test_without_the_package_nothing_of_it_is_there() -> None:
    registry = discover()
    assert "house-rules" not in registry.injectors
    assert of_the_sample(registry) == []


RULE = "House rule: Nothing is pushed to main without a review.\n"
MASKED = '{"masks": {"ACKNOWLEDGE": ["facts", "house-rules"]}}'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A codebase on branch main."""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "main.py").write_text("def main():\n    return 'zebra'\n")
    for command in (["init", "-q", "-b", "main"], ["add", "."], [*AUTHOR, "commit", "-qm", "begun"]):
        subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)
    return folder


def prompt_of(daemon: PrivateDaemon, *words: str) -> str:
    """The exact text that the engine would get for the last of these messages."""
    messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(words)]
    plan = reply(daemon, "/v1/plan", {"model": "lore/rules", "messages": messages, "prompt": True})
    return str(plan["text"])


def test_it_stands_in_the_prompts_of_a_daemon_whose_codex_is_on_that_branch(
    models: Path, site: Path, repository: Path
) -> None:
    with living(models, environment={"PYTHONPATH": str(site)}) as daemon:
        daemon.json("load", str(repository), "--wait")
        assert RULE in prompt_of(daemon, "what is main?")
        doctor = daemon.lore("doctor", "--json")
        assert doctor.returncode == 1
        assert [one["ok"] for one in json.loads(doctor.stdout)["checks"] if "moved_away" in one["detail"]] == [False]


def test_what_the_gate_leaves_out_of_a_turn_is_not_in_the_daemons_prompt(
    models: Path, site: Path, repository: Path
) -> None:
    with living(models, environment={"PYTHONPATH": str(site)}) as daemon:
        (daemon.folder / "config" / "lorekeep" / "context-relevance.json").write_text(MASKED)
        daemon.stop()
        daemon.start()
        daemon.json("load", str(repository), "--wait")
        assert RULE not in prompt_of(daemon, "thanks")
        assert RULE in prompt_of(daemon, "what is main?")
        plan = reply(daemon, "/v1/plan", {"model": "lore/rules", "messages": [{"role": "user", "content": "thanks"}]})
        assert plan["relevance"]["excluded"]["house-rules"] == "mask masks.ACKNOWLEDGE"
        greeted = daemon.json("ask", "-c", "rules", "-s", "talk", "--max-tokens", "2", "thanks")
        asked = daemon.json("ask", "-c", "rules", "-s", "talk", "--max-tokens", "2", "what is main?")
        after = daemon.json("ask", "-c", "rules", "-s", "talk", "--max-tokens", "2", "thanks")
        traces = [one["lore"]["trace"] for one in (greeted, asked, after)]
        prompts = [daemon.lore("trace", "show", trace, "--prompt").stdout for trace in traces]
        assert [RULE in prompt for prompt in prompts] == [False, True, True]


def test_settings_choose_a_template_and_leave_an_injector_out(models: Path, site: Path, repository: Path) -> None:
    config = '[prompt]\ninjectors = ["none"]\ntemplates = ["plain-karma", "no-such"]\n'
    with living(models, config, environment={"PYTHONPATH": str(site)}) as daemon:
        daemon.json("load", str(repository), "--wait")
        daemon.json("memory", "add", "The function main returns zebra.", "-c", "rules")
        prompt = prompt_of(daemon, "what does the function main return?")
        assert "Remember: The function main returns zebra.\n" in prompt
        assert "# Known Information" not in prompt
        assert RULE not in prompt
        told = reply(daemon, "/v1/status")["plugins"]
        assert [one for one in told if "no-such" in one and "the settings" in one]
        checked = daemon.lore("config", "check", "--json")
        assert checked.returncode != 0
        assert "prompt.templates" in checked.stdout + checked.stderr


WHO = "Who may release the walrus build?"


def memory(daemon: PrivateDaemon, *words: str) -> Any:
    return daemon.json("memory", *words)["memory"]


def karma_of(daemon: PrivateDaemon) -> str:
    """The Karma block that a new conversation about the walrus build has."""
    prompt = prompt_of(daemon, "who may release the walrus build?")
    return "".join(line for line in prompt.splitlines(keepends=True) if line.startswith(("# Open", "- ")))


def test_a_packages_kind_of_memories_is_kept_recalled_shown_moved_along_its_states_and_retired(
    models: Path, site: Path, repository: Path
) -> None:
    with living(models, environment={"PYTHONPATH": str(site)}) as daemon:
        daemon.json("load", str(repository), "--wait")
        one = memory(daemon, "add", WHO, "--kind", "open-question", "-c", "rules")
        assert (one["kind"], one["state"]) == ("open-question", "open")
        assert karma_of(daemon) == f"# Open Questions\n- {WHO}\n"
        assert [row["id"] for row in daemon.json("memory", "list", "--kind", "open-question")["memories"]] == [
            one["id"]
        ]
        asked = ("walrus release", "--kind", "open-question", "-c", "rules")
        found = daemon.json("memory", "search", *asked)["memories"]
        assert [row["id"] for row in found] == [one["id"]]
        assert memory(daemon, "become", one["id"], "answered")["state"] == "answered"
        refused = daemon.lore("memory", "become", one["id"], "reviewed")
        assert refused.returncode != 0
        assert "open-question" in refused.stderr
        assert memory(daemon, "retire", one["id"])["state"] == "retired"
        assert karma_of(daemon) == ""
        refused = daemon.lore("memory", "add", "x", "--kind", "open-questoin")
        assert refused.returncode == 2
        assert "open-question" in refused.stderr


def test_the_gate_leaves_a_packages_kind_out_of_the_turns_that_its_rules_name(
    models: Path, site: Path, repository: Path
) -> None:
    with living(models, environment={"PYTHONPATH": str(site)}) as daemon:
        daemon.stop()
        rules = '{"rules": {"open-question": [{"when": {"is_question": true}, "strength": "hard"}]}}'
        (daemon.folder / "config" / "lorekeep" / "context-relevance.json").write_text(rules)
        daemon.start()
        daemon.json("load", str(repository), "--wait")
        memory(daemon, "add", WHO, "--kind", "open-question", "-c", "rules")
        assert WHO not in karma_of(daemon)
        assert WHO in prompt_of(daemon, "tell who may release the walrus build")


def test_memories_of_a_kind_whose_package_is_gone_stay_and_are_not_looked_up(
    models: Path, site: Path, repository: Path
) -> None:
    with living(models, environment={"PYTHONPATH": str(site)}) as daemon:
        daemon.json("load", str(repository), "--wait")
        one = memory(daemon, "add", WHO, "--kind", "open-question", "-c", "rules")
        ask = ("ask", "-c", "rules", "-s", "talk", "--max-tokens", "2", "who may release the walrus build?")
        daemon.json(*ask)
        daemon.stop()
        daemon.environment.pop("PYTHONPATH")
        daemon.start()
        assert [row["text"] for row in daemon.json("memory", "list")["memories"]] == [WHO]
        assert karma_of(daemon) == ""
        trace = daemon.json(*ask)["lore"]["trace"]
        assert f"# Open Questions\n- {WHO}\n" in daemon.lore("trace", "show", trace, "--prompt").stdout  # it is pinned
        refused = daemon.lore("memory", "add", "And why?", "--kind", "open-question")
        assert refused.returncode == 2
        assert daemon.lore("memory", "retire", one["id"]).returncode != 0
        assert daemon.json("memory", "forget", one["id"])["forgotten"] == one["id"]


GRUMPY = """
from formatters import BlockKind, ContextNode

class Ends:
    name, block = "ends", BlockKind.KARMA
    def inject(self, ctx):
        raise SystemExit(3)

class Raises:
    name, block = "raises", BlockKind.ENVIRONMENT
    def inject(self, ctx):
        raise RuntimeError("out of sorts")

facts = ContextNode("facts", "Karma", 10, "mine")
"""
ENTRIES = """
[lorekeep.formatters]
raises = grumpy:Raises
ends = grumpy:Ends
misspelt = grumpy:Rises
gone = no_such_module:Thing
wrong = json:dumps
[lorekeep.nodes]
twice = grumpy:facts
"""


def test_plug_ins_that_are_broken_in_every_way_stop_no_answer_and_are_all_told(
    models: Path, tmp_path: Path, repository: Path
) -> None:
    site = tmp_path / "site"
    about = site / "grumpy-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "grumpy.py").write_text(GRUMPY)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: grumpy\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    with living(models, environment={"PYTHONPATH": str(site)}) as daemon:
        daemon.json("load", str(repository), "--wait")
        assert daemon.json("ask", "-c", "rules", "--max-tokens", "2", "what is main?")["answer"]
        told = "\n".join(reply(daemon, "/v1/status")["plugins"])
        doctor = daemon.lore("doctor", "--json")
        checks = " ".join(one["detail"] for one in json.loads(doctor.stdout)["checks"] if one["name"] == "plug-ins")
        reasons = (
            "'raises' of grumpy: RuntimeError: out of sorts (while a prompt was written, which lacks it)",
            "'ends' of grumpy: RuntimeError: it raised SystemExit",
            "'misspelt' of grumpy: AttributeError",
            "'gone' of grumpy: ModuleNotFoundError",
            "'wrong' of grumpy: TypeError",
            "'facts' of grumpy: the name is in use by one of lorekeepd",
        )
        for reason in reasons:
            assert reason in told
            assert reason in checks
            assert reason in daemon.log_end(100_000)
        assert daemon.lore("status").stdout.count("plug-in ") == len(reasons)
