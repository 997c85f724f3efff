"""The errors of the codex. Every message names the fault, the place, and what to do."""

from pathlib import Path

OPEN_FILES = "the limit of open files (ulimit -n; LimitNOFILE= of a service)"  # of this process, as a remedy names it


class CodexError(Exception):
    """Base of all refusals and of all faults that the machine causes."""


class SourceError(CodexError):
    """What should be loaded is missing, is not readable as a whole, or holds nothing to load."""


class GitError(SourceError):
    """A git URL or repository could not be cloned or read at the revision asked for."""


class NameTaken(CodexError):
    """The name belongs to a codex with another source. `proposal` is a free name."""

    def __init__(self, name: str, taken_by: str, proposal: str) -> None:
        super().__init__(
            f"codex name {name!r} is taken by {taken_by}; load with --name {proposal}, or take the name with --replace"
        )
        self.name = name
        self.proposal = proposal


class BadName(CodexError):
    """The name cannot be used for a codex."""


class UnknownCodex(CodexError):
    """No codex of that name. `known` are the names there are, in order."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        there = ", ".join(known) if known else "none is loaded"
        super().__init__(f"no codex named {name!r} (there are: {there}); load one with: lore load PATH")
        self.name = name
        self.known = known


class UnknownGeneration(CodexError):
    """The codex has no generation of that number (it may have been released)."""


class LoadRunning(CodexError):
    """Another load of the same codex is running, in this process or another one."""


class LoadCancelled(CodexError):
    """The load was cancelled. What had been stored stays, and the next load continues from it."""


class CatalogError(CodexError):
    """The catalog's file cannot be used."""


class Misplaced(CatalogError):
    """The file of a database is no longer at its path."""


class DatabaseDamaged(CatalogError):
    """The file is there and cannot be read as what it should be."""


class NewerCatalog(CatalogError):
    """The catalog was written by a newer version of this program; it is left untouched."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{path} has schema {found}, this version knows up to {known}; start the newer version, "
            "or move the file away and begin anew"
        )
        self.found = found
        self.known = known


class DiskFull(CatalogError):
    """No room for what should be stored. What had been stored before stays usable."""


class ArchiveError(CodexError):
    """The archive cannot do what was asked because of the world."""


class ArchiveOutOfReach(ArchiveError):
    """What is stored stays as it is, and cannot be read or written now: whoever tries again later may."""


class ArchiveAway(ArchiveOutOfReach):
    """The object storage cannot be reached, or refuses."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"the archive at {place} cannot be reached: {why}; nothing is lost: try again when it is back")


class ArchiveHeld(ArchiveOutOfReach):
    """Another one may write to the archive of a codex. `until`: seconds since 1970; 0 where this one never may."""

    def __init__(self, codex: str, place: str, why: str, until: float = 0.0) -> None:
        super().__init__(f"the archive of {codex!r} at {place} {why}; it is read as it is")
        self.until = until


class ArchiveDamaged(ArchiveError):
    """What was stored for a codex cannot be read; it has been set aside and must be indexed again."""

    def __init__(self, codex: str, why: str) -> None:
        super().__init__(f"the archive of {codex!r} is damaged ({why}); it was set aside and will be indexed again")
        self.codex = codex
