"""The built wheel, installed where no checkout is, passes `lore doctor --self-test` as a newcomer runs it."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("orchestrator", "codex", "governor", "formatters")
PIP = [sys.executable, "-P", "-m", "pip", "--quiet"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)])
    return next(folder.glob("lorekeepd-*.whl"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An environment with the wheel's files alone, which sees the locked libraries of this one and not this checkout."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder)
    site = next(folder.glob("lib/python*/site-packages"))
    binding = find_spec("llama_cpp")
    assert binding is not None
    assert binding.origin is not None
    (site / "libraries.pth").write_text(f"{Path(binding.origin).parents[1]}\n")
    run([*PIP, "--python", str(folder), "install", "--no-deps", "--no-index", str(wheel)])
    return folder


def run(
    command: list[str], cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    given = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=200, env=given)
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_of_the_checkout(wheel: Path) -> None:
    listed = run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *OURS, "share"], cwd=ROOT
    ).stdout.split()
    wanted = {name for name in listed if (ROOT / name).exists()}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.partition(".data/data/")[2] or name for name in held} == wanted


def test_it_answers_from_a_folder_whose_packages_have_our_names(bare: Path, tmp_path: Path) -> None:
    for name in ("orchestrator", "llama_cpp", "codex"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('this is the codebase of somebody else')")
    where = run([str(bare / "bin" / "python"), "-P", "-c", "import orchestrator; print(orchestrator.__file__)"]).stdout
    assert Path(where.strip()).is_relative_to(bare)
    done = run([str(bare / "bin" / "lore"), "doctor", "--self-test", "--json"], tmp_path, {"LORE_DEBUG": "1"})
    report = json.loads(done.stdout)
    assert report["ok"], report
    assert [check["name"] for check in report["checks"]] == ["start 1", "load", "ask", "start 2", "ask again"]


def test_its_hints_name_no_file_of_a_checkout(bare: Path) -> None:
    code = "from orchestrator.wire.places import compile_again as again; print(again(cuda=True))"
    hint = run([str(bare / "bin" / "python"), "-P", "-c", code]).stdout.strip()
    assert hint.startswith(f"CMAKE_ARGS=-DGGML_CUDA=on pip --python {bare} install ")
