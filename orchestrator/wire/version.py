"""The version of what is installed. Asked late: reading package metadata costs tens of milliseconds."""

import functools

HEADER = "x-lorekeep-version"


@functools.cache
def installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lorekeep")
    except PackageNotFoundError:
        return "0+unknown"  # run from a source tree that was never installed
