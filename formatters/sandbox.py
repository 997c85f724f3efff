"""A chat template as a program: foreign code, which runs in a sandbox.

It finds the helpers of Hugging Face's `apply_chat_template`, which such templates are written for.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from formatters.blocks import TemplateRefused

Message = Mapping[str, Any]

UNDATED = datetime.datetime(2024, 7, 26)
"""The date in templates of the Llama 3 family when none is passed. Today's would make a new floor each day."""

# What a template's own operations may raise: `none + "text"`, a missing key, a division by zero, a recursive macro.
_FAULTS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks an assistant's words for training; it has no effect here."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance's attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compiled(source: str) -> Template:
    """The template, ready to run. Raises TemplateRefused."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = UNDATED.strftime
    try:
        return environment.from_string(source)
    except _FAULTS as fault:
        raise TemplateRefused(f"the chat template does not compile: {fault}") from fault


def rendered(
    template: Template, messages: Sequence[Message], variables: Mapping[str, Any], *, opening: bool = True
) -> str:
    """The text of these messages, `opening` an answer behind them. Raises TemplateRefused, in the template's own words."""
    try:
        return template.render(messages=messages, add_generation_prompt=opening, **variables)
    except _FAULTS as fault:
        raise TemplateRefused(f"the chat template refuses: {str(fault) or type(fault).__name__}") from fault


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Jinja's own escapes < and >, which the models have never seen.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
