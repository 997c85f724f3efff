"""Whether a value has the shape that the wire promises of it, and replies of which a test says only what it needs."""

from types import NoneType
from typing import Literal, get_args, get_origin


def unlike(shape, value):
    """Where a value is not what its shape says: whole values are compared, so that one more key shows as well."""
    kept = shape.model_validate(value).model_dump(mode="json", by_alias=True, exclude_unset=True)
    return [] if kept == value else differences(kept, value)


def differences(kept, value, place=""):
    if isinstance(kept, dict) and isinstance(value, dict):
        missing = [f"{place}.{key} is not in the shape" for key in value.keys() - kept.keys()]
        return missing + [
            one for key in value.keys() & kept.keys() for one in differences(kept[key], value[key], f"{place}.{key}")
        ]
    if isinstance(kept, list) and isinstance(value, list) and len(kept) == len(value):
        return [
            one for at, pair in enumerate(zip(kept, value, strict=True)) for one in differences(*pair, f"{place}[{at}]")
        ]
    return [] if kept == value else [f"{place}: {value!r} was read as {kept!r}"]


def filled(shape, **given):
    """A complete reply: a required field that is not given is empty; a `given` one may be a dictionary for its shape."""
    values = {}
    for name, field in shape.model_fields.items():
        if name in given:
            inner = shape_of(field.annotation)
            values[name] = filled(inner, **given[name]) if inner and isinstance(given[name], dict) else given[name]
        elif field.is_required():
            values[name] = empty(field.annotation)
    return shape.model_validate(values)


def shape_of(kind):
    kinds = (kind,) if get_origin(kind) is None else get_args(kind) if get_origin(kind) is not tuple else ()
    return next((one for one in kinds if hasattr(one, "model_fields")), None)


def empty(kind):
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if kind in (None, NoneType) or NoneType in get_args(kind):
        return None
    kind = get_origin(kind) or kind
    return filled(kind) if hasattr(kind, "model_fields") else kind()
