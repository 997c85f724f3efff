"""Every code of a fault has one row, which both ends read."""

from orchestrator.api.app import routes
from orchestrator.errors import LoreError
from orchestrator.wire.faults import CODES, fault_code


def below(kind: type[LoreError]) -> set[type[LoreError]]:
    return {kind}.union(*map(below, kind.__subclasses__()))


def test_every_fault_that_is_raised_or_declared_has_a_row_and_no_row_is_without_a_fault():
    declared = {code for one in routes for code in one.faults}
    raised = {one.code for one in below(LoreError) if one.__module__.startswith("orchestrator.")}
    of_starlette = {"unknown_route", "wrong_method"}
    assert declared <= raised == CODES.keys() - of_starlette


def test_the_command_line_ends_with_a_status_of_its_reference_and_unknown_codes_are_failures():
    assert {one.exit_status for one in CODES.values()} <= {1, 2, 4, 5, 6, 7, 8}
    assert fault_code("new-code-of-a-newer-daemon").exit_status == 1
