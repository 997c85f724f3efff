"""What an administrator sees of a day: metrics that Prometheus reads, and one line of the log for each turn."""

import json
import math
import re
import socket
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.house import ask, codebase, living, over_socket, question, until
from support.promql import QueryError, Scrapes, evaluated

from orchestrator.reports.metrics import FAMILIES
from orchestrator.reports.turns import EVENTS

LEAVING = 15
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "lorekeep.json"
QUERIES = [
    pytest.param(panel["title"], target["expr"], target["legendFormat"], id=f"{panel['title']} {target['refId']}")
    for panel in json.loads(DASHBOARD.read_text())["panels"]
    for target in panel.get("targets", ())
]


@pytest.fixture(scope="module")
def house(models):
    """Of its own: it counts what it answered since its start."""
    with living(models) as daemon:
        daemon.json("load", codebase(daemon.folder / "vaults"), "--name", "vaults")
        yield daemon


def scraped(daemon):
    with over_socket(daemon) as http:
        text = http.get("/metrics").text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def logged(daemon, name):
    lines = (daemon.folder / "daemon.log").read_text().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [one for one in events if one["event"] == name]


def grown(before, after):
    return {series: after[series] - before.get(series, 0) for series in after}


def test_every_turn_is_counted_where_it_happened_and_has_one_line_without_a_word_of_it(house):
    before, lines = scraped(house), len(logged(house, "turn"))
    answers = [ask(house, vault) for vault in ("zebra", "walrus", "zebra")]
    more, told = grown(before, scraped(house)), logged(house, "turn")[lines:]
    strategies = Counter(answer["lore"]["strategy"]["name"] for answer in answers)
    for strategy, count in strategies.items():
        found = [more[series] for series in more if series[0] == "lorekeep_turns_total" and strategy in series]
        assert sum(found) == count
    for name in ("first_token_seconds", "turn_seconds", "queue_seconds", "tool_rounds"):
        assert more[f"lorekeep_{name}_count",] == 3
    assert [event["trace"] for event in told] == [answer["lore"]["trace"] for answer in answers]
    assert all(
        event.keys() - {"time", "level", "part", "event"} == EVENTS["turn"].model_fields.keys() for event in told
    )
    assert "access code" not in json.dumps(told)


def test_tokens_of_blocks_add_up_to_the_prompt_in_the_metrics_and_in_the_event(house):
    before = scraped(house)
    answer = ask(house, "zebra")["lore"]
    more, told = grown(before, scraped(house)), logged(house, "turn")[-1]
    blocks = {
        one["kind"]: {"cached": one["cached"], "computed": one["tokens"] - one["cached"]} for one in answer["blocks"]
    }
    assert told["blocks"] == blocks
    for kind, block in blocks.items():
        of_block = {series[2]: more[series] for series in more if series[:2] == ("lorekeep_block_tokens_total", kind)}
        assert of_block.pop("computed") == block["computed"]
        assert sum(of_block.values()) == block["cached"]
    assert told["tokens"] == answer["prompt"]["tokens"]


def test_what_is_refused_is_counted_by_its_code_and_a_private_turn_names_nothing(house):
    before = scraped(house)
    with over_socket(house) as http:
        assert http.get("/nowhere").status_code == 404
        body = {"model": "lore/nobody", "messages": [{"role": "user", "content": question("zebra")}]}
        assert http.post("/v1/chat/completions", json=body).status_code == 404
        assert http.post("/v1/chat/completions", json={"model": "lore"}).status_code == 400
    ask(house, "zebra", record=False)
    more, told = grown(before, scraped(house)), logged(house, "turn")[-1]
    codes = ("unknown_route", "model_not_found", "invalid_request")
    assert [more["lorekeep_refusals_total", code] for code in codes] == [1, 1, 1]
    assert (told["trace"], told["codex"]) == (None, None)


def test_a_real_daemon_has_every_metric_of_the_reference_and_no_other(house):
    with over_socket(house) as http:
        names = {line.split()[2] for line in http.get("/metrics").text.splitlines() if line.startswith("# TYPE")}
    documented = {family.name for family in FAMILIES}
    assert names <= documented
    assert {name for name in documented - names if not name.startswith("lorekeep_memory_")} <= {
        "lorekeep_pressure_level",
        "lorekeep_pressure_ratio",
    }


@pytest.fixture(scope="module")
def scrapes(house):
    """Before and after what a dashboard shows: answers, and a refusal."""
    before, begun = by_name(house), time.monotonic()
    ask(house, "zebra")
    with over_socket(house) as http:
        http.get("/nowhere")
    return Scrapes(before, by_name(house), time.monotonic() - begun)


def by_name(daemon):
    found = defaultdict(dict)
    with over_socket(daemon) as http:
        text = http.get("/metrics").text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name][frozenset(sample.labels.items())] = sample.value
    return found


@pytest.mark.parametrize(("title", "query", "legend"), QUERIES)
def test_every_query_of_the_dashboard_gives_figures_of_a_real_daemon(scrapes, title, query, legend):
    series = evaluated(query.replace("$__rate_interval", "1m"), scrapes)
    assert series
    assert not any(math.isnan(value) for value in series.values()), "nothing is measured there"
    shown = set(re.findall(r"{{(\w+)}}", legend))
    assert all(shown == {label for label, _ in labels} for labels in series), "a legend names each series"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("sum(lorekeep_turn_total)", "no metric named lorekeep_turn_total"),
        ("sum by (codex) (rate(lorekeep_turns_total[1m]))", "no series has the label codex"),
        ('rate(lorekeep_block_tokens_total{tier="tape"}[1m])', "no series of lorekeep_block_tokens_total"),
        ("rate(lorekeep_turns_total)", "a range belongs"),
        ("histogram_quantile(0.5, sum(rate(lorekeep_turn_seconds_bucket[1m])))", "no label le"),
        ("sum(lorekeep_ready", "stands where"),
    ],
)
def test_a_query_that_would_show_nothing_is_found_out(scrapes, query, why):
    with pytest.raises(QueryError, match=why):
        evaluated(query, scrapes)


def test_what_the_dashboard_calculates_is_what_prometheus_would(scrapes):
    assert evaluated("2 + 3 * (4 - 1)", scrapes) == {frozenset(): 11}
    buckets = {frozenset({("le", bound)}): count for bound, count in (("1.0", 2.0), ("3.0", 4.0), ("+Inf", 4.0))}
    known = Scrapes({}, {"x_bucket": buckets}, 1.0)
    assert evaluated("histogram_quantile(0.75, x_bucket)", known) == {frozenset(): 2.0}


def test_however_clients_leave_each_question_is_counted_once_and_has_one_line(house):
    """Before the answer, within its head, and after its first words; somebody scrapes meanwhile."""
    before, lines = scraped(house), ended(house)
    body = {"model": "lore", "messages": [{"role": "user", "content": question("zebra")}], "stream": True}
    data = json.dumps(body).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)
    for number in range(LEAVING):
        with socket.socket(socket.AF_UNIX) as leaving:
            leaving.connect(str(house.socket))
            leaving.sendall(request)
            if number % 3:
                leaving.recv(10 ** (number % 3))
        scraped(house)
    until(lambda: ended(house) - lines >= LEAVING)
    more = grown(before, scraped(house))
    names = ("lorekeep_turns_total", "lorekeep_unanswered_turns_total")
    assert sum(more[series] for series in more if series[0] in names) == LEAVING
    assert ended(house) - lines == LEAVING


def ended(daemon):
    return sum(len(logged(daemon, name)) for name in ("turn", "unanswered"))
