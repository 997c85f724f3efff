"""Reads settings in their order: system file, user's file, LORE_* variables, options. Later ones win, key by key.

Every key keeps where it came from; `describe` shows them as a table with value, default, unit, range and help;
`with_value` edits a user's file. Knows no setting by name but the short variables.
"""

import difflib
import json
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from orchestrator.errors import NotFound, SettingsError, instead
from orchestrator.settings.model import Settings, SigilRule, TokenRule
from orchestrator.settings.paths import SYSTEM_CONFIG, Paths, write_whole
from orchestrator.settings.units import Measure
from orchestrator.wire.places import SHIPPED_IDENTITY, path_of
from orchestrator.wire.wording import wording

log = logging.getLogger("lorekeep.settings")

ALIKE = 0.65  # difflib's ratio, from which a name counts as another one mistyped
PREFIX = "LORE_"
SHORT = {"LORE_MODEL": "model.path", "LORE_SOCKET": "serve.socket", "LORE_TCP": "serve.tcp", "LORE_LOG": "log.level"}
NOT_SETTINGS = {"LORE_CONFIG", "LORE_DEBUG", "LORE_ENGINE_KEY"}  # read by the command line itself

Values = Mapping[str, Any]  # dotted key: value


@dataclass(frozen=True)
class LoadedSettings:
    """The settings, and for every key that was set the file, variable or option it came from."""

    settings: Settings
    origins: Mapping[str, str]
    files: tuple[Path, ...]


def load(environ: Mapping[str, str], *, config: Path | None = None, options: Values | None = None) -> LoadedSettings:
    """All sources merged and checked. `config` replaces the two files. Raises SettingsError."""
    files = config_files(environ, config)
    sources = [(str(file), read_file(file)) for file in files]
    sources += [(name, {key: value}) for name, key, value in variables(environ)]
    sources += [(f"option --{option_of(key)}", {key: v}) for key, v in (options or {}).items()]
    values = {key: value for _, found in sources for key, value in found.items()}
    origins = {key: origin for origin, found in sources for key in found}
    return LoadedSettings(validated(values, origins), origins, files)


def option_of(key: str) -> str:
    """`lore serve`'s name for it."""
    names = {"model.path": "model", "engine.url": "engine"}
    return names[key] if key in names else key.rpartition(".")[2].replace("_", "-")


def config_files(environ: Mapping[str, str], config: Path | None = None) -> tuple[Path, ...]:
    """Those of them that exist; a file that was named must."""
    named = named_file(environ, config)
    if named is not None and not named.is_file():
        raise SettingsError(f"no configuration file {named}", "name one that exists, or leave out --config")
    return tuple(file for file in looked_for(environ, config) if file.is_file())


def looked_for(environ: Mapping[str, str], config: Path | None = None) -> tuple[Path, ...]:
    """The files that are read where they exist, in their order."""
    named = named_file(environ, config)
    return (SYSTEM_CONFIG, user_file(environ)) if named is None else (named,)


def named_file(environ: Mapping[str, str], config: Path | None = None) -> Path | None:
    """The one file in place of the usual ones, where somebody names one."""
    named = environ.get("LORE_CONFIG")
    return config or (Path(named) if named else None)


def user_file(environ: Mapping[str, str]) -> Path:
    return Paths.of(environ).config / "config.toml"


def read_file(file: Path) -> dict[str, Any]:
    try:
        return dict(flattened(tomllib.loads(file.read_text("utf-8"))))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: {error}", "correct the TOML at that place") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not UTF-8 at byte {error.start}", "save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{file}: {too_much(error)}", "correct the TOML at that place") from error
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}", "make it readable for the daemon's user") from error


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def variables(environ: Mapping[str, str]) -> Iterable[tuple[str, str, Any]]:
    """(variable, key, value): LORE_MODEL__THREADS=4 sets model.threads; a list is written in JSON."""
    for name in sorted(environ):
        if name in SHORT:
            yield name, SHORT[name], environ[name]
        elif name.startswith(PREFIX) and name not in NOT_SETTINGS:
            yield name, name.removeprefix(PREFIX).lower().replace("__", "."), from_text(name, environ[name])


def from_text(name: str, text: str) -> Any:
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"{name}: not JSON: {error}", "write a list as JSON") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{name}: {too_much(error)}", "write a list as JSON") from error


def too_much(error: ValueError | RecursionError) -> str:
    """What the parsers themselves do not refuse in words of their own."""
    if isinstance(error, RecursionError):
        return "values are nested too deeply"
    return f"a number has too many digits: {error}"


