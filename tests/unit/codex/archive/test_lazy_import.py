"""A package that runs late is whole for whoever asks for what is in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from codex.archive.lance import lazy_import

LANCEDB = """
import sys
from codex.archive.lance import lancedb
assert lancedb().connect
assert "lance_namespace_urllib3_client.models" in sys.modules
assert "lance_namespace_urllib3_client.api" not in sys.modules
from lance_namespace_urllib3_client import ApiClient
assert "lance_namespace_urllib3_client.api" in sys.modules
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """`heavy`, which gathers two modules when it runs."""
    folder = tmp_path / "heavy"
    folder.mkdir()
    (folder / "__init__.py").write_text("from heavy.one import ONE\nfrom heavy.two import TWO\n")
    (folder / "one.py").write_text("ONE = 1\n")
    (folder / "two.py").write_text("TWO = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("heavy", "heavy.one", "heavy.two"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "heavy"


def test_a_module_below_is_imported_without_the_package_s_own(package: str) -> None:
    lazy_import(package)
    from heavy.one import ONE  # type: ignore[import-not-found]

    assert (ONE, "heavy.two" in sys.modules) == (1, False)


def test_a_name_of_the_package_runs_it_once(package: str) -> None:
    lazy_import(package)
    import heavy

    assert not hasattr(heavy, "__wrapped__")
    assert "heavy.two" not in sys.modules
    assert (heavy.TWO, heavy.ONE) == (2, 1)
    assert not hasattr(heavy, "three")


def test_what_is_not_there_or_was_imported_is_left_alone(package: str) -> None:
    lazy_import("no_such_package")
    assert "no_such_package" not in sys.modules
    import heavy

    lazy_import(package)
    assert sys.modules[package] is heavy


def test_lancedb_is_imported_without_its_client_of_remote_catalogs() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", LANCEDB], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
