"""One line an event, for the journal, for programs and for people."""

import io
import json
import logging
import warnings

import pytest

from orchestrator.logs import JsonLines, PlainLines, set_up


def record(level=logging.INFO, message="loaded", error=None, **fields):
    made = logging.LogRecord("lorekeep.x", level, "file", 1, message, (), error)
    made.fields = fields
    return made


def test_fields_stand_beside_the_event():
    line = json.loads(JsonLines().format(record(files=3, path="a\nb")))
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "info", "part": "lorekeep.x", "event": "loaded", "files": 3, "path": "a\nb"}


@pytest.mark.parametrize(
    ("level", "priority"), [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3)]
)
def test_the_journal_gets_priorities(level, priority):
    assert JsonLines(journal=True).format(record(level)).startswith(f"<{priority}>{{")


def test_an_event_is_one_line_even_with_a_traceback():
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        made = record(error=(type(error), error, error.__traceback__))
    assert "\n" not in JsonLines().format(made)
    assert "ValueError" in json.loads(JsonLines().format(made))["traceback"]
    assert "ValueError" in PlainLines().format(made)


def test_the_root_logger_is_taken_over_at_its_level():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        set_up("warning", {"JOURNAL_STREAM": "1:2"}, stream)
        logging.getLogger("lorekeep.t").info("quiet")
        logging.getLogger("lorekeep.t").warning("loud", extra={"fields": {"n": 1}})
    finally:
        root.handlers[:], root.level = before
        logging.captureWarnings(capture=False)
    assert stream.getvalue() == '<4>{"level": "warning", "part": "lorekeep.t", "event": "loud", "n": 1}\n'


def test_a_warning_of_python_itself_is_one_line_too():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            set_up("info", {}, stream)
            warnings.warn("two\nlines", RuntimeWarning, stacklevel=1)
            logging.captureWarnings(capture=False)
    finally:
        root.handlers[:], root.level = before
        logging.captureWarnings(capture=False)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["part"] == "py.warnings"
    assert "RuntimeWarning: two\nlines" in json.loads(line)["event"]
