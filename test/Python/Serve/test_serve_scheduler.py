"""The scheduler of examples/serve: texts are those of a text alone, pages are shared and given back."""

from __future__ import annotations

import random
import threading
import time

import pytest
from served_text import Asked, Gate, continued, scheduled

SHARED = bytes(range(100, 180))  # five pages


@pytest.fixture
def made():
    """Makes schedulers, which must end with all pages free."""
    schedulers = []

    def make(**options):
        schedulers.append(scheduled(**options))
        return schedulers[-1]

    yield make
    for scheduler in schedulers:
        scheduler.close(30)
        scheduler.join(30)
        status = scheduler.status()
        assert (status["running"], status["queued"]) == (0, 0)
        assert status["pages_free"] == status["pages"], "pages are lost"
        assert not any(scheduler.pages._uses)


def submit(scheduler, *asked):
    for each in asked:
        scheduler.submit(each.request)


def ranges_of(scheduler, asked):
    """The number of the step, the first token and the number of tokens of all ranges of a request."""
    return [(number, each.start, len(each.tokens)) for number, ranges in enumerate(scheduler.step.steps)
            for each in ranges if each.pages == asked]


@pytest.mark.parametrize(("pages", "page_size"), [(200, 16), (24, 16), (40, 5), (90, 1)])
def test_texts_are_those_of_a_text_alone(made, pages, page_size):
    scheduler = made(pages=pages, page_size=page_size, max_running=8, max_queued=200, step_tokens=30)
    draw = random.Random(pages)
    asked, expected = [], []
    for number in range(120):
        prompt = SHARED[: draw.randrange(81)] + draw.randbytes(draw.randrange(1, 6))
        count = min(draw.randrange(1, 40), pages * page_size - len(prompt))
        options = {"temperature": draw.choice([0, 0.5, 1.5]), "seed": number}
        asked.append(Asked(prompt, count, **options))
        expected.append(continued(prompt, count, **options))
    cancelled = {number for number in range(120) if number % 7 == 3}
    for number, each in enumerate(asked):
        submit(scheduler, each)
        if number in cancelled:
            time.sleep(draw.random() / 100)
            scheduler.cancel(each.request)
    for number, (each, text) in enumerate(zip(asked, expected)):
        found, reason = each.wait()
        if reason == "cancelled":
            assert number in cancelled and text.startswith(found)
        else:
            assert (found, reason) == (text, "length")
    steps = scheduler.step.steps
    assert max(sum(len(each.tokens) for each in ranges) for ranges in steps) <= 30
    assert any(len(each.tokens) > 1 for ranges in steps for each in ranges) == (page_size > 1)
    assert max(len({tuple(each.pages) for each in ranges}) for ranges in steps) > 2
    assert any({each.start > 80 for each in ranges} == {True, False} for ranges in steps), "no step mixes prompts and others"
    status = scheduler.status()
    assert status["length_total"] + status["cancelled_total"] == status["accepted_total"] == 120
    assert status["shared_tokens_total"] > 1000


def test_whole_pages_of_equal_prefixes_are_shared(made):
    gate = Gate()
    scheduler = made(before=gate)
    first, second, third = (Asked(SHARED + own, 4) for own in (b"a", b"bc", b""))
    submit(scheduler, first)
    gate.open(2)  # the pages of the prompt and its rest are in steps of 64 tokens
    while scheduler.status()["generated_tokens_total"] < 1:
        time.sleep(0.001)
    submit(scheduler, second, third)
    gate.open(1)
    while scheduler.status()["running"] < 3:
        time.sleep(0.001)
    pages = [each.request.pages for each in (first, second, third)]
    assert pages[0][:5] == pages[1][:5] and pages[0][5] != pages[1][5]
    assert pages[2][:4] == pages[0][:4] and pages[2][4] != pages[0][4], "the last token of a prompt is computed"
    assert scheduler.status()["pages_shared"] == 5
    gate.open()
    for each in first, second, third:
        assert each.wait() == (continued(each.request.prompt, 4), "length")
    assert [each.request.shared for each in (first, second, third)] == [0, 80, 64]
    assert ranges_of(scheduler, pages[1])[0][1:] == (80, 2)
    status = scheduler.status()
    assert (status["shared_tokens_total"], status["prompt_tokens_total"]) == (144, 81 + 82 + 80)


def test_pages_without_uses_keep_their_prefix_until_they_are_needed(made):
    scheduler = made(pages=7)
    for own, found in (b"a", 0), (b"b", 80):
        asked = Asked(SHARED + own, 10)
        submit(scheduler, asked)
        assert asked.wait()[0] == continued(SHARED + own, 10) and asked.request.shared == found
    assert scheduler.status()["pages_kept"] == 5
    other = Asked(b"x" * 40, 30)  # five pages, two of which never had a prefix: the last three of the prefix go
    submit(scheduler, other)
    assert other.wait()[0] == continued(b"x" * 40, 30)
    again = Asked(SHARED + b"c", 10)
    submit(scheduler, again)
    assert again.wait()[0] == continued(SHARED + b"c", 10) and again.request.shared == 32


