"""The rules by which turns make memories, as learning.toml has them: forms of sentences, and words around them. Pure."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from orchestrator.errors import SettingsError, instead
from orchestrator.karma.records import DecisionOutcome, Kind

_NAMED = re.compile(r"[\"']?[A-Z/~.]|[^\W\d]\S*[_/.\d]\S*")
WHY = re.compile(r",?\s+(?:because|since|so that)\b")
_WORD = re.compile(r"\{(\w+)\}|\[([^\]]+)\]\s*|\(([^)]+)\)|(\s+)|([^\s{\[(]+)")
_KEYS = frozenset({"kind", "forms", "sure", "named", "needs", "except", "subject", "attribute"})
OUTCOMES = tuple(one.value for one in DecisionOutcome if one is not DecisionOutcome.PENDING)
_LISTS = (
    *("openers", "remember", "hedges", "unsure", "points_elsewhere", "articles"),
    *("not_stated", "asks", "lists", "media", "says"),
    *OUTCOMES,
)
_GROUPS = frozenset({"value", "text", "subject", "attribute"})


@dataclass(frozen=True)
class LearningRule:
    """One table of the file: forms that give a kind."""

    kind: Kind
    forms: tuple[re.Pattern[str], ...]
    excluded: re.Pattern[str]
    needed: re.Pattern[str]
    sure: bool = True
    named: bool = False
    subject: str = ""
    attribute: str = ""

    def matched(self, sentence: str) -> re.Match[str] | None:
        found = (match for form in self.forms if (match := form.match(sentence)))
        return next(filter(self._may_be, found), None)

    def _may_be(self, match: re.Match[str]) -> bool:
        groups = match.groupdict()
        said = groups.get("text") or groups.get("value") or ""
        named = not self.named or _NAMED.match(said) is not None
        return named and not self.excluded.match(said) and self.needed.match(said) is not None


@dataclass(frozen=True)
class LearningRules:
    """The whole file."""

    rules: tuple[LearningRule, ...]
    openers: re.Pattern[str]
    unsure: re.Pattern[str]
    not_stated: re.Pattern[str]
    asks: re.Pattern[str]
    lists: re.Pattern[str]
    others: re.Pattern[str]
    outcome: re.Pattern[str]
    pointers: frozenset[str]
    articles: frozenset[str]


@cache
def shipped_rules() -> LearningRules:
    return read_rules(files(__package__).joinpath("learning.toml").read_text(encoding="utf-8"))


def read_rules(text: str) -> LearningRules:
    """`text`: TOML as in learning.toml. Raises SettingsError that names the faulty key."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise SettingsError(f"learning: {fault}", "write it as the shipped file is written") from fault
    if unknown := sorted(set(table) - {"rule", *_LISTS}):
        raise SettingsError(f"{unknown[0]}: there is no such key", instead(unknown[0], ["rule", *_LISTS], "", ""))
    words = {name: _phrases(table, "", name) for name in _LISTS}
    return LearningRules(
        rules=tuple(_rule(row, f"rule {number}") for number, row in enumerate(table.get("rule", []), 1)),
        openers=_openers(words),
        unsure=re.compile(rf"(?<!\w)(?:{_either(words['unsure'])})(?!\w)", re.IGNORECASE),
        not_stated=re.compile(
            rf"(?:please |now |then |can you |could you )*(?:{_either(words['not_stated'])})\b", re.I
        ),
        asks=re.compile(rf",\s*(?:{_either(words['asks'])})[.!]*\Z", re.IGNORECASE),
        lists=re.compile(rf"\s*(?:{_either(words['lists'])})\s*:\Z", re.IGNORECASE),
        others=_others(words),
        outcome=_outcomes(words),
        pointers=frozenset(words["points_elsewhere"]),
        articles=frozenset(words["articles"]),
    )


