"""Continuous batching: a thread that steps all running sequences at once.

Sequences join and leave between steps. A step has one token of each sequence that generates, and pages of the prompts
of others, up to a number of tokens. A sequence gets all of its pages when it joins, so that it never waits for one
later; until they are free it is in the queue.
"""

import collections
import dataclasses
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

log = logging.getLogger("serve")


class Range(NamedTuple):
    """Tokens of one page of a sequence, behind the `start` tokens that its pages have: a page of a prompt, the rest of
    a prompt behind its whole pages, or one generated token. How a text is divided depends on nothing but the text."""

    tokens: bytes
    start: int
    pages: list[int]


class Full(Exception):
    """The queue is full."""


class Closed(Exception):
    """The scheduler ends."""


@dataclasses.dataclass(eq=False)
class Request:
    """A text to continue. The scheduler's thread calls `emit(token, None)` for each token, and at last
    `emit(None, reason)`, where the reason is "stop", "length", "cancelled", "closed" or "error"."""

    prompt: bytes
    max_tokens: int
    emit: Callable[[int | None, str | None], None]
    temperature: float = 0.0
    seed: int = 0
    stop: tuple[bytes, ...] = ()
    # What the scheduler knows about it:
    text: bytearray = dataclasses.field(init=False)  # the prompt and what was generated
    done: int = 0  # tokens of the text that are in its pages
    pages: list[int] = dataclasses.field(default_factory=list)
    shared: int = 0  # tokens of the prompt that it found in pages
    is_cancelled: bool = False
    has_ended: bool = False

    def __post_init__(self):
        self.text, self.random = bytearray(self.prompt), random.Random(self.seed)

    @property
    def positions(self):
        """The positions of its pages. The last token is not put there."""
        return len(self.prompt) + self.max_tokens - 1

    def choose(self, logits):
        """The likeliest token, or one drawn at the temperature."""
        if self.temperature == 0:
            return int(logits.argmax())
        with np.errstate(over="ignore"):  # far below a small temperature
            sums = np.exp((logits.astype(np.float64) - logits.max()) / self.temperature).cumsum()
        return int(np.searchsorted(sums[:-1], self.random.random() * sums[-1], side="right"))

    def reason(self):
        """Why the text ends here, or None."""
        generated = self.text[len(self.prompt):]
        if any(generated.endswith(each) for each in self.stop):
            return "stop"
        return "length" if len(generated) == self.max_tokens else None


class Scheduler:
    """`step(ranges)` returns the logits of the next token after each range and writes to pages, which `pages` (Pages)
    counts."""

    def __init__(self, step, pages, max_running=32, max_queued=64, step_tokens=64):
        if step_tokens < max_running + pages.size:
            raise ValueError(f"step_tokens is {step_tokens}, expected at least {max_running + pages.size}: a token of "
                             "each running sequence and a page of a prompt")  # fmt: skip
        self.step, self.pages = step, pages
        self.max_running, self.max_queued, self.step_tokens = max_running, max_queued, step_tokens
        self.queue, self.running = collections.deque(), []
        self.counts = collections.Counter()
        self._changed = threading.Condition()
        self._deadline = None  # of running sequences, once the scheduler ends
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self):
        self._thread.start()

    def submit(self, request):
        """Puts a request into the queue.

        Raises:
            Full: the queue is full.
            Closed: the scheduler ends.
            ValueError: the pool is smaller than the request.
        """
        needed = self.pages.needed(request.positions)
        if needed > self.pages.count:
            raise ValueError(f"the request needs {needed} pages of keys and values, and the pool has "
                             f"{self.pages.count}: ask for fewer tokens")  # fmt: skip
        with self._changed:
            if self.is_closing:
                raise Closed
            if len(self.queue) >= self.max_queued:
                self.counts["refused"] += 1
                raise Full
            self.counts["accepted"] += 1
            self.queue.append(request)
            self._changed.notify()

    def cancel(self, request):
        """Ends a request before the next step. Nothing happens if it has ended."""
        with self._changed:
            request.is_cancelled = True
            self._changed.notify()

    def close(self, seconds):
        """Refuses what is in the queue and new requests. Those that run have `seconds` to end."""
        with self._changed:
            self._deadline = time.monotonic() + seconds
            self._changed.notify()

    @property
    def is_closing(self):
        return self._deadline is not None

    def join(self, timeout=None):
        self._thread.join(timeout)

    def status(self):
        """Numbers of now, and counts since the start."""
        pages = self.pages
        return {"running": len(self.running), "queued": len(self.queue), "pages": pages.count, "pages_free": pages.free,
                "pages_kept": pages.kept, "pages_shared": pages.shared,
                **{f"{name}_total": self.counts[name] for name in
                   ("accepted", "refused", "stop", "length", "cancelled", "closed", "error", "steps", "prompt_tokens",
                    "shared_tokens", "generated_tokens")}}  # fmt: skip

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.running or self.queue or self.is_closing)
                self._end_some()
                if self.is_closing and not self.running:
                    return
                self._admit()
            batch = self._plan()
            if batch:
                self._step(batch)

    def _end_some(self):
        """Ends what was cancelled, and when the scheduler ends, what may not go on."""
        for request in [*self.queue]:
            if request.is_cancelled or self.is_closing:
                self.queue.remove(request)
                self._end(request, "cancelled" if request.is_cancelled else "closed")
        is_late = self.is_closing and time.monotonic() >= self._deadline
        for request in [*self.running]:
            if request.is_cancelled or is_late:
                self._end(request, "cancelled" if request.is_cancelled else "closed")

    def _admit(self):
        """Requests join in their order, as long as there are pages for the next one."""
        while self.queue and len(self.running) < self.max_running:
            request = self.queue[0]
            opened = self.pages.open(request.prompt, request.positions)
            if opened is None:
                return
            request.pages, shared = opened
            request.done = request.shared = shared * self.pages.size
            self.counts["prompt_tokens"] += len(request.prompt)
            self.counts["shared_tokens"] += request.shared
            self.running.append(self.queue.popleft())

    def _plan(self):
        """The ranges of a step: (request, first token, end). Those that generate come first, then prompts by page."""
        batch = [(each, each.done, each.done + 1) for each in self.running if each.done >= len(each.prompt)]
        left = self.step_tokens - len(batch)
        for request in self.running:
            start, length = request.done, len(request.prompt)
            while start < length:
                end = min(start + self.pages.size, length)
                if end - start > left:
                    return batch
                batch.append((request, start, end))
                left, start = left - (end - start), end
        return batch

    def _step(self, batch):
        try:
            rows = self.step([Range(bytes(each.text[start:end]), start, each.pages) for each, start, end in batch])
        except Exception:
            log.exception("a step failed")
            for request in {each: None for each, _, _ in batch}:
                self._end(request, "error")
            return
        self.counts["steps"] += 1
        for (request, _, end), logits in zip(batch, rows):
            request.done = end
            if end % self.pages.size == 0 and end <= len(request.prompt):
                self.pages.publish(request.prompt[:end], request.pages[end // self.pages.size - 1])
            if end == len(request.text):
                self._append(request, request.choose(logits))

    def _append(self, request, token):
        request.text.append(token)
        self.counts["generated_tokens"] += 1
        request.emit(token, None)
        reason = request.reason()
        if reason is not None:
            self._end(request, reason)

    def _end(self, request, reason):
        if request in self.running:
            self.running.remove(request)
        self.pages.close(request.pages)
        request.pages, request.has_ended = [], True
        self.counts[reason] += 1
        request.emit(None, reason)