def test_a_full_pool_queues_and_a_full_queue_refuses(made):
    from scheduler import Full

    gate = Gate()
    scheduler = made(pages=8, before=gate, max_queued=2)
    large, waits, small = Asked(b"l" * 60, 60), Asked(b"w" * 40, 20), Asked(b"s", 5)
    submit(scheduler, large)
    assert gate.waiting.wait(30)
    submit(scheduler, waits, small)  # the small one would fit in no page either, and does not overtake
    with pytest.raises(Full):
        submit(scheduler, Asked(b"r", 1))
    assert scheduler.status()["queued"] == 2 and scheduler.status()["pages_free"] == 0
    gate.open()
    for each in large, waits, small:
        assert each.wait() == (continued(each.request.prompt, each.request.max_tokens), "length")
    assert scheduler.status()["refused_total"] == 1
    with pytest.raises(ValueError, match="the request needs 9 pages of keys and values, and the pool has 8"):
        submit(scheduler, Asked(b"t" * 100, 30))
    submit(scheduler, asked := Asked(b"t" * 100, 29))  # the last token needs no place
    assert asked.wait()[0] == continued(b"t" * 100, 29)


def test_one_who_waits_is_not_overtaken(made):
    gate = Gate()
    scheduler = made(pages=8, before=gate)
    large, waits, small = Asked(b"l" * 60, 30), Asked(b"w" * 40, 20), Asked(b"s", 5)
    submit(scheduler, large)
    assert gate.waiting.wait(30)
    submit(scheduler, waits, small)
    gate.open(20)
    while len(large.tokens) < 15:
        time.sleep(0.001)
    assert scheduler.status()["pages_free"] == 2 and scheduler.status()["queued"] == 2
    gate.open()
    assert [each.wait()[1] for each in (large, waits, small)] == ["length"] * 3


@pytest.mark.parametrize("when", ["queued", "prompt", "generating"])
def test_cancelled_requests_free_their_pages(made, when):
    gate = Gate()
    scheduler = made(before=gate, max_running=2)
    stays, goes = Asked(b"stays", 30), Asked(SHARED * 3, 100)
    submit(scheduler, stays)
    assert gate.waiting.wait(30)
    if when == "queued":
        submit(scheduler, other := Asked(b"other", 20))
    submit(scheduler, goes)
    gate.open({"queued": 2, "prompt": 2, "generating": 10}[when])
    while len(stays.tokens) < 2:
        time.sleep(0.001)
    assert (len(goes.request.pages) > 0) == (when != "queued")
    if when == "generating":
        while len(goes.tokens) < 2:
            time.sleep(0.001)
    scheduler.cancel(goes.request)
    scheduler.cancel(goes.request)
    gate.open()
    found, reason = goes.wait()
    assert reason == "cancelled" and continued(SHARED * 3, len(found)) == found
    assert (len(found) > 0) == (when == "generating")
    assert stays.wait() == (continued(b"stays", 30), "length")
    if when == "queued":
        assert other.wait() == (continued(b"other", 20), "length")
    scheduler.cancel(stays.request)  # has ended
    assert scheduler.status()["cancelled_total"] == 1


@pytest.mark.parametrize("stop", [2, 5])
def test_stops_end_a_text(made, stop):
    scheduler, text = made(), continued(b"prompt", 30)
    asked = Asked(b"prompt", 30, stop=(b"\0\0\0\0", text[stop - 2 : stop], text[9:10]))
    submit(scheduler, asked)
    assert asked.wait() == (text[:stop], "stop")


def test_a_step_that_fails_ends_its_requests_only(made):
    fails = threading.Event()

    def before(ranges):
        if fails.is_set():
            fails.clear()
            raise ValueError("the step fails")

    scheduler = made(before=before, max_running=2)
    fails.set()
    asked = [Asked(SHARED + bytes([number]), 5) for number in range(4)]
    submit(scheduler, *asked)
    found = [each.wait() for each in asked]
    failed = [reason for _, reason in found].count("error")
    assert failed in (1, 2) and scheduler.status()["error_total"] == failed
    assert found[2:] == [(continued(each.request.prompt, 5), "length") for each in asked[2:]]


@pytest.mark.parametrize("grace", [30, 0])
def test_the_end_of_a_scheduler(made, grace):
    from scheduler import Closed

    gate = Gate()
    scheduler = made(before=gate, max_running=1)
    runs, waits = Asked(b"runs", 20), Asked(b"waits", 20)
    submit(scheduler, runs)
    assert gate.waiting.wait(30)
    submit(scheduler, waits)
    scheduler.close(grace)
    with pytest.raises(Closed):
        submit(scheduler, Asked(b"late", 1))
    gate.open()
    assert waits.wait() == (b"", "closed")
    found, reason = runs.wait()
    assert reason == ("length" if grace else "closed")
    assert continued(b"runs", 20).startswith(found) and len(found) == (20 if grace else 1)


def test_a_step_too_small_is_refused():
    with pytest.raises(ValueError, match="step_tokens is 47, expected at least 48"):
        scheduled(max_running=32, step_tokens=47)
