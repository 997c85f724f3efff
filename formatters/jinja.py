"""Runs a model's own chat template, which is foreign code, in a sandbox, with the helpers that such templates expect.

The helpers are those of Hugging Face's `apply_chat_template`, which the templates were written against. Knows nothing of
blocks; takes messages, gives text.
"""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from formatters.errors import TemplateRefused

Message = Mapping[str, Any]

# What a template's own operations may raise: `none + "text"`, a missing key, a division by zero, a recursive macro.
_FAULTS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks an assistant's words for training; here it means nothing."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance's attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compiled(source: str, today: datetime.date) -> Template:
    """The template, ready to run. `today` is what it is told when it asks for the date. Raises TemplateRefused."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _clock(today)
    try:
        return environment.from_string(source)
    except _FAULTS as fault:
        raise TemplateRefused(f"the chat template does not compile: {fault}") from fault


def rendered(template: Template, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
    """The text of these messages with the prompt for an answer. Raises TemplateRefused, in the template's own words."""
    try:
        return template.render(messages=messages, add_generation_prompt=True, **variables)
    except _FAULTS as fault:
        raise TemplateRefused(f"the chat template refuses: {str(fault) or type(fault).__name__}") from fault


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Jinja's own escapes < and >, which the models have never seen.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _clock(today: datetime.date) -> Callable[[str], str]:
    def strftime_now(pattern: str) -> str:
        return datetime.datetime.combine(today, datetime.time()).strftime(pattern)

    return strftime_now
