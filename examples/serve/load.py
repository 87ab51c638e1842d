"""Many clients of the server at once, some of whom go away:

    python examples/serve/load.py --minutes 10

Half of the requests are streamed and one in ten is left in the middle, of those that are not streamed after a moment. A
tenth is malformed, and must be refused. Others are greedy or have a seed; the same request must always get the same
text, whatever else runs. Exits with 1 after an error, another text, or if pages are lost.
"""

import argparse
import asyncio
import collections
import json
import random
import statistics
import sys
import time

import httpx

PREFIXES = [
    "In a very dark Chamber, at a round Hole, about one third Part of an Inch broad, in the Shut of a Window, I "
    "placed ",
    "The Light of the Sun consists of Rays differently refrangible, and those Rays which differ in Colour ",
    "Query 31. Have not the small Particles of Bodies certain Powers, Virtues, or Forces, by which they act at a "
    "distance, not only upon the Rays of Light for reflecting, refracting, and inflecting them, but also upon one "
    "another ",
    "",
]
ENDS = ["a Glass Prism", "the white Paper", "the Red and the Violet", "Bodies", "the third Experiment", "Colours"]
MALFORMED = [(b"{", 400), (b'{"model": "opticks", "prompt": 1}', 400), (b'{"model": "none", "prompt": "a"}', 404),
             (b'{"model": "opticks", "prompt": "' + b"a" * 600 + b'"}', 400)]  # fmt: skip


class Load:
    def __init__(self, url, clients, seconds):
        self.clients, self.seconds = clients, seconds
        self.http = httpx.AsyncClient(base_url=url, timeout=120, limits=httpx.Limits(max_connections=clients + 1))
        self.counts, self.errors, self.texts = collections.Counter(), [], {}
        self.first, self.gaps = [], []  # seconds to the first token of streams, and between their tokens

    async def run(self):
        before, begin = await self.metrics(), time.monotonic()
        draws = [random.Random(number) for number in range(self.clients)]
        await asyncio.gather(*(self.client(draw, begin + self.seconds) for draw in draws))
        seconds = time.monotonic() - begin
        after = await self.metrics()
        while after["running"] + after["queued"] > 0:  # those who went away last
            await asyncio.sleep(0.05)
            after = await self.metrics()
        await self.http.aclose()
        return seconds, before, after

    async def metrics(self):
        lines = (await self.http.get("/metrics")).text.splitlines()
        return {name.removeprefix("saccade_serve_"): int(value) for name, value in map(str.split, lines)}

    async def client(self, draw, end):
        while time.monotonic() < end:
            try:
                await self.ask(draw)
            except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")

    async def ask(self, draw):
        if draw.random() < 0.1:
            data, status = draw.choice(MALFORMED)
            found = await self.http.post("/v1/completions", content=data, headers={"Content-Type": "application/json"})
            self.count("malformed", found.status_code == status, found.text)
            return
        prompt = draw.choice(PREFIXES) + draw.choice(ENDS)
        body = {"model": "opticks", "prompt": prompt, "max_tokens": draw.choice([8, 32, 128])}
        if draw.random() < 0.5:
            body |= {"temperature": 0.8, "seed": draw.randrange(4)}
        leaves, key = draw.random() < 0.1, json.dumps(body)
        if draw.random() < 0.5:
            text = await self.stream(body, draw.randrange(1, body["max_tokens"]) if leaves else None)
        else:
            work = self.http.post("/v1/completions", json=body)
            try:
                found = await asyncio.wait_for(work, draw.random() if leaves else None)
                text = found.json()["choices"][0]["text"] if self.status(found) else None
            except TimeoutError:
                text = None
                self.counts["left"] += 1
        if text is not None:
            self.count("texts", text == self.texts.setdefault(key, text), f"another text of {key}: {text!r}")

    async def stream(self, body, leave_after):
        """The text of a stream, or None if it was refused or left."""
        begin, last, text, count = time.monotonic(), None, [], 0
        async with self.http.stream("POST", "/v1/completions", json={**body, "stream": True}) as found:
            if not self.status(found):
                return None
            async for line in found.aiter_lines():
                if not line:
                    continue
                if line == "data: [DONE]":
                    return "".join(text)
                text.append(json.loads(line.removeprefix("data: "))["choices"][0]["text"])
                now = time.monotonic()
                (self.first if last is None else self.gaps).append(now - (begin if last is None else last))
                last, count = now, count + 1
                if count == leave_after:
                    self.counts["left"] += 1
                    return None
        raise ValueError("a stream has no end")

    def status(self, found):
        if found.status_code == 429:
            self.counts["refused, the queue is full"] += 1
        else:
            self.count("answers", found.status_code == 200, f"status {found.status_code}")
        return found.status_code == 200

    def count(self, what, is_right, error):
        self.counts[what] += 1
        if not is_right:
            self.errors.append(error)


def percentiles(seconds):
    cuts = statistics.quantiles(seconds, n=100)
    return f"{1000 * cuts[49]:.0f} / {1000 * cuts[98]:.0f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=1)
    options = parser.parse_args()
    url = httpx.URL(scheme="http", host=options.host, port=options.port)
    load = Load(url, options.clients, 60 * options.minutes)
    seconds, before, after = asyncio.run(load.run())
    made = {name: after[name] - before[name] for name in after}
    steps, tokens = made["steps_total"], made["generated_tokens_total"]
    prompts, shared = made["prompt_tokens_total"], made["shared_tokens_total"]
    rows = {"clients, seconds": f"{options.clients}, {seconds:.0f}", **load.counts, "errors": len(load.errors),
            "different requests": len(load.texts),
            "tokens generated, a second": f"{tokens / seconds:.0f}",
            "steps, tokens generated in a step": f"{steps}, {tokens / steps:.1f}",
            "tokens of prompts, of these in shared pages": f"{prompts}, {shared}",
            "time to the first token, p50 / p99": percentiles(load.first),
            "time from a token to the next, p50 / p99": percentiles(load.gaps),
            "requests cancelled by the server": made["cancelled_total"],
            "pages, free at the end": f"{after['pages']}, {after['pages_free']}"}  # fmt: skip
    memory = "process_resident_memory_bytes"
    if memory in after:
        begin, end = before[memory] / 2**20, after[memory] / 2**20
        rows["memory of the server at the beginning, at the end"] = f"{begin:.0f}, {end:.0f} MiB"
    print("| | |\n|---|---:|", *(f"| {name} | {value} |" for name, value in rows.items()), sep="\n")
    for error in load.errors[:10]:
        print(error[:300], file=sys.stderr)
    sys.exit(bool(load.errors) or after["pages_free"] != after["pages"])


if __name__ == "__main__":
    main()