def _rule(row: Mapping[str, Any], name: str) -> LearningRule:
    if unknown := sorted(set(row) - _KEYS):
        raise SettingsError(f"{name}.{unknown[0]}: there is no such key", instead(unknown[0], sorted(_KEYS), "", ""))
    if row.get("kind") not in list(Kind):
        raise SettingsError(f"{name}.kind: should be a kind of memories", f"there are: {', '.join(Kind)}")
    for key in ("sure", "named"):
        if not isinstance(row.get(key, True), bool):
            raise SettingsError(f"{name}.{key}: should be true or false", f"it is {row[key]!r}")
    for key in ("subject", "attribute"):
        given = row.get(key, "")
        if not isinstance(given, str) or set(re.findall(r"\{(.*?)\}", given)) - _GROUPS:
            raise SettingsError(f"{name}.{key}: should be words, or {{subject}} or {{attribute}}", f"it is {given!r}")
    forms = _phrases(row, f"{name}.", "forms")
    if not forms:
        raise SettingsError(f"{name}.forms: is missing", "a rule has forms of sentences")
    return LearningRule(
        kind=Kind(row["kind"]),
        forms=tuple(_form(one, f"{name}.forms") for one in forms),
        excluded=_beginning(_phrases(row, f"{name}.", "except"), r"(?!)"),
        needed=_beginning(_phrases(row, f"{name}.", "needs"), ""),
        sure=row.get("sure", True),
        named=row.get("named", False),
        subject=row.get("subject", ""),
        attribute=row.get("attribute", ""),
    )


def _form(form: str, name: str) -> re.Pattern[str]:
    """A form as a pattern of a whole sentence. Reasons may follow it."""
    parts = list[str]()
    for group, optional, chosen, blank, word in _WORD.findall(form):
        if group and group not in _GROUPS:
            raise SettingsError(f"{name}: {{{group}}} is no part of a form", f"there are: {', '.join(sorted(_GROUPS))}")
        some = _either((optional or chosen).split("|"))
        made = rf"(?P<{group}>\S.*?)" if group else rf"(?:(?:{some})(?:\s+|(?=[,:])))?" if optional else ""
        parts.append(made or (rf"(?:{some})" if chosen else r"\s+" if blank else re.escape(word)))
    try:
        return re.compile("".join(parts) + rf"(?:{WHY.pattern}.*)?\Z", re.IGNORECASE)
    except re.error as fault:
        raise SettingsError(f"{name}: {form!r} is no form: {fault}", "each of its parts may come once") from fault


def _openers(words: Mapping[str, list[str]]) -> re.Pattern[str]:
    """`remember that` is tried before `remember`, which says less."""
    kept, hedge, others = (_either(words[name]) for name in ("remember", "hedges", "openers"))
    opener = rf"(?P<remember>{kept})|(?P<hedge>{hedge})|(?:{others})"
    return re.compile(rf"(?:(?:{opener})(?:\s*[,:;.!]\s*|\s+))+", re.IGNORECASE)


def _others(words: Mapping[str, list[str]]) -> re.Pattern[str]:
    """What a line's head holds where another person speaks: a medium and who, a verb of saying, a nick, a time."""
    media, says = _either(words["media"]), _either(words["says"])
    who = r"(?!(?:as )?(?:i|we)\b)"
    return re.compile(rf"{who}(?:.*\b(?:{media})\b.*\b(?:from|by)\b|.*\b(?:{says})\b|.*\d:\d\d|\s*[@<]\w)", re.I)


def _outcomes(words: Mapping[str, list[str]]) -> re.Pattern[str]:
    """The longest phrase first, whichever outcome it tells: `that worked partly` before `that worked`."""
    told = sorted(((one, name) for name in OUTCOMES for one in words[name]), key=lambda pair: -len(pair[0]))
    parts = "|".join(rf"(?P<{name}{number}>{re.escape(one)})" for number, (one, name) in enumerate(told))
    return re.compile(rf"(?:{parts})(?![\w'])", re.IGNORECASE) if told else re.compile(r"(?!)")


def _beginning(words: Sequence[str], none: str) -> re.Pattern[str]:
    """One of these words first; `none`: the pattern where there are none."""
    return re.compile(rf"(?:{_either(words)})(?![\w-])" if words else none, re.IGNORECASE)


def _phrases(row: Mapping[str, Any], name: str, key: str) -> list[str]:
    phrases = row.get(key, [])
    if not isinstance(phrases, list) or not all(isinstance(one, str) and one for one in phrases):
        raise SettingsError(f"{name}{key}: should be a list of phrases", f"it is {phrases!r}")
    return phrases


def _either(phrases: Iterable[str]) -> str:
    """The longest first: `remember that` before `remember`."""
    return "|".join(re.escape(one) for one in sorted(phrases, key=lambda one: -len(one)))
