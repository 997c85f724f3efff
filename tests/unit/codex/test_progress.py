from codex.progress import CodexProgress, Meter, progress_at


def test_rate_and_time_left_follow_from_what_is_done() -> None:
    assert progress_at("read", 25, 100, 5.0) == CodexProgress("read", 25, 100, 5.0, 15.0)


def test_before_anything_is_done_the_time_left_is_not_known() -> None:
    assert progress_at("read", 0, 100, 0.0) == CodexProgress("read", 0, 100, 0.0, None)


def test_of_a_total_that_is_not_known_no_time_is_left_to_tell() -> None:
    assert progress_at("walk", 25, 0, 5.0) == CodexProgress("walk", 25, 0, 5.0, None)


def test_at_the_end_no_time_is_left() -> None:
    assert progress_at("read", 100, 100, 0.0) == CodexProgress("read", 100, 100, 0.0, 0.0)


def test_a_meter_reports_its_beginning_its_end_and_ten_times_a_second_between() -> None:
    now, told = [0.0], list[CodexProgress]()
    meter = Meter("read", 100, told.append, lambda: now[0])
    for _ in range(100):
        now[0] += 0.011
        meter.advance()
    meter.finish()
    assert (told[0].done, told[-1].done) == (0, 100)
    assert len(told) == 1 + 10 + 1
