"""Runs items in processes of their own, which are killed at a limit, so that a hang or a lost GPU costs one item."""

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time


@dataclasses.dataclass
class End:
    """How an item ended."""

    kind: str  # "done", "limit" (killed at its limit), "time" (killed at the end of the time), "lost" (an error)
    words: str = ""
    at: str = ""  # the step that it was in


class Process:
    """A worker that reads its item from the standard input, or from a file under a tool such as a profiler."""

    def __init__(self, command, log, has_input=True):
        self.buffer = b""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=log, start_new_session=True)

    def send(self, item):
        with contextlib.suppress(BrokenPipeError):  # it has died, which reading finds
            self.process.stdin.write(json.dumps(item).encode())
            self.process.stdin.close()

    def line(self, seconds):
        """The next line; b"" at the end of the output; None if there is none for so long."""
        until = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = max(0, until - time.monotonic())  # what was written meanwhile counts
            if not select.select([self.process.stdout], [], [], left)[0]:
                return None
            content = os.read(self.process.stdout.fileno(), 1 << 16)
            if not content:
                return b""
            self.buffer += content
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line + b"\n"

    def kill(self):
        """Ends the process and those it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for stream in filter(None, (self.process.stdin, self.process.stdout)):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the driver holds it; the next item may still run
            self.process.wait(10)


class Runner:
    """Starts workers; one that has imported what the next item needs waits while an item runs."""

    def __init__(self, script, scratch, log, driver):
        self.script, self.scratch, self.driver = script, scratch, driver
        self.log = open(log, "wb")  # noqa: SIM115 (until `close`)
        self.current, self.spare, self.spare_has_torch = None, None, False

    def command(self, path, torch):
        driver = ["--driver", self.driver] if self.driver else []
        return [sys.executable, str(self.script), "--worker", path, *driver] + ["--torch"] * torch

    def prepare(self, torch):
        """Starts a spare worker for the item after the current one."""
        self.spare, self.spare_has_torch = Process(self.command("-", torch), self.log), torch

    def take(self, torch):
        spare, self.spare = self.spare, None
        if spare and self.spare_has_torch == torch:
            return spare
        if spare:
            spare.kill()
        return Process(self.command("-", torch), self.log)

    def run(self, item, handle, limit, until, tool=(), next_torch=None):
        """Runs an item and returns its End; calls `handle` with each event.

        The item is killed if it writes nothing for `limit` seconds, or at the time `until`. `tool` is the beginning of
        a command line that runs the worker. `next_torch` says whether the next item needs PyTorch, if there is one.
        """
        torch = bool(item.get("torch"))
        if tool:
            path = self.scratch / "item.json"
            path.write_text(json.dumps(item))
            self.current = Process([*tool, *self.command(str(path), torch)], self.log, has_input=False)
        else:
            self.current = self.take(torch)
            self.current.send(item)
        if next_torch is not None and self.spare is None:
            self.prepare(next_torch)
        try:
            end = self.read(handle, limit, until)
            while tool and end.kind == "done" and self.current.line(max(0, until - time.monotonic())):
                pass  # the tool writes its log after the worker has ended
            return end
        finally:
            self.current.kill()
            self.current = None

    def read(self, handle, limit, until):
        at = ""
        while True:
            left = until - time.monotonic()
            line = self.current.line(max(0, min(limit, left)))
            if line is None:
                if left < limit:
                    return End("time", "killed at the end of the time", at)
                return End("limit", f"killed at its limit of {limit:g} s", at)
            if not line:
                code = self.current.process.wait()
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                return End("lost", f"its process ended with {how}; see workers.log", at)
            if not line.startswith(b"{"):
                continue  # of a library or a tool
            event = json.loads(line)
            at = event.get("begin", at)
            if "done" in event:
                return End("done")
            if "lost" in event or "error" in event:
                return End("lost", event.get("lost") or event["error"], at)
            handle(event)

    def close(self):
        for process in (self.current, self.spare):
            if process:
                process.kill()
        self.log.close()