def validated(values: Values, origins: Mapping[str, str]) -> Settings:
    try:
        return sigils_known(Settings.model_validate(nested(values, origins)), origins)
    except ValidationError as error:
        raise refusal(error.errors(include_url=False)[0], origins) from error


def sigils_known(settings: Settings, origins: Mapping[str, str]) -> Settings:
    """The same. Raises SettingsError for a token whose sigil does not exist: silence would lock somebody out."""
    for name, token in settings.tokens.items():
        wrong = settings.unknown_sigil(token.sigil)
        if wrong:
            key = f"tokens.{name}.sigil"
            raise SettingsError(f"{origin_of(key, origins)}: {key}: {wrong}", "name one of them, or write its table")
    return settings


def nested(values: Values, origins: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *tables, leaf = key.split(".")
        place = tree
        for depth, table in enumerate(tables, 1):
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                name = ".".join(tables[:depth])
                raise SettingsError(f"{origins[key]}: {name} is a table and a value at once", f"write it as [{name}]")
        place[leaf] = value
    return tree


def refusal(fault: Mapping[str, Any], origins: Mapping[str, str]) -> SettingsError:
    kind, message, given, context = fault["type"], fault["msg"], fault["input"], fault.get("ctx") or {}
    key = key_at(fault["loc"], origins)
    origin = origin_of(key, origins)
    if kind == "extra_forbidden":
        section = any(found.startswith(f"{key}.") for found in origins)
        what, near = (f"section [{key}]", nearest_section(key)) if section else (f"setting {key}", nearest(key))
        hint = f"the nearest known one is {near}" if near else "`lore config show` lists every setting"
        return SettingsError(f"{origin}: unknown {what}", hint)
    if kind == "literal_error":
        choices = re.findall(r"'([^']+)'", message)
        likely = difflib.get_close_matches(str(given), choices, n=1)
        return SettingsError(
            f"{origin}: {key} should be one of {', '.join(choices)}, not {str(given)[:40]!r}",
            f"the nearest is {likely[0]}" if likely else f"write one of them, or leave out {key}",
        )
    words = "should be a table" if kind in ("dict_type", "model_type") else wording(kind, message, context)
    return SettingsError(f"{origin}: {key} {words}", f"{range_words(key)}`lore config show` lists every range")


def range_words(key: str) -> str:
    """`model.context takes ≥ 512 | auto; `, as far as its range is known."""
    found = next((field for name, field, _ in leaves(Settings()) if name == key), None)
    return f"{key} takes {range_of(found)}; " if found is not None and range_of(found) else ""


def key_at(place: tuple[int | str, ...], origins: Mapping[str, str]) -> str:
    """The key of a fault's place, which may go on with a type that was tried: `model.context.int` is no key."""
    names = [".".join(map(str, place[:parts])) for parts in range(len(place), 0, -1)]
    given = next((name for name in names if any(f"{found}.".startswith(f"{name}.") for found in origins)), names[0])
    items = place[given.count(".") + 1 :]
    return ".".join([given, *(str(item) for item in items if isinstance(item, int))])


def origin_of(key: str, origins: Mapping[str, str]) -> str:
    """Of the key itself, or of what stands above or below it: an error may name a table or an item of a list."""
    related = [found for found in origins if found == key or found.startswith(f"{key}.") or key.startswith(f"{found}.")]
    return origins[related[0]] if related else "settings"


# ---- settings as a table for people ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    key: str
    value: Any
    default: Any
    origin: str
    unit: str
    range: str
    help: str


def describe(settings: Settings, origins: Mapping[str, str]) -> list[Row]:
    return [
        Row(
            key=key,
            value=shown(value),
            default=shown(field.default),
            origin=origins.get(key, "default"),
            unit=unit_of(field),
            range=range_of(field),
            help=field.description or "",
        )
        for key, field, value in leaves(settings)
    ]


def leaves(part: BaseModel, prefix: str = "") -> Iterable[tuple[str, FieldInfo, Any]]:
    """Every setting below `part`, also those of named tables (sigils, tokens) that exist."""
    for name, field in type(part).model_fields.items():
        value, name = getattr(part, name), field.alias or name
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        elif isinstance(value, dict):
            for entry, rule in value.items():
                yield from leaves(rule, f"{prefix}{name}.{entry}.")
        else:
            yield f"{prefix}{name}", field, value


def nearest(key: str) -> str:
    """The known key that is most like this one: in its section, else with its name in another one. Empty: none is."""
    section, _, wanted = key.rpartition(".")
    tables: dict[str, type[BaseModel]] = {"sigils": SigilRule, "tokens": TokenRule}
    rule = tables.get(section.partition(".")[0], BaseModel)
    names = {f"{section}.{name}": name for name in rule.model_fields}
    names |= {known: known.rpartition(".")[2] for known, _, _ in leaves(Settings())}
    within = {known: name for known, name in names.items() if known.startswith(f"{section}.")} or names
    close = difflib.get_close_matches(wanted, within.values(), cutoff=ALIKE)
    like = [known for known, name in within.items() if name in close or wanted in name]
    like = like or [known for known, name in names.items() if name == wanted]
    return difflib.get_close_matches(key, like, n=1, cutoff=0.0)[0] if like else ""


def nearest_section(name: str) -> str:
    """As `[model]`; empty where none is like it."""
    return next((f"[{near}]" for near in difflib.get_close_matches(name, Settings.model_fields, n=1)), "")


def shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value)


