"""A model for the scheduler of examples/serve whose pages have tokens, and texts that it continues; and servers of it.

The next token is drawn from logits that depend on all tokens of a text. So a page that two sequences write, a page that
is given away too early, or a token at a wrong position changes the text.
"""

import pathlib
import sys
import threading
import zlib

import numpy as np

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "serve"
sys.path.insert(0, str(EXAMPLE))

from prefix import Pages
from scheduler import Request, Scheduler

CONTEXT = 512


def logits_after(text):
    return np.random.default_rng(zlib.crc32(text)).normal(scale=3, size=256).astype(np.float32)


def continued(prompt, count, temperature=0.0, seed=0):
    """The tokens after a prompt, without pages or a scheduler."""
    import random

    text, drawn = bytearray(prompt), random.Random(seed)
    for _ in range(count):
        logits = logits_after(bytes(text)).astype(np.float64)
        if temperature:
            weights = np.exp(logits / temperature)
            text.append(int((weights.cumsum() / weights.sum() > drawn.random()).argmax()))
        else:
            text.append(int(np.argmax(logits)))
    return bytes(text[len(prompt):])


class TokenPages:
    """The model. `before(ranges)` is called with each step; what it raises is an error of the step."""

    def __init__(self, pages, page_size=16, before=lambda ranges: None):
        self.tokens = np.full((pages, page_size), -1)
        self.steps, self.before = [], before

    def __call__(self, ranges):
        self.before(ranges)
        self.steps.append(ranges)
        size = self.tokens.shape[1]
        written = [each.pages[each.start // size] for each in ranges]
        assert len({*written}) == len(written), "two ranges write to a page"
        for each, page in zip(ranges, written):
            first = each.start % size
            assert 0 < len(each.tokens) <= size - first, "a range has no tokens, or leaves its page"
            self.tokens[page, first : first + len(each.tokens)] = list(each.tokens)
        texts = [self.tokens[each.pages].ravel()[: each.start + len(each.tokens)] for each in ranges]
        assert all((text >= 0).all() for text in texts), "a range follows tokens that are not in its pages"
        return np.stack([logits_after(bytes(text.tolist())) for text in texts])


class Asked:
    """A request and its events."""

    def __init__(self, prompt, max_tokens, **options):
        self.tokens, self.reasons, self.ended = bytearray(), [], threading.Event()
        self.request = Request(prompt, max_tokens, self.emit, **options)

    def emit(self, token, reason):
        assert not self.reasons, "an event after the last one"
        if token is not None:
            self.tokens.append(token)
        else:
            self.reasons.append(reason)
            self.ended.set()

    def wait(self):
        assert self.ended.wait(30), "the request has not ended"
        return bytes(self.tokens), self.reasons[0]


def scheduled(pages=64, page_size=16, before=lambda ranges: None, **sizes):
    """A scheduler of the model, which is its `step`."""
    scheduler = Scheduler(TokenPages(pages, page_size, before), Pages(pages, page_size), **sizes)
    scheduler.start()
    return scheduler


class Gate:
    """Holds steps back: `before` of a model. `open(n)` lets n steps pass, `open()` all."""

    def __init__(self):
        self._left, self._changed = 0, threading.Condition()
        self.waiting = threading.Event()

    def __call__(self, ranges):
        with self._changed:
            self.waiting.set()
            assert self._changed.wait_for(lambda: self._left > 0, 30), "the gate stays shut"
            self._left -= 1
            self.waiting.clear()

    def open(self, count=10**9):
        with self._changed:
            self._left += count
            self._changed.notify_all()


class Serving:
    """A server of the model on a free port, in a thread, as a context."""

    def __init__(self, **options):
        from server import Server, make_app

        self.scheduler = scheduled(**options)
        self.server = Server(make_app(self.scheduler, CONTEXT), "127.0.0.1", 0, grace=1)
        self.thread = threading.Thread(target=self.server.run)

    def __enter__(self):
        import time

        import httpx

        self.thread.start()
        while not hasattr(self.server, "address"):
            assert self.thread.is_alive()
            time.sleep(0.01)
        host, port = self.server.address.split(":")
        url = httpx.URL(scheme="http", host=host, port=int(port))
        self.http = httpx.Client(base_url=url, verify=False, trust_env=False, timeout=30)
        return self

    def __exit__(self, *_):
        self.http.close()
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()
