"""The compiled step of examples/serve with the weights of examples/generate: equal bits in any batch, the tokens of the
example's own step, and the server as it is started."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytest.importorskip("safetensors")

import served_text
from prefix import Pages
from scheduler import Range, Scheduler
from served_text import Asked
from step import PagedModel, model

import saccade

TEXT = b"The Rays which differ in Colour differ also in Degrees of Refrangibility; and so the Light of the Sun consists of Rays"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of compiled programs, which the server's process finds too."""
    previous, folder = saccade.disk_cache(), tmp_path_factory.mktemp("programs")
    saccade.set_disk_cache(folder)
    yield folder
    saccade.set_disk_cache(previous)


@pytest.fixture(scope="module")
def paged(programs):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield PagedModel(model.load(), 64)
    torch.set_num_threads(threads)


def ranges_of(text, pages, start=0):
    """The ranges of a prompt."""
    ends = [*range(start + 16, len(text), 16), len(text)]
    return [Range(text[begin:end], begin, pages) for begin, end in zip([start, *ends], ends)]


def test_bits_do_not_depend_on_the_batch(paged):
    prompt = ranges_of(TEXT[:100], pages := [9, 3, 40, 41, 12, 0, 63, 20])
    expected = [paged([each]).copy() for each in prompt]  # one by one
    kept = [pool[pages].clone() for pool in paged.pools]
    token = Range(b"e", 100, pages)
    after = paged([token]).copy()
    others = [ranges_of(TEXT[10:60], [1, 2, 4, 5]), ranges_of(b"x", [6])]
    for before, threads in ([], 1), (others[0], 1), (others[1], 2), (others[0] + others[1], 2):
        torch.set_num_threads(threads)
        for pool in paged.pools:
            pool.zero_()
        rows = paged([*before, *prompt])  # all pages of the prompt in one step
        assert all((row == logits[0]).all() for row, logits in zip(rows[len(before):], expected))
        assert all((pool[pages] == old).all() for pool, old in zip(paged.pools, kept))
        assert (paged([*before, token])[-1] == after[0]).all()
    torch.set_num_threads(1)
    shared = [*pages[:4], 50, 51, 52, 53]  # the first pages are those of the other sequence
    assert (paged(ranges_of(TEXT[:100], shared, start=64))[-1] == expected[-1][0]).all()
    assert (paged([Range(b"e", 100, shared)])[0] == after[0]).all()


def test_tokens_are_those_of_the_step_of_the_example(paged):
    """Many sequences at once generate what the example's step generates for each alone. Its caches are contiguous, and
    its sums have another order, so two tokens may be chosen differently if their logits are nearly equal."""
    prompts = [TEXT[: 11 * number + 3] for number in range(10)] + [b"Qu. %d. " % number for number in range(4)]
    scheduler = Scheduler(paged, Pages(64, 16), max_running=8)
    asked = [Asked(prompt, 20) for prompt in prompts]
    for each in asked:
        scheduler.submit(each.request)
    scheduler.start()
    found = [each.wait() for each in asked]
    scheduler.close(30)
    scheduler.join(30)
    assert scheduler.status()["pages_free"] == 64 and scheduler.status()["shared_tokens_total"] >= 16
    step, differing = model.Step(model.load(), model.saccade_attention), 0
    with torch.inference_mode():
        for prompt, (tokens, reason) in zip(prompts, found):
            assert (len(tokens), reason) == (20, "length")
            caches, lengths, new = step.new_caches(1), torch.zeros(1, dtype=torch.int32), torch.tensor([list(prompt)])
            for token in tokens:
                logits = step(new, lengths, caches)[0]
                if logits.argmax() != token:
                    assert logits.max() - logits[token] < 1e-4
                    differing += 1
                    break
                lengths, new = lengths + new.shape[1], torch.tensor([[token]])
    assert differing <= 1


def test_the_server_as_it_is_started(paged, programs):
    """Clients at once, some of whom go away, get the texts of clients one by one; SIGTERM ends the process with 0."""
    command = [sys.executable, str(served_text.EXAMPLE / "server.py"), "--port=0", "--pages=100", "--grace=1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "SACCADE_CACHE": str(programs)})
    try:
        address = [process.stdout.readline() for _ in range(2)][1].split()[-1]
        host, port = address.split(":")
        assert host == "127.0.0.1"
        with httpx.Client(base_url=httpx.URL(scheme="http", host=host, port=int(port)), trust_env=False, timeout=60) as http:

            def ask(number):
                body = {"model": "opticks", "prompt": TEXT[: 9 * number + 3].decode(), "max_tokens": 20}
                if number % 4 == 3:
                    with http.stream("POST", "/v1/completions", json={**body, "max_tokens": 300, "stream": True}) as found:
                        next(found.iter_raw())
                    return None
                return http.post("/v1/completions", json=body).json()["choices"][0]["text"]

            with concurrent.futures.ThreadPoolExecutor(12) as threads:
                together = [*threads.map(ask, range(12))]
            assert together == [ask(number) for number in range(12)]
            assert len(set(together)) == 10
            status = http.get("/health").json()
            while status["running"]:
                status = http.get("/health").json()
            assert status["pages_free"] == 100 and status["cancelled_total"] == 6
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.stdout.close()
