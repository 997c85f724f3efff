"""A third package, really installed: its formatters are found through entry points, keep the laws, and write prompts."""

import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.house import living, reply

from formatters.blocks import BlockKind
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


def test_an_entry_that_leads_nowhere_is_reported_and_the_others_work(installed: None) -> None:
    registry = discover()
    assert of_the_sample(registry) == ["moved_away"]
    assert "house-rules" in registry.injectors


def test_the_samples_formatter_keeps_the_laws(installed: None) -> None:
    check_formatter(discover().injectors["house-rules"].injector)


def test_without_the_package_nothing_of_it_is_there() -> None:
    registry = discover()
    assert "house-rules" not in registry.injectors
    assert of_the_sample(registry) == []


def test_it_stands_in_the_prompts_of_a_daemon_whose_codex_is_on_that_branch(
    models: Path, site: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "rules"
    repository.mkdir()
    (repository / "main.py").write_text("def main():\n    return 'zebra'\n")
    for command in (["init", "-q", "-b", "main"], ["add", "."], [*AUTHOR, "commit", "-qm", "begun"]):
        subprocess.run(["git", *command], cwd=repository, check=True, capture_output=True)
    with living(models, environment={"PYTHONPATH": str(site)}) as daemon:
        daemon.json("load", str(repository), "--wait")
        body = {"model": "lore/rules", "messages": [{"role": "user", "content": "what is main?"}], "prompt": True}
        assert "House rule: Nothing is pushed to main without a review.\n" in reply(daemon, "/v1/plan", body)["text"]
        doctor = daemon.lore("doctor", "--json")
        assert doctor.returncode == 1
        assert [one["ok"] for one in json.loads(doctor.stdout)["checks"] if "moved_away" in one["detail"]] == [False]
