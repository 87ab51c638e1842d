"""A copy of the source tree with a build of its own, in which mistakes are planted. The checkout is never changed."""

import os
import pathlib
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ["saccade-test-depends"]
# Appended to the test configuration of the copy: tests see which mutant is on, and tell which ones they reach.
_LIT = '''
import sys
sys.path.insert(0, os.path.join({root!r}, "test", "Mutants"))
import lit_reach
lit_reach.install(config)
'''


class BuildError(Exception):
    """A build failed; the text is the end of its output."""


class Workspace:
    """The copy at `folder`. `text` maps files to the content that the copy has instead of that of the checkout."""

    def __init__(self, folder: pathlib.Path, jobs: int):
        self.folder, self.jobs = folder.resolve(), jobs
        self.build_dir = self.folder / "build" / "dev"
        self.text: dict[str, str] = {}

    def sync(self) -> None:
        """Copies what changed in the checkout, and writes the replaced files. Unchanged files keep their times."""
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True,
                                text=True, check=True).stdout.split("\0")
        names = {name for name in listed if name and (ROOT / name).is_file()} | set(self.text)
        for name in names:
            self.write(name, self.text.get(name))
        for folder, inner, files in os.walk(self.folder):
            if pathlib.Path(folder) == self.folder:
                inner[:] = [each for each in inner if each not in ("build", ".venv", ".git")]
            for file in files:
                path = pathlib.Path(folder, file)
                if str(path.relative_to(self.folder)) not in names and "__pycache__" not in path.parts:
                    path.unlink()
        venv = self.folder / ".venv"
        if not venv.exists() and (ROOT / ".venv").exists():
            venv.unlink(missing_ok=True)
            venv.symlink_to((ROOT / ".venv").resolve())

    def write(self, name: str, text: str | None = None) -> None:
        """Writes a file of the copy: this text, or the content that the checkout has."""
        data = (ROOT / name).read_bytes() if text is None else text.encode()
        if name == "test/lit.cfg.py":
            data += _LIT.format(root=str(ROOT)).encode()
        path = self.folder / name
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if os.access(ROOT / name, os.X_OK):
            path.chmod(0o755)

    def configure(self) -> None:
        """Configures the build."""
        if not (self.build_dir / "build.ninja").exists():
            self._run(["cmake", "--preset", "dev"], "configuring the copy")

    def build(self, targets: list[str] | None = None, keep_going: bool = False) -> None:
        """Builds the tools, libraries and unit tests. Raises BuildError."""
        command = ["ninja", "-C", str(self.build_dir), "-j", str(self.jobs), *(["-k", "0"] if keep_going else []),
                   *(targets or TARGETS)]
        self._run(command, "building the copy")

    def _run(self, command: list[str], what: str) -> None:
        start = time.monotonic()
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if time.monotonic() - start > 60:
            print(f"{what} took {time.monotonic() - start:.0f} s", flush=True)
        if done.returncode:
            raise BuildError(done.stdout)

    def errors(self, output: str) -> dict[str, list[int]]:
        """The lines with compile errors by file of the copy."""
        found: dict[str, list[int]] = {}
        for file, line in re.findall(r"^([^:\s]+):(\d+):\d+: (?:fatal )?error:", output, re.M):
            path = (self.build_dir / file).resolve()
            if path.is_relative_to(self.folder):
                found.setdefault(str(path.relative_to(self.folder)), []).append(int(line))
        return found
