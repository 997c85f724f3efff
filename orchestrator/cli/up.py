"""`lore up`: from an empty machine to a first answer. Each step is skipped where it was done, so the same command goes on.

    choose a model ─▶ download it ─▶ take it into use ─▶ start the daemon ─▶ load the folder ─▶ ask

The steps are those of `lore model get`, `lore model use`, `lore service install`, `lore load` and `lore ask`; here is only
what is asked between them. The model's words are pure.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import local, model, service
from orchestrator.cli import options as given
from orchestrator.cli.ask import ROUTE, Answer, AskOptions, body_of, finish, received, working_directory
from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.codex import Watch, load_source, may_be_asked
from orchestrator.cli.places import PlacesOfAnswer
from orchestrator.cli.showing import shown
from orchestrator.cli.terminal import Report, note, output, result_json
from orchestrator.wire import faults
from orchestrator.wire.places import SOCKET_VARIABLE, is_url

if TYPE_CHECKING:
    from orchestrator.wire.models import AdvisedModel, ModelAdvice

PathToLoad = Annotated[str, typer.Argument(metavar="[PATH]", help="the directory to load")]
ModelName = Annotated[
    str | None,
    given.option(
        "--model NAME", "take this one: a name of docs/models.md, hf:OWNER/REPO/FILE.gguf, or a model at hand"
    ),
]
Question = Annotated[str | None, given.option("-q, --question TEXT", "ask this at the end, without being asked for it")]
Yes = Annotated[
    bool, given.option("-y, --yes", "take the first model, install the service where no daemon runs, ask nothing")
]
Service = Annotated[
    bool | None, given.option("--service/--no-service", "install the daemon as your service where none runs, or do not")
]
DryRun = Annotated[bool, given.option("--dry-run", "show the models for this machine and change nothing")]
AGAIN = "then the same command again: it goes on from here"


@dataclass(frozen=True)
class ChosenModel:
    """`source`: where it is downloaded from; '' where it is at hand, and `setting` names it. `sha256`: of the table."""

    setting: str
    source: str = ""
    sha256: str = ""
    kept: bool = False  # it is in use


def up(
    path: PathToLoad = ".",
    model_name: ModelName = None,
    question: Question = None,
    yes: Yes = False,
    use_service: Service = None,
    dry_run: DryRun = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Brings up everything: a model for this machine, the daemon, a loaded directory, a first answer."""
    source = load_source(path)
    if not is_url(source) and not Path(source).exists():  # not after a download of gigabytes
        raise Failure(faults.USAGE, f"there is no {source}", "name the directory to load: lore up PATH")
    if dry_run:
        if model_name is not None:
            model_named(model_name)
        output(advice().model_dump(mode="json"), advice_page, as_json=as_json)
        return
    if model.running(socket) is None and not can_be_installed(socket, use_service):
        note(
            "no daemon runs, and none can be installed here: start one in another terminal meanwhile, with: lore serve"
        )
    choice = chosen(model_name, socket, yes=yes)
    setting = fetched(choice)
    if not choice.kept:
        model.use(setting, socket=socket)
    ensure_daemon(socket, use_service, yes=yes)
    codex = Watch(socket, as_json).until_loaded(Daemon(socket).stream("/v1/codices", {"path": source}))
    asked = question or first_question(silent=yes or as_json)
    answer = first_answer(asked, str(codex["name"]), socket, as_json=as_json) if asked else None
    if as_json:
        told = {"answer": "".join(answer.text), "lore": answer.lore} if answer else {"answer": None}
        result_json({"event": "up", "model": setting, "codex": codex["name"], **told})
    elif answer is None:
        note(f'ask: lore ask "What does this project do?" -c {codex["name"]}')


# ---- which model -----------------------------------------------------------------------------------------------------


def chosen(name: str | None, socket: str | None, *, yes: bool) -> ChosenModel:
    """The model that is named, or that is in use, or that somebody takes of those for this machine. Raises Failure."""
    if name is not None:
        return model_named(name)
    if setting := in_use(socket):
        note(f"the model is {setting}; another one: lore up --model NAME")
        return ChosenModel(setting, kept=True)
    found = advice()
    note(advice_page(found.model_dump(mode="json")))
    if not found.models:
        raise Failure(faults.OVER_BUDGET, "no model of docs/models.md fits this machine", "lore model use FILE.gguf")
    one = picked(found.models, yes=yes)
    return ChosenModel("", one.source, one.sha256)


def in_use(socket: str | None) -> str:
    """A real model that answers now, or that is configured; '' where none is."""
    report = model.status(socket)
    setting = str(report["model"]["name"]) if report else local.settings().settings.model.path
    return "" if setting.startswith("builtin:") else setting


