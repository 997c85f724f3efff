"""Benchmarks are programs in a folder of their own; their parts are tested from here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
