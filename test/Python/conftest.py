"""Set-up of the package's tests: `./dev test` runs them with the built package on PYTHONPATH and the tools on PATH.

Every process of pytest-xdist runs whole files (`--dist loadfile`), so a package such as torch is imported once per
process. Tests that change a process for good (threads, forks, import time) run a script of Inputs/ in a fresh one.
No two files of these folders have the same name: each is imported as a module of its own name.
"""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE / "Inputs"))
# Tests compile what they test, and keep no files of the user.
os.environ["SACCADE_CACHE"] = "0"


def pytest_collection_modifyitems(config, items):
    """Leaves out what Inputs/sampled.py says, unless single tests are named. With SACCADE_LONG in the environment, all
    cases of the functions that are named there run, and nothing else."""
    from sampled import SAMPLED, left_out

    if os.environ.get("SACCADE_LONG"):
        out = {place for place, item in enumerate(items) if item.originalname not in SAMPLED}
    elif config.option.keyword or any("::" in each for each in config.args):
        return
    else:
        out = set(left_out([(item.originalname, item.name) for item in items]))
    config.hook.pytest_deselected(items=[item for place, item in enumerate(items) if place in out])
    items[:] = [item for place, item in enumerate(items) if place not in out]


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The root of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def build() -> pathlib.Path:
    """The root of the build tree."""
    return pathlib.Path(os.environ.get("SACCADE_BUILD", ROOT / "build" / "dev")).resolve()


@pytest.fixture
def run_script():
    """A function that runs a script of Inputs/ with arguments in a fresh interpreter; it must exit with 0."""

    def run(name: str, *arguments: object, **environment: str) -> str:
        path = os.pathsep.join([str(HERE / "Inputs"), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run([sys.executable, str(HERE / "Inputs" / name), *map(str, arguments)], capture_output=True,
                              text=True, env={**os.environ, "PYTHONPATH": path, **environment})  # fmt: skip
        assert done.returncode == 0, f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="module")
def attend():
    """The compiled function `attend` of Inputs/programs.py."""
    import programs

    import saccade

    return saccade.compile(programs.attention()).attend


@pytest.fixture(scope="module")
def capped():
    """The compiled function `capped` of Inputs/programs.py."""
    import programs

    import saccade

    return saccade.compile(programs.capped).capped


@pytest.fixture
def dynamo():
    """torch.compile knows nothing of other tests."""
    import torch

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def no_grad():
    """PyTorch records no gradients."""
    import torch

    with torch.no_grad():
        yield


@pytest.fixture
def no_warning_yet(monkeypatch):
    """Calls that PyTorch computes warn as the first ones of a process."""
    from saccade.torch import fallback

    monkeypatch.setattr(fallback, "_warned", set())