def model_named(name: str) -> ChosenModel:
    """Raises Failure for what is neither in the table nor on a hub nor at hand."""
    from orchestrator.errors import NotFound
    from orchestrator.model.model_file import setting_of
    from orchestrator.reports.recommended import published

    if name.startswith("hf:"):
        return ChosenModel("", name)
    if one := next((one for one in published() if one.name == name), None):
        return ChosenModel("", one.source, one.sha256)
    with local.translated():
        try:
            return ChosenModel(setting_of(name, local.paths().models))
        except NotFound as error:
            known = ", ".join(one.name for one in published())
            raise NotFound(error.message, f"to download there are: {known}; {error.hint}") from error


def advice() -> "ModelAdvice":
    """For this machine; a model of which something is downloaded already comes first."""
    from orchestrator.reports.recommended import advice_here

    return advice_here(local.settings().settings, local.paths(), begun=is_begun)


def is_begun(source: str) -> bool:
    """Whether the file is there, or a part of it."""
    file = target_of(source)
    return file.exists() or file.with_name(f"{file.name}.part").exists()


def target_of(source: str) -> Path:
    from orchestrator.cli.download import located

    return local.paths().models / located(source).file


def picked(models: Sequence["AdvisedModel"], *, yes: bool) -> "AdvisedModel":
    """Enter takes the first, 0 none. Raises Failure where none is taken or nobody can be asked."""
    if yes:
        return models[0]
    if not may_be_asked():
        hint = f"--yes takes {models[0].name}, --model NAME another one"
        raise Failure(faults.USAGE, "nobody can be asked which model to take", hint)
    while True:
        said = typer.prompt(f"download which, 1 to {len(models)}, 0 for none", default="1", err=True).strip()
        if said == "0":
            hint = "a file at hand: lore up --model FILE.gguf; without a model: lore up --model builtin:quoter"
            raise Failure(faults.USAGE, "no model was taken", hint)
        if said.isdecimal() and 1 <= int(said) <= len(models):
            return models[int(said) - 1]
        note(f"{said!r} is none of them")


def fetched(choice: ChosenModel) -> str:
    """What `lore model use` takes. Raises Failure; without a network it says what to copy where."""
    if not choice.source:
        return choice.setting
    from orchestrator.cli.download import Unreachable, located

    target = target_of(choice.source)
    if target.exists():
        note(f"{target} is there")
    try:
        targets, got = model.downloaded(choice.source, again=False)
    except Unreachable as failure:
        copied = f"or download {located(choice.source).url} elsewhere and copy it to {target}, {AGAIN}"
        raise Failure(failure.status, failure.message, f"{failure.hint}; {copied}") from failure
    if got and choice.sha256 and got[0].sha256 != choice.sha256:
        note(f"the hub has another file than it had when the table was made: its sum is {got[0].sha256}")
    return str(targets[0])


# ---- the daemon ------------------------------------------------------------------------------------------------------


def ensure_daemon(socket: str | None, wanted: bool | None, *, yes: bool) -> None:
    """Installs the service where no daemon listens and somebody wants it. Raises Failure with the line that starts one."""
    if model.running(socket) is not None:
        return
    if not is_wanted(socket, wanted, yes=yes):
        raise Failure(faults.UNREACHABLE, "no daemon runs", f"start one in another terminal: lore serve; {AGAIN}")
    service.set_up(user=True, may_ask=not yes and may_be_asked())


def can_be_installed(socket: str | None, wanted: bool | None) -> bool:
    """A service listens on its own socket alone, and needs a systemd that answers."""
    return wanted is not False and not socket and not os.environ.get(SOCKET_VARIABLE) and is_systemd_there()


def is_wanted(socket: str | None, wanted: bool | None, *, yes: bool) -> bool:
    if not can_be_installed(socket, wanted):
        return False
    if wanted or yes:
        return True
    return may_be_asked() and typer.confirm("no daemon runs; install it as your service", default=True, err=True)


def is_systemd_there() -> bool:
    return set(service.unit_states(user=True).values()) != {"unknown"}


# ---- the first question ----------------------------------------------------------------------------------------------


def first_question(*, silent: bool) -> str:
    """'' where nobody asks one."""
    if silent or not may_be_asked():
        return ""
    return str(typer.prompt("a first question (Enter: none)", default="", show_default=False, err=True)).strip()


def first_answer(question: str, codex: str, socket: str | None, *, as_json: bool) -> Answer:
    options = AskOptions(codex=codex)
    events = Daemon(socket).stream(ROUTE, {**body_of(question, options), "stream": True})
    places = PlacesOfAnswer(socket, codex, working_directory())
    answer = received(socket, events, None if as_json else shown(plain=False, link=places), places)
    if not as_json:
        finish(answer, options, socket)
    return answer


# ---- the models for this machine; pure -------------------------------------------------------------------------------


def advice_page(report: Report) -> str:
    """Short lines: a model has three."""
    rows = [
        f"{number}  {one['name']}: {one['title']}\n"
        f"   {one['bytes'] / 1e9:.2f} GB, {one['licence']}, {one['words'].removeprefix('yes, ')}\n"
        f"   {one['page']}"
        for number, one in enumerate(report["models"], start=1)
    ]
    return "\n".join([report["machine"], *rows])
