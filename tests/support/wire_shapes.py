"""Whether a value has the shape that the wire promises of it."""


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
