"""What a name means where it is used: which definitions of the codex, or that it is from elsewhere, or that nobody can say.

    a name           inner functions ─▶ the module ─▶ what imports bind ─▶ `import *`      else it is from elsewhere
    receiver.name    what the receiver is ─▶ a module's names, or a class's members and those of its bases
    a receiver       self, cls, super() · a variable by its annotation, or by what it was set to · a call by its class, or
                     by what its function says it returns

Nothing is run and nothing is guessed: a parameter without an annotation is of no known type. Where a language has no query
for receivers and bindings, nothing is known but names. Results are remembered for as long as the resolver lives.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from codex.graph.modules import PACKAGES
from codex.outline.facts import BASE, EVERYTHING, WHOLE_MODULE, Binding, FileFacts, Typed, Use

_DEEP = 24  # values of variables that one look-up evaluates within each other
_STEPS = 500  # expressions that one look-up may evaluate: variables that are set a hundred times, each from others
_REMEMBERED = 50_000  # expressions: some 20 MB
_NAME = re.compile(r"[^\W\d]\w*")
_SELF, _CLASS, _SUPER = ("self", "this"), "cls", "super"
_WRAPPED = re.compile(r"^(?:\w+\.)*(Optional|Annotated|ClassVar|Final|Union|Required|type|Type)\[(.*)\]$")
_ANYTHING = frozenset({"Any", "object"})


class Sort(Enum):
    """What an expression is."""

    MODULE = "module"
    CLASS = "class"
    INSTANCE = "instance"
    SUPER = "super"
    OTHER = "other"  # a function or a variable
    OUTSIDE = "outside"  # known, and not of this codex


@dataclass(frozen=True, slots=True)
class Referent:
    """`at`: the number of the definition in the file; -1 of a module. `owner`: of a method the class it was asked of."""

    sort: Sort
    path: str = ""
    at: int = -1
    owner: "Referent | None" = None


OUTSIDE = Referent(Sort.OUTSIDE)
Place = tuple[str, int]
"""A definition: its file and its number there."""
FactsOf = Callable[[str], FileFacts | None]


@dataclass
class Resolver:
    """`facts_of` gives those of a file of the codex. `modules` finds files by the name of a module and who imports it."""

    facts_of: FactsOf
    modules: Callable[[str, str], Sequence[str]]
    _known: dict[tuple[str, str, int], tuple[Referent, ...]] = field(default_factory=dict)
    _open: set[tuple[str, str, int]] = field(default_factory=set)
    _bases: dict[Place, tuple[Referent, ...]] = field(default_factory=dict)
    _left: int = 0  # steps of the look-up that runs
    _cuts: int = 0  # look-ups that ended in themselves, or too deep

    def meant(self, file: FileFacts, use: Use) -> tuple[Place, ...] | None:
        """The definitions that a use means, none where they are not of this codex; None where that cannot be said."""
        if use.receiver is None:
            return None
        scope = scope_of(file, use)
        if not self._open:
            self._left = _STEPS
        if use.receiver == "":
            return _places(self._name(file, use.name, scope))
        of_whom = self._value(file, use.receiver, scope)
        if not of_whom:
            return None
        found = [one for value in of_whom for one in self._attribute(value, use.name)]
        return _places(found)

    def bases(self, path: str, at: int) -> tuple[Referent, ...]:
        """What a class is derived from, in order."""
        known = self._bases.get((path, at))
        if known is None:
            self._bases[path, at] = ()  # a class that is looked for while its own bases are
            file = self.facts_of(path)
            uses = file.bases_by_class.get(at, ()) if file is not None else ()
            targets = [one for use in uses for one in (self.meant(file, use) if file is not None else None) or ()]
            known = self._bases[path, at] = tuple(map(self._definition, targets))
        return known

    # -- names

    def _name(self, file: FileFacts, name: str, scope: int) -> list[Referent]:
        """Targets of a bare name; OUTSIDE for one that nothing here explains."""
        at = scope
        while at >= 0:
            holder = file.defined[at]
            if at == scope or not holder.is_class:
                local = self._own(file, f"{holder.qualname}.{name}")
                if local:
                    return local
                if any(owner == at for owner, _ in file.by_variable.get(name, ())):
                    return []
            at = holder.holder
        return self._global(file, name, set()) or [OUTSIDE]

    def _global(self, file: FileFacts, name: str, seen: set[tuple[str, str]]) -> list[Referent]:
        """What a module calls so: its own, what it imports under this name, what it takes over whole. `seen`: names of
        modules that the look-up has come through."""
        own = self._own(file, name)
        if own:
            return own
        if (file.path, name) in seen:
            return []
        seen.add((file.path, name))
        bound = [one for binding in file.by_bound.get(name, ()) for one in self._bound(file, binding, seen)]
        if bound:
            return bound
        for binding in file.by_bound.get(EVERYTHING, ()):
            for path in self.modules(binding.module, file.path):
                other = self.facts_of(path)
                found = self._global(other, name, seen) if other is not None else []
                if found:
                    return found
        return []

    def _bound(self, file: FileFacts, binding: Binding, seen: set[tuple[str, str]]) -> list[Referent]:
        paths = self.modules(binding.module, file.path)
        if binding.member == WHOLE_MODULE:
            return [Referent(Sort.MODULE, path) for path in paths] or [OUTSIDE]
        found = [one for path in paths for one in self._of_module(path, binding.member, seen)]
        return found or [OUTSIDE]

    def _of_module(self, path: str, name: str, seen: set[tuple[str, str]]) -> list[Referent]:
        """A name of a module: what it calls so, else a module below it."""
        file = self.facts_of(path)
        found = self._global(file, name, seen) if file is not None else []
        if found:
            return found
        below = self.modules(f".{name}", path) if path.endswith(PACKAGES) else ()
        return [Referent(Sort.MODULE, one) for one in below]

    def _own(self, file: FileFacts, qualname: str) -> list[Referent]:
        """What a file defines so: of several the last, which takes the place of the others (`@overload`)."""
        found = file.by_qualname.get(qualname, ())[-1:]
        return [self._definition((file.path, at)) for at in found]

    def _definition(self, place: Place) -> Referent:
        file = self.facts_of(place[0])
        is_class = file is not None and file.defined[place[1]].is_class
        return Referent(Sort.CLASS if is_class else Sort.OTHER, *place)

    # -- members

    def _attribute(self, value: Referent, name: str) -> list[Referent]:
        if value.sort is Sort.MODULE:
            return self._of_module(value.path, name, set()) or [OUTSIDE]
        if value.sort in (Sort.CLASS, Sort.INSTANCE, Sort.SUPER):
            return self._member(value, name, set()) or [OUTSIDE]
        return [OUTSIDE] if value.sort is Sort.OUTSIDE else []

    def _member(self, value: Referent, name: str, seen: set[Place], asked: Referent | None = None) -> list[Referent]:
        """Of the class itself, else of the first of its bases that has it. `seen`: the classes that were looked at."""
        file = self.facts_of(value.path)
        if file is None or (value.path, value.at) in seen:
            return []
        seen.add((value.path, value.at))
        asked = asked or value
        holder = file.defined[value.at]
        if value.sort is not Sort.SUPER:
            own = self._own(file, f"{holder.qualname}.{name}")
            if own:
                return [replace(one, owner=asked) for one in own]
        for base in self.bases(value.path, value.at):
            if base.sort is Sort.CLASS:
                found = self._member(base, name, seen, asked)
                if found:
                    return found
        return []

    # -- values

    def _value(self, file: FileFacts, expression: str, scope: int) -> tuple[Referent, ...]:
        """What an expression may be; nothing where that is not known."""
        key = (file.path, expression, scope)
        if key in self._known:
            return self._known[key]
        self._left -= 1
        if key in self._open or len(self._open) > _DEEP or self._left < 0:
            self._cuts += 1
            return ()
        before = self._cuts
        self._open.add(key)
        try:
            found = tuple(dict.fromkeys(self._evaluated(file, expression.strip(), scope)))
        finally:
            self._open.discard(key)
        if not self._open or self._cuts == before:  # one that was cut short may be longer from elsewhere
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return found

    def _evaluated(self, file: FileFacts, expression: str, scope: int) -> list[Referent]:
        expression = expression.removeprefix("await ")
        for either in (" or ", " if "):
            if either in expression and _closed(expression.partition(either)[0]):
                first, _, rest = expression.partition(either)
                last = rest.rpartition(" else ")[2]
                return [*self._value(file, first, scope), *self._value(file, last, scope)]
        while expression.startswith("(") and _end_of(expression, 0) == len(expression):
            expression = expression[1:-1].strip()
        if not expression:
            return []
        if expression[0] in "[{('\"" or expression[0].isdigit() or expression in ("None", "True", "False"):
            return [OUTSIDE]
        steps = list(_steps(expression))
        return self._followed(file, steps, scope) if steps else []

    def _followed(self, file: FileFacts, steps: Sequence[str], scope: int) -> list[Referent]:
        found, rest = self._begun(file, steps, scope)
        while rest:
            step, rest = rest[0], rest[1:]
            if step == "(":
                found = [one for value in found for one in self._called(value)]
            elif step == "[":
                found = [one for one in found if one is OUTSIDE]
            else:
                attributes = [one for value in found for one in self._attribute_value(value, step)]
                found = (
                    attributes if rest and rest[0] == "(" else [one for each in attributes for one in self._read(each)]
                )
        return found

    def _begun(self, file: FileFacts, steps: Sequence[str], scope: int) -> tuple[list[Referent], Sequence[str]]:
        """What the first name is, and the steps behind it."""
        name, rest = steps[0], steps[1:]
        around = _class_around(file, scope)
        if name in (*_SELF, _CLASS, _SUPER) and around >= 0:
            sort = Sort.INSTANCE if name in _SELF else Sort.CLASS if name == _CLASS else Sort.SUPER
            called = name == _SUPER and rest[:1] == ["("]
            return [Referent(sort, file.path, around)], rest[1:] if called else rest
        at = scope
        while at >= 0:
            said = [one for owner, one in file.by_variable.get(name, ()) if owner == at]
            if said and not file.defined[at].is_class:
                return self._of_type(file, said, at), rest
            at = file.defined[at].holder
        targets = self._name(file, name, scope)
        return targets if rest and rest[0] == "(" else [one for each in targets for one in self._read(each)], rest

    def _attribute_value(self, value: Referent, name: str) -> list[Referent]:
        found = self._attribute(value, name) if value.sort is not Sort.INSTANCE else self._member(value, name, set())
        known = [one for one in found if one.sort is not Sort.OUTSIDE]
        if value.sort in (Sort.INSTANCE, Sort.SUPER, Sort.CLASS) and not any(one.sort is Sort.CLASS for one in known):
            said = self._set_on(value, name, set())
            if said:
                return said
        return found

    def _set_on(self, value: Referent, name: str, seen: set[Place]) -> list[Referent]:
        """What methods set `self.name` to, of the class or of its bases."""
        file = self.facts_of(value.path)
        if file is None or (value.path, value.at) in seen:
            return []
        seen.add((value.path, value.at))
        within = file.defined[value.at]
        for own in _SELF:
            said = [
                (owner, one)
                for owner, one in file.by_variable.get(f"{own}.{name}", ())
                if within.start <= one.line <= within.end
            ]
            found = [each for owner, one in said for each in self._of_type(file, [one], owner)]
            if found:
                return found
        for base in self.bases(value.path, value.at):
            if base.sort is Sort.CLASS:
                found = self._set_on(base, name, seen)
                if found:
                    return found
        return []

    def _read(self, target: Referent) -> list[Referent]:
        """What the name of a target gives when it is not called: a property what it returns, a variable what it holds."""
        if target.sort is not Sort.OTHER:
            return [target]
        file = self.facts_of(target.path)
        if file is None:
            return []
        one = file.defined[target.at]
        if one.kind in ("function", "method"):
            return self._called(target)
        said = [each for owner, each in file.by_variable.get(one.name, ()) if owner == one.holder]
        return self._of_type(file, said, one.holder)

    def _called(self, target: Referent) -> list[Referent]:
        if target.sort is Sort.CLASS:
            return [Referent(Sort.INSTANCE, target.path, target.at)]
        if target.sort is not Sort.OTHER:
            return [target] if target is OUTSIDE else []
        file = self.facts_of(target.path)
        one = file.defined[target.at] if file is not None else None
        if file is None or one is None or not one.returns:
            return []
        if one.returns.strip("\"'").rpartition(".")[2] == "Self" and target.owner is not None:
            return [Referent(Sort.INSTANCE, target.owner.path, target.owner.at)]
        return self._annotated(file, one.returns, one.holder)

    def _of_type(self, file: FileFacts, said: Sequence[Typed], scope: int) -> list[Referent]:
        """By the annotations of a variable, else by what it is set to."""
        types = [one for one in said if one.type]
        if types:
            return [each for one in types for each in self._annotated(file, one.type, scope)]
        return [each for one in said if one.value for each in self._value(file, one.value, scope)]

    def _annotated(self, file: FileFacts, text: str, scope: int) -> list[Referent]:
        """An instance of what an annotation names; of a union each of its parts."""
        text = text.strip().strip("\"'")
        parts = list(_split(text, "|"))
        if len(parts) > 1:
            return [one for part in parts if part.strip() != "None" for one in self._annotated(file, part, scope)]
        wrapped = _WRAPPED.match(text)
        if wrapped is not None:
            inner = list(_split(wrapped[2], ","))
            if wrapped[1] in ("type", "Type"):
                found = self._annotated(file, inner[0], scope)
                return [Referent(Sort.CLASS, one.path, one.at) for one in found if one.sort is Sort.INSTANCE]
            chosen = inner if wrapped[1] == "Union" else inner[:1]
            return [one for part in chosen if part.strip() != "None" for one in self._annotated(file, part, scope)]
        named = text.partition("[")[0]
        if named.rpartition(".")[2] in _ANYTHING:
            return []
        at = scope if scope < 0 or file.defined[scope].is_class else file.defined[scope].holder
        values = self._value(file, named, at)
        made = [Referent(Sort.INSTANCE, one.path, one.at) if one.sort is Sort.CLASS else one for one in values]
        return [one for one in made if one.sort in (Sort.INSTANCE, Sort.OUTSIDE)]


def scope_of(file: FileFacts, use: Use) -> int:
    """The definition in which a use is evaluated: decorators and bases are outside of what they are of."""
    at = file.around(use.line)
    while at >= 0 and (use.line < file.defined[at].line or (use.kind == BASE and file.defined[at].is_class)):
        at = file.defined[at].holder
        if use.kind == BASE:
            break
    return at


def _places(found: Sequence[Referent]) -> tuple[Place, ...]:
    return tuple(dict.fromkeys((one.path, one.at) for one in found if one.at >= 0))


def _class_around(file: FileFacts, scope: int) -> int:
    at = scope
    while at >= 0 and not file.defined[at].is_class:
        at = file.defined[at].holder
    return at


def _steps(expression: str) -> Iterator[str]:
    """`a.b(c)[0]` as a, b, (, [; nothing for what is no chain of names, calls and items."""
    found: list[str] = []
    at = 0
    while at < len(expression):
        if expression[at] in "([" and found:
            found.append(expression[at])
            at = _end_of(expression, at)
            if at < 0:
                return
        else:
            at += found != [] and expression[at] == "."
            name = _NAME.match(expression, at)
            if name is None:
                return
            found.append(name[0])
            at = name.end()
        if at < len(expression) and expression[at] not in ".([":
            return
    yield from found


def _end_of(text: str, at: int) -> int:
    """Behind the bracket that closes the one at `at`; -1 where none does. Brackets in strings count, too."""
    depth = 0
    for number in range(at, len(text)):
        depth += (text[number] in "([{") - (text[number] in ")]}")
        if depth == 0:
            return number + 1
    return -1


def _closed(text: str) -> bool:
    return sum((one in "([{") - (one in ")]}") for one in text) == 0


def _split(text: str, by: str) -> Iterator[str]:
    """At the separators that stand in no bracket."""
    begun, depth = 0, 0
    for at, one in enumerate(text):
        depth += (one in "([{") - (one in ")]}")
        if one == by and depth == 0:
            yield text[begun:at]
            begun = at + 1
    yield text[begun:]
