"""The package as pip sees it: `pip install .` without the toolchain names what is missing, `python -m saccade` lists and
runs the tools, and the metadata has the extras. `./dev wheel --check` installs a whole wheel on a system without LLVM."""

import importlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import saccade
from saccade import __main__ as command

TOOLS = ["saccade-compile", "saccade-lsp-server", "saccade-opt", "saccade-reduce", "saccade-run"]


@pytest.fixture(scope="module")
def project(root):
    with open(root / "pyproject.toml", "rb") as file:
        return tomllib.load(file)


@pytest.fixture(scope="module")
def backend(root):
    """The build backend of pyproject.toml as a module."""
    spec = importlib.util.spec_from_file_location("build_backend", root / "cmake" / "build_backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python_m(*arguments, **environment):
    return subprocess.run([sys.executable, "-m", "saccade", *arguments], capture_output=True, text=True,
                          env=os.environ | environment)  # fmt: skip


def hook(root, name, code="pass", **environment):
    """Calls a hook of the backend in a fresh process, as pip does."""
    run = f"import sys; sys.path.insert(0, 'cmake'); import build_backend as b; {code}; print(b.{name}())"
    return subprocess.run([sys.executable, "-c", run], cwd=root, capture_output=True, text=True,
                          env={"HOME": os.environ.get("HOME", "/"), **environment})  # fmt: skip


# --- the build ----------------------------------------------------------------------------------------------------------


def test_build_without_the_toolchain_names_what_is_missing(root, tmp_path):
    done = hook(root, "get_requires_for_build_wheel", f"b.PREFIX = b.pathlib.Path({str(tmp_path)!r})", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for part in ("clang++-22 (clang-22)", "ld.lld-22 (lld-22)", f"{tmp_path}/lib/cmake/mlir/MLIRConfig.cmake (libmlir-22-dev)"):
        assert part in done.stderr
    assert "./dev build" in done.stderr


def test_message_lists_only_what_is_missing(root, backend, tmp_path):
    """With the files of LLVM and an empty PATH, the compiler and the linker are missing."""
    for file, _ in backend.FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    done = hook(root, "require_toolchain", f"b.PREFIX = b.pathlib.Path({str(tmp_path)!r})", PATH="")
    assert done.returncode == 1
    assert "clang++-22 (clang-22)" in done.stderr
    assert "libLLVMCore.a" not in done.stderr


def test_pip_shows_the_message(root, tmp_path):
    """pip of this Python, without a network: the check runs before the backend needs any package."""
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation",
                           "--wheel-dir", str(tmp_path), str(root)], capture_output=True, text=True,
                          env=os.environ | {"PATH": str(tmp_path)})  # fmt: skip
    assert done.returncode != 0
    assert "saccade: the toolchain is incomplete" in done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


def test_toolchain_at_another_place_is_left_to_cmake(backend, monkeypatch):
    monkeypatch.setattr(backend, "PREFIX", pathlib.Path("/nonexistent"))
    monkeypatch.setenv("CMAKE_ARGS", "-DMLIR_DIR=/usr/local/lib/cmake/mlir")
    assert backend.missing() == []


def test_packages_of_the_message_are_those_that_dev_installs(root, backend):
    packages = re.search(r"readonly PACKAGES=\((.*?)\)", (root / "dev").read_text(), re.DOTALL)[1]
    known = packages.replace("$LLVM", str(backend.LLVM)).replace('"', "").split()
    assert {package for _, package in [*backend.PROGRAMS, *backend.FILES]} <= set(known)


def test_staged_package_is_packed_as_it_is(build):
    done = hook(build / "python", "settings", "b.settings = lambda f=b.settings: f(None)", PATH="")
    assert done.returncode == 0, done.stderr
    assert "'wheel.cmake': 'false'" in done.stdout


# --- metadata -----------------------------------------------------------------------------------------------------------


def test_extras_install_what_the_suite_runs_with(project):
    """Each extra accepts the version that the suite pins, and `all` has every other extra."""
    version = pytest.importorskip("packaging.version")
    requirements = pytest.importorskip("packaging.requirements")
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    pins = {r.name: str(r.specifier).removeprefix("==")
            for r in map(requirements.Requirement, groups["base"] + groups["test"])}  # fmt: skip
    (everything,) = map(requirements.Requirement, extras["all"])
    assert everything.name == "saccade"
    assert everything.extras == set(extras) - {"all"}
    for name in everything.extras | {None}:
        for text in extras[name] if name else project["project"]["dependencies"]:
            requirement = requirements.Requirement(text)
            assert requirement.specifier, f"{text}: a range is required"
            assert requirement.specifier.contains(version.Version(pins[requirement.name])), text


def test_commands_are_functions_of_the_package(project):
    scripts = project["project"]["scripts"]
    assert sorted(scripts) == [*TOOLS, "saccade-tune"]
    assert sorted(f"saccade-{name}" for name in command.TOOLS) == TOOLS
    for name, target in scripts.items():
        module, _, function = target.partition(":")
        assert module == ("saccade.tune.__main__" if name == "saccade-tune" else "saccade.__main__")
        assert callable(getattr(importlib.import_module(module), function))


# --- python -m saccade --------------------------------------------------------------------------------------------------


def test_tools_and_modules_are_listed():
    done = python_m()
    assert done.returncode == 0
    for name in (*command.TOOLS, "jax", "onnx", "torch"):
        assert re.search(rf"^  {name} +\w", done.stdout, re.MULTILINE), done.stdout
    assert "not in this build" not in done.stdout
    assert python_m("--help").stdout == done.stdout


def test_version_is_that_of_the_project(project):
    assert python_m("--version").stdout == f"saccade {project['project']['version']}\n"
    assert saccade.__version__ == project["project"]["version"]


@pytest.mark.parametrize(("page", "pattern"), [
    ("CHANGELOG.md", r"^## (\d\S*) - \d{4}-\d\d-\d\d$"),
    ("README.md", r"^  version = \{(.*)\}$"),
    ("docs/guides/install.md", r"saccade-(\d[^-]*)-py3"),
], ids=["changelog", "readme", "install"])  # fmt: skip
def test_pages_name_the_version_of_the_project(root, project, page, pattern):
    found = re.search(pattern, (root / page).read_text(), re.MULTILINE)
    assert found[1] == project["project"]["version"]


@pytest.mark.parametrize("name", TOOLS)
def test_tool_runs(name):
    done = python_m(name.removeprefix("saccade-"), "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{name}: Saccade")


def test_tool_gets_its_arguments_and_sets_the_exit_code():
    done = python_m("run", "--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


def test_module_runs():
    pytest.importorskip("onnx")
    done = python_m("onnx", "--help")
    assert done.returncode == 0, done.stderr
    assert "python -m saccade.onnx" in done.stdout


def test_unknown_name_is_refused():
    done = python_m("complie")
    assert done.returncode == 2
    assert "unknown name 'complie', expected one of compile, lsp-server, opt, reduce, run" in done.stderr


def test_missing_tool_is_an_error(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(saccade, "tool", lambda name: str(tmp_path / name))
    with pytest.raises(SystemExit) as ended:
        command.run_packaged("saccade-opt", [])
    assert ended.value.code == 3
    assert f"{tmp_path}/saccade-opt: No such file" in capsys.readouterr().err
