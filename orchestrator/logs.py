"""Logs: one line an event on stderr, structured, with priorities for systemd's journal.

A record's fields come in `extra={"fields": {...}}`. Questions, answers and file contents may be logged at debug alone.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def set_up(level: str, environ: Mapping[str, str], stream: TextIO = sys.stderr) -> None:
    """Takes over the root logger: lines for a person on a terminal, JSON elsewhere.

    A person sees warnings, and everything at the level debug; each request at the level info is for the journal.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PlainLines() if stream.isatty() else JsonLines(journal="JOURNAL_STREAM" in environ))
    if stream.isatty() and level == "info":
        handler.setLevel(logging.WARNING)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.getLevelNamesMapping()[level.upper()])
    # Of each record these find out what no line shows: who called, and in which thread and process.
    logging._srcfile = None  # documented under "Optimization", whatever it is called
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.captureWarnings(capture=True)  # Python writes them past the handlers otherwise, over several lines
    # Of every connection and step these say more than anyone reads.
    for noisy in ("uvicorn", "asyncio", "httpx2", "httpcore2", "gguf"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields


class JsonLines(logging.Formatter):
    """`journal`: each line begins with its priority, as sd-daemon(3) has it; the journal adds the time itself."""

    def __init__(self, *, journal: bool = False) -> None:
        super().__init__()
        self.journal = journal

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"level": record.levelname.lower(), "part": record.name, "event": record.getMessage()}
        if not self.journal:
            line = {"time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"), **line}
        line |= fields_of(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False, default=str)
        return f"<{PRIORITY.get(record.levelno, 6)}>{text}" if self.journal else text


class PlainLines(logging.Formatter):
    """For a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = " ".join(f"{key}={value}" for key, value in fields_of(record).items())
        line = f"{moment} {record.levelname.lower():7} {record.name}: {record.getMessage()} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
