"""An HTTP server of the decoder of examples/generate, with continuous batching and shared prefixes:

    python examples/serve/server.py
    curl --json '{"model": "opticks", "prompt": "The Rays of Light ", "max_tokens": 60}' localhost:8000/v1/completions
"""

import argparse
import asyncio
import contextlib
import logging
import pathlib
import signal
import sys

import uvicorn
from protocol import MODEL, Answer, Refused, Text, event, failure, parse
from scheduler import Closed, Full, Request, Scheduler
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

MAX_BODY = 64 * 1024
BODY_SECONDS = 10


class Stream(StreamingResponse):
    """Events of a request, which is cancelled if the client goes away."""

    def __init__(self, parts, cancel):
        super().__init__(parts, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._cancel = cancel

    async def __call__(self, scope, receive, send):
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._cancel()


async def read_body(http):
    """The body, of at most MAX_BODY bytes, if all of it arrives in time."""
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page of another site cannot send this type
        raise Refused(415, f"Content-Type is {kind[:80]!r}, expected 'application/json'.")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in http.stream():
                body += part
                if len(body) > MAX_BODY:
                    raise Refused(413, f"The body has more than {MAX_BODY} bytes.")
    except TimeoutError:
        raise Refused(408, f"The body has not arrived in {BODY_SECONDS} seconds.") from None
    return bytes(body)


async def unless_gone(http, work):
    """The result of `work`. Raises ClientDisconnect if the client goes away before."""

    async def gone():
        while (await http.receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(gone())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


async def whole(events, text, answer):
    """The body of an answer that is not streamed."""
    parts = []
    while True:
        token, reason = await events.get()
        if reason in ("closed", "error"):
            raise failure(reason)
        if token is None:
            return {**answer.body("".join([*parts, text.end(reason)]), reason), "usage": answer.usage()}
        answer.generated += 1
        parts.append(text.add(token))


async def streamed(first, events, text, answer, has_usage):
    """The events of an answer. Each has all of the text that is certain by then."""
    token, reason = first
    while token is not None:
        answer.generated += 1
        part = text.add(token)
        if part:
            yield event(answer.body(part, None))
        token, reason = await events.get()
    if reason in ("closed", "error"):
        yield event(failure(reason).body())
        return
    yield event(answer.body(text.end(reason), reason))
    if has_usage:
        yield event({**answer.head, "choices": [], "usage": answer.usage()})
    yield event("[DONE]")


async def complete(http):
    scheduler, context = http.app.state.scheduler, http.app.state.context
    data = await read_body(http)
    http.state.has_read = True
    given, is_streamed, has_usage = parse(data, context)
    events, loop = asyncio.Queue(), asyncio.get_running_loop()
    request = Request(emit=lambda *each: loop.call_soon_threadsafe(events.put_nowait, each), **given)
    try:
        scheduler.submit(request)
    except Full:
        raise Refused(429, f"{scheduler.max_queued} requests wait already; try again.", code="queue_full") from None
    except Closed:
        raise failure("closed") from None
    except ValueError as error:
        raise Refused(400, f"The request is too large: {error}.", "max_tokens") from None
    text, answer = Text(request.stop), Answer(request)
    is_handed_over = False
    try:
        if not is_streamed:
            return JSONResponse(await unless_gone(http, whole(events, text, answer)))
        first = await unless_gone(http, events.get())
        if first[1] in ("closed", "error"):  # before the status is sent
            raise failure(first[1])
        is_handed_over = True
        return Stream(streamed(first, events, text, answer, has_usage), lambda: scheduler.cancel(request))
    finally:
        if not is_handed_over:
            scheduler.cancel(request)


async def models(http):
    context = http.app.state.context
    return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "saccade",
                                                     "context_length": context}]})  # fmt: skip


async def health(http):
    scheduler = http.app.state.scheduler
    status = "closing" if scheduler.is_closing else "ok"
    return JSONResponse({"status": status, **scheduler.status()}, 200 if status == "ok" else 503)


async def metrics(http):
    """The numbers of /health in the format of Prometheus, and the memory of the process where Linux says it."""
    lines = [f"saccade_serve_{name} {value}" for name, value in http.app.state.scheduler.status().items()]
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        (kilobytes,) = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
        lines.append(f"process_resident_memory_bytes {int(kilobytes) * 1024}")
    return PlainTextResponse("\n".join([*lines, ""]))


async def on_refused(http, error):
    if isinstance(error, HTTPException):
        error = Refused(error.status_code, f"{http.method} {http.url.path[:200]}: {error.detail}.")
    headers = {"Retry-After": "1"} if error.status in (429, 503) else {}
    if not getattr(http.state, "has_read", False):
        headers["Connection"] = "close"  # else the rest of the body would be read, of any length
    return JSONResponse(error.body(), error.status, headers)


async def on_gone(http, error):
    return Response(status_code=499)  # of no client


async def on_error(http, error):
    return JSONResponse(Refused(500, "The server has failed.").body(), 500)


def make_app(scheduler, context):
    @contextlib.asynccontextmanager
    async def lifespan(app):
        yield
        scheduler.close(0)
        await asyncio.to_thread(scheduler.join)

    routes = [Route("/v1/completions", complete, methods=["POST"]), Route("/v1/models", models),
              Route("/health", health), Route("/metrics", metrics)]  # fmt: skip
    handlers = {Refused: on_refused, HTTPException: on_refused, ClientDisconnect: on_gone, Exception: on_error}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.state.scheduler, app.state.context = scheduler, context
    return app


class Server(uvicorn.Server):
    """Prints where it listens. When it ends, running requests have `grace` seconds."""

    def __init__(self, app, host, port, grace):
        super().__init__(uvicorn.Config(app, host, port, http="h11", ws="none", log_level="warning", access_log=False,
                                        limit_concurrency=1024, timeout_graceful_shutdown=grace + 5))  # fmt: skip
        self.scheduler, self.grace = app.state.scheduler, grace

    async def startup(self, sockets=None):
        await super().startup(sockets)
        if self.started:
            self.address = "{}:{}".format(*self.servers[0].sockets[0].getsockname()[:2])
            print(f"listening on {self.address}", flush=True)

    async def shutdown(self, sockets=None):
        self.scheduler.close(self.grace)
        await super().shutdown(sockets)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; by default only this machine")
    parser.add_argument("--port", type=int, default=8000, help="0 for a free one")
    parser.add_argument("--pages", type=int, default=512, help="pages of 16 tokens in the pool")
    parser.add_argument("--running", type=int, default=32, help="sequences in a step")
    parser.add_argument("--queue", type=int, default=64, help="requests that wait; others are refused")
    parser.add_argument("--step-tokens", type=int, default=64, help="tokens in a step")
    parser.add_argument("--grace", type=int, default=10, help="seconds for running requests when the server ends")
    parser.add_argument("--threads", type=int, default=1, help="threads of a step")
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")

    import torch
    from prefix import Pages
    from step import PagedModel, model

    torch.set_num_threads(options.threads)
    print("compiling", flush=True)
    paged = PagedModel(model.load(), options.pages)
    pages = Pages(options.pages, paged.page_size)
    scheduler = Scheduler(paged, pages, options.running, options.queue, options.step_tokens)
    scheduler.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again when the server has ended
    Server(make_app(scheduler, paged.context), options.host, options.port, options.grace).run()


if __name__ == "__main__":
    main()
