"""The driver goes, a GPU falls off, a call does not return: what was granted stays, questions are answered, and readings
come back by themselves. The real NVML wrapper reads a stand-in of the driver's library."""

import pytest
from support.house import CODES, ask, codebase, reply, until
from support.scarce_memory import FREE, OWN, TOTAL, fixed, on_a_card

MEMORY, START = "nvmlDeviceGetMemoryInfo", "nvmlInitWithFlags"


@pytest.fixture(scope="module")
def running(tmp_path_factory, models):
    with on_a_card(models, tmp_path_factory.mktemp("driver"), "sensor_retry = 0.1\n") as (daemon, driver):
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        fixed(daemon)
        yield daemon, driver


@pytest.fixture
def house(running):
    return running[0]


@pytest.fixture
def driver(running):
    return running[1]


def governor(house):
    return reply(house, "/v1/status")["governor"]


def card(house):
    (card,) = governor(house)["sensors"]["gpus"]
    return card


def granted(house):
    now = governor(house)
    return {name: now[name] for name in ("level", "power", "memory", "cells", "window", "unplanned", "gpus")}


def test_readings_are_shown_with_their_units_and_their_age(house):
    page = house.lore("status", "-v").stdout
    (gpu,) = [line for line in page.splitlines() if line.startswith("gpu 0 ")]
    assert gpu.split(": ", 1)[1] == (
        "1.0 GiB of 8.0 GiB used, 256.0 MiB ours, 3 % busy, 60 of 350 W, 41 °C, P8, clocks: idle"
    )
    assert " available, " in next(line for line in page.splitlines() if line.startswith("ram "))
    assert next(line for line in page.splitlines() if line.startswith("readings ")).endswith(" old")
    assert (card(house)["used"], card(house)["others"]) == (TOTAL - FREE, TOTAL - FREE - OWN)


def a_call_fails(driver, on):
    driver.fail(MEMORY, 999 if on else None)


def the_gpu_is_lost(driver, on):
    driver.show(lost=1 if on else None)


def the_gpu_falls_off(driver, on):
    driver.show(lost=1 if on else None)
    driver.set(count=0 if on else 1)


def the_driver_is_unloaded(driver, on):
    driver.fail(MEMORY, 9 if on else None)
    driver.fail(START, 9 if on else None)


def the_driver_is_replaced_under_its_library(driver, on):
    driver.fail(MEMORY, 18 if on else None)


@pytest.mark.parametrize(
    ("lose", "fault"),
    [
        (a_call_fails, "gpu 0 memory: Unknown Error"),
        (the_gpu_is_lost, "gpu 0: GPU is lost"),
        (the_gpu_falls_off, "gpu 0: not found by the driver"),
        (the_driver_is_unloaded, "nvml: Driver Not Loaded"),
        (the_driver_is_replaced_under_its_library, "nvml: RM has detected an NVML/RM version mismatch."),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_what_cannot_be_read_is_unknown_and_changes_nothing_until_it_is_back(house, driver, lose, fault):
    before = granted(house)
    lose(driver, True)
    until(lambda: fault in governor(house)["faults"])
    lost = governor(house)
    assert (lost["pressure"], lost["sensors"]["gpus"][0]["total"], lost["sensors"]["gpus"][0]["used"]) == (None,) * 3
    page = house.lore("status", "-v").stdout
    assert "NVIDIA Stand-in: " in page
    assert "unknown: memory" in page
    assert f"sensor     {fault}" in page
    assert ask(house, "zebra")["answer"].strip().startswith(CODES["zebra"])
    assert granted(house) == before
    lose(driver, False)
    until(lambda: not governor(house)["faults"] and card(house)["total"] == TOTAL)
    assert granted(house) == before


def test_a_driver_that_comes_back_with_less_free_is_followed(house, driver):
    the_driver_is_unloaded(driver, True)
    until(lambda: card(house)["total"] is None)
    driver.show(free=FREE // 2)
    the_driver_is_unloaded(driver, False)
    until(lambda: card(house)["free"] == FREE // 2)
    driver.show(free=FREE)
    until(lambda: card(house)["free"] == FREE)


def test_a_call_that_does_not_return_delays_no_question_and_the_readings_get_older(house, driver):
    driver.hang(MEMORY)
    until(lambda: governor(house)["sensors"]["age_s"] > 0.5)
    assert ask(house, "walrus")["answer"].strip().startswith(CODES["walrus"])
    driver.hang(MEMORY, on=False)
    until(lambda: governor(house)["sensors"]["age_s"] < 0.5)
    assert card(house)["total"] == TOTAL