def unit_of(field: FieldInfo) -> str:
    return next((rule.name for rule in field.metadata if isinstance(rule, Measure)), "")


def range_of(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "range" in extra:  # where a number or a word may stand
        return str(extra["range"])
    signs = {"ge": "≥ ", "gt": "> ", "le": "≤ ", "lt": "< "}
    bounds = [
        f"{sign}{getattr(rule, name)}" for rule in field.metadata for name, sign in signs.items() if hasattr(rule, name)
    ]
    choices = [str(choice) for choice in get_args(field.annotation) if isinstance(choice, str)]
    return ", ".join(bounds) or " | ".join(choices)


# ---- one setting written --------------------------------------------------------------------------------------------


def with_value(text: str, table: str, key: str, value: str) -> str:
    """The TOML `text` with `[table] key = "value"`: comments, order and blanks stay as the user wrote them.

    Raises SettingsError where the text is no TOML or cannot be edited safely: what comes out is read once more by Python's
    own parser and compared.
    """
    import tomlkit  # the daemon writes no settings
    from tomlkit.exceptions import TOMLKitError

    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the configuration is no TOML: {error}", "correct it at that place") from error
    try:
        document: Any = tomlkit.parse(text)
        if table not in document:
            if text.strip():
                document.add(tomlkit.nl())
            document[table] = tomlkit.table()
        document[table][key] = value
        changed = tomlkit.dumps(document)
        good = tomllib.loads(changed) == {**before, table: {**before.get(table, {}), key: value}}
    except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, AttributeError):  # the last two: `table` is another value
        good = False
    if not good:
        raise SettingsError(f"{table}.{key} is written in a way that cannot be edited", "change it by hand")
    return changed


def write_value(
    table: str, key: str, value: str, environ: Mapping[str, str], config: Path | None = None
) -> tuple[Path, bool]:
    """Writes one setting to `config`, or to the file that is in use; the file, and whether that changed it. Raises
    SettingsError."""
    file = named_file(environ, config) or user_file(environ)
    try:
        before = file.read_text("utf-8") if file.exists() else ""
        after = with_value(before, table, key, value)
        if after != before:
            write_whole(file, after)
    except (OSError, UnicodeDecodeError) as error:
        hint = "check the file, its folder and their owner"
        raise SettingsError(f"{file} cannot be written: {error}", hint) from error
    return file, after != before


def read_key_file(setting: str, file: str, most: int) -> tuple[Path, bytes]:
    """Where it is, and at most a byte more than `most` of it: so long a one is another file. Raises SettingsError, of which
    no message has what is in it."""
    path = path_of(file)
    try:
        # A pipe that nobody writes to is empty, instead of waited for.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            found, others = opened.read(most + 1), os.fstat(opened.fileno()).st_mode & 0o077
    except OSError as error:
        raise SettingsError(f"{setting}: {path}: {error.strerror}", "make it readable for the daemon") from error
    if others:
        log.warning("others may read the key in %s: chmod 600 %s", path, path)
    return path, found


# -- the default identity, without a daemon


def refuse_unknown_identity(name: str, folder: Path) -> None:
    """Raises NotFound with the nearest names."""
    known = {SHIPPED_IDENTITY, *(path.stem for path in folder.glob("*.md"))}
    if name not in known:
        raise NotFound(f"no identity named {name!r}", f"{instead(name, sorted(known), '', '')}; they lie in {folder}")


def use_identity(name: str, environ: Mapping[str, str], config: Path | None = None) -> dict[str, Any]:
    """Writes `identity.default`; what was written, where, and which variable hides it. Raises SettingsError."""
    file, changed = write_value("identity", "default", name, environ, config)
    variable = f"{PREFIX}IDENTITY__DEFAULT"
    hidden = variable if environ.get(variable) else ""
    return {"default": name, "file": str(file), "changed": changed, "overridden": hidden}
