"""The server of examples/serve over HTTP: answers, streams, statuses of errors, clients that go away, the end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

import served_text
from served_text import Gate, Serving, continued

PROMPT = "The same sixteen letters and more: "
PATH = "/v1/completions"


def decoded(tokens):
    return tokens.decode(errors="replace")


def body(prompt=PROMPT, max_tokens=20, **fields):
    return {"model": "opticks", "prompt": prompt, "max_tokens": max_tokens, **fields}


@pytest.fixture(scope="module")
def serving():
    with Serving(max_running=4, max_queued=100, step_tokens=40) as found:
        yield found


@pytest.fixture
def gated():
    """A server whose steps wait for `gate`, with a pool of 8 pages. All pages must be free at the end."""
    gate = Gate()
    with Serving(before=gate, pages=8, max_queued=1) as found:
        found.gate = gate
        yield found
        gate.open()
        until(lambda: found.scheduler.status()["running"] == 0)
    assert found.scheduler.status()["pages_free"] == 8


def connected(serving):
    """A socket, for clients that do not keep to the protocol."""
    return socket.create_connection((serving.http.base_url.host, serving.http.base_url.port))


def send(client, data):
    head = "POST {} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
    data = json.dumps(data).encode()
    client.sendall(head.format(PATH, len(data)).encode() + data)


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def events_of(data):
    """The data of the events of a stream, whose framing is checked."""
    text = data.decode()
    assert text.endswith("\n\n")
    events = text[:-2].split("\n\n")
    assert all(each.startswith("data: ") and "\n" not in each for each in events)
    assert events[-1] == "data: [DONE]" and "data: [DONE]" not in events[:-1]
    return [json.loads(each[len("data: "):]) for each in events[:-1]]


def test_a_whole_answer(serving):
    found = serving.http.post(PATH, json=body())
    assert found.status_code == 200
    answer = found.json()
    assert answer["object"] == "text_completion" and answer["model"] == "opticks" and answer["id"].startswith("cmpl-")
    assert answer["choices"] == [{"index": 0, "text": decoded(continued(PROMPT.encode(), 20)), "logprobs": None,
                                  "finish_reason": "length"}]
    usage = serving.http.post(PATH, json=body()).json()["usage"]
    assert usage == {"prompt_tokens": 35, "completion_tokens": 20, "total_tokens": 55,
                     "prompt_tokens_details": {"cached_tokens": 32}}


@pytest.mark.parametrize("options", [{}, {"temperature": 1.2, "seed": 5}, {"stop": "stops"}])
def test_streams_have_the_text_of_whole_answers(serving, options):
    expected = continued(PROMPT.encode(), 60, options.get("temperature", 0), options.get("seed", 0))
    if "stop" in options:  # a character of the text itself
        place = next(i for i in range(10, 60) if expected[i] < 128 and expected[i] not in expected[:i])
        options, expected = {"stop": ["never", chr(expected[place])]}, expected[: place + 1]
    count, text = len(expected), decoded(expected[:-1] if "stop" in options else expected)
    reason = "stop" if "stop" in options else "length"
    whole = serving.http.post(PATH, json=body(max_tokens=60, **options)).json()
    assert (whole["choices"][0]["text"], whole["choices"][0]["finish_reason"]) == (text, reason)
    for usage in False, True:
        more = {"stream_options": {"include_usage": True}} if usage else {}
        found = serving.http.post(PATH, json=body(max_tokens=60, stream=True, **options, **more))
        assert found.status_code == 200 and found.headers["content-type"].startswith("text/event-stream")
        events = events_of(found.content)
        assert len({each["id"] for each in events}) == 1
        if usage:
            last = events.pop()
            assert last["choices"] == [] and last["usage"]["completion_tokens"] == count == whole["usage"]["completion_tokens"]
        choices = [each["choices"][0] for each in events]
        assert "".join(each["text"] for each in choices) == text
        assert [each["finish_reason"] for each in choices] == [None] * (len(choices) - 1) + [reason]
        assert len(choices) > 5


def test_many_clients_at_once(serving):
    def ask(number):
        prompt, count = PROMPT[: number % 36] + chr(60 + number), 5 + number
        options = {"temperature": 0.8, "seed": number} if number % 3 else {}
        is_streamed = number % 2 == 0
        found = serving.http.post(PATH, json=body(prompt, count, stream=is_streamed, **options))
        answers = events_of(found.content) if is_streamed else [found.json()]
        expected = continued(prompt.encode(), count, options.get("temperature", 0), number)
        return "".join(each["choices"][0]["text"] for each in answers) == decoded(expected)

    with concurrent.futures.ThreadPoolExecutor(30) as threads:
        assert all(threads.map(ask, range(60)))
    assert max(len({tuple(each.pages) for each in ranges}) for ranges in serving.scheduler.step.steps) == 4
    until(lambda: serving.http.get("/health").json()["running"] == 0)
    health = serving.http.get("/health").json()
    assert health["status"] == "ok" and health["pages_free"] == health["pages"] and health["shared_tokens_total"] > 0


def test_events_come_with_their_tokens(gated):
    prompt = next(f"{n}" for n in range(10000) if max(continued(b"%d" % n, 5)) < 128)  # each token is a character
    gated.gate.open(1)  # the status comes with the first token
    with gated.http.stream("POST", PATH, json=body(prompt, stream=True)) as found:
        parts = found.iter_raw()
        for n in range(1, 6):
            gated.gate.open(n > 1)
            assert len(gated.scheduler.step.steps) <= n
            part = next(parts)
            assert part.startswith(b"data: {") and part.endswith(b"}\n\n")
        gated.gate.open()


def test_models_and_metrics(serving):
    (model,) = serving.http.get("/v1/models").json()["data"]
    assert model["id"] == "opticks"
    serving.http.post(PATH, json=body())
    lines = dict(each.split() for each in serving.http.get("/metrics").text.splitlines())
    assert int(lines["saccade_serve_generated_tokens_total"]) >= 20 and lines["saccade_serve_pages"] == "64"


@pytest.mark.parametrize(("request_", "status", "message"), [
    (("POST", PATH, {"json": body(prompt="x" * 500)}), 400, "The prompt has 500 tokens and max_tokens is 20"),
    (("POST", PATH, {"json": body(model="other")}), 404, "The model does not exist"),
    (("POST", PATH, {"json": body(max_tokens="5")}), 400, "max_tokens is not an integer"),
    (("POST", PATH, {"json": ["a"]}), 400, "The body is an array"),
    (("POST", PATH, {"content": b"{", "headers": {"Content-Type": "application/json; charset=utf-8"}}), 400, "The body is not JSON"),
    (("POST", PATH, {"content": b"{}"}), 415, "Content-Type is '', expected 'application/json'."),
    (("POST", PATH, {"data": {"prompt": "a"}}), 415, "Content-Type is 'application/x-www-form-urlencoded'"),
    (("POST", PATH, {"json": body(prompt="x" * 70000)}), 413, "The body has more than 65536 bytes."),
    (("GET", PATH, {}), 405, "GET /v1/completions: Method Not Allowed."),
    (("POST", "/v1/chat/completions", {"json": {}}), 404, "POST /v1/chat/completions: Not Found."),
])
def test_statuses_of_errors(serving, request_, status, message):
    method, path, options = request_
    found = serving.http.request(method, path, **options)
    assert found.status_code == status
    assert found.json()["error"]["message"].startswith(message)
    assert set(found.json()["error"]) == {"message", "type", "param", "code"}


def test_bodies_that_do_not_end(serving, monkeypatch):
    def endless():
        while True:
            yield b" " * 10000

    for path, status in (PATH, 413), ("/none", 404):
        try:
            found = serving.http.post(path, content=endless(), headers={"Content-Type": "application/json"})
            assert found.status_code == status
        except httpx.TransportError:
            pass  # the connection was closed before the client has read the answer
    monkeypatch.setattr("server.BODY_SECONDS", 0.1)
    with connected(serving) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_request_larger_than_the_pool(gated):
    found = gated.http.post(PATH, json=body(max_tokens=200))
    assert found.status_code == 400 and "needs 15 pages of keys and values, and the pool has 8" in found.text


@pytest.mark.parametrize("when", ["streaming", "before the first token", "whole", "queued"])
def test_clients_that_go_away(gated, when):
    client = connected(gated)
    if when == "queued":
        first = connected(gated)
        send(first, body(max_tokens=90, stream=True))
        until(lambda: gated.scheduler.status()["running"] == 1)
    send(client, body(max_tokens=90, stream=when != "whole"))
    until(lambda: gated.scheduler.status()["queued" if when == "queued" else "running"] == 1)
    if when == "streaming":
        gated.gate.open(5)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert gated.scheduler.status()["pages_free"] == 0
    scheduler = gated.scheduler
    (request,) = scheduler.queue if when == "queued" else scheduler.running
    client.close()
    until(lambda: request.is_cancelled)
    if when == "queued":
        gated.gate.open(1)
        until(lambda: scheduler.status()["cancelled_total"] == 1)
        assert scheduler.status()["running"] == 1
        (request,) = scheduler.running
        first.close()
        until(lambda: request.is_cancelled)
    gated.gate.open()
    until(lambda: scheduler.status()["running"] == 0)
    status = gated.scheduler.status()
    assert status["pages_free"] == 8 and status["generated_tokens_total"] < 90
    assert status["cancelled_total"] == 1 + (when == "queued") and status["length_total"] == 0


def test_a_full_queue_is_refused_by_name(gated):
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(gated.http.post, PATH, json=body(max_tokens=90))]
        until(lambda: gated.scheduler.status()["running"] == 1)
        answers.append(threads.submit(gated.http.post, PATH, json=body(max_tokens=80)))
        until(lambda: gated.scheduler.status()["queued"] == 1)
        for stream in False, True:
            found = gated.http.post(PATH, json=body(stream=stream))
            assert found.status_code == 429 and found.headers["retry-after"] == "1"
            assert found.json()["error"]["message"] == "1 requests wait already; try again."
        gated.gate.open()
        texts = [each.result().json()["choices"][0]["text"] for each in answers]
    assert texts == [decoded(continued(PROMPT.encode(), count)) for count in (90, 80)]


def test_a_step_that_fails(serving, monkeypatch, caplog):
    def fails(ranges):
        raise MemoryError("no memory")

    monkeypatch.setattr(serving.scheduler.step, "before", fails)
    for stream in False, True:
        found = serving.http.post(PATH, json=body(stream=stream))
        assert found.status_code == 500 and found.json()["error"]["code"] == "step_failed"
        assert "no memory" not in found.text and "no memory" in caplog.text
    calls = []

    def fails_late(ranges):
        calls.append(ranges)
        if len(calls) == 4:
            fails(ranges)

    monkeypatch.setattr(serving.scheduler.step, "before", fails_late)
    found = serving.http.post(PATH, json=body("other", stream=True))
    *_, last = found.content.split(b"\n\n")[:-1]
    assert found.status_code == 200 and json.loads(last[len("data: "):])["error"]["code"] == "step_failed"
    assert b"[DONE]" not in found.content
    monkeypatch.undo()
    assert serving.http.post(PATH, json=body()).json()["choices"][0]["text"] == decoded(continued(PROMPT.encode(), 20))


@pytest.mark.parametrize("is_right", [True, False])
def test_the_load_client(serving, is_right):
    import load

    class Others(dict):
        def setdefault(self, key, text):
            return text + "."

    client = load.Load(serving.http.base_url, 12, 2)
    client.texts = {} if is_right else Others()
    seconds, before, after = asyncio.run(client.run())
    assert seconds < 30 and client.counts["answers"] >= client.counts["texts"] > 5
    assert {error[:16] for error in client.errors} == (set() if is_right else {"another text of "})
    assert after["pages_free"] == after["pages"] and after["generated_tokens_total"] > before["generated_tokens_total"]


@pytest.mark.parametrize("grace", [30, 1])
def test_termination(grace):
    """A text of 10 seconds or more; with a grace of 30 seconds one of 2 seconds."""
    inputs = os.path.dirname(served_text.__file__)
    path = os.pathsep.join([inputs, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen([sys.executable, os.path.join(inputs, "serve_process.py"), str(grace)], stdout=subprocess.PIPE,
                               text=True, env={**os.environ, "PYTHONPATH": path})
    try:
        host, port = process.stdout.readline().split()[-1].split(":")
        url = httpx.URL(scheme="http", host=host, port=int(port), path=PATH)
        count = 100 if grace == 30 else 450
        with httpx.stream("POST", url, json=body(max_tokens=count, stream=True), timeout=30) as found:
            lines = (line for line in found.iter_lines() if line)
            next(lines)
            begin = time.monotonic()
            process.send_signal(signal.SIGTERM)
            until(lambda: not connects(url))
            rest = list(lines)
        rest, end = [*rest], rest[-1]
        if grace == 30:
            assert end == "data: [DONE]" and len(rest) > 40
        else:
            assert json.loads(end[len("data: "):])["error"] == {"message": "The server shuts down.", "type": "server_error",
                                                                "param": None, "code": "shutting_down"}
        assert process.wait(grace + 10) == 0 and time.monotonic() - begin < grace + 5
        status = process.stdout.read()
        assert "'pages_free': 64" in status and f"'{'length' if grace == 30 else 'closed'}_total': 1" in status
    finally:
        process.kill()
        process.stdout.close()


def connects(url):
    try:
        httpx.get(url, timeout=2)
    except httpx.ConnectError:
        return False
    return True
