"""Lists the command-line tools and the modules of the package, and runs them: python -m saccade NAME [ARGUMENTS]

Exit codes: those of the tool; 2 for an unknown name; 3 if the package was built without the tool.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import pkgutil
import runpy
import sys
from typing import NoReturn

import saccade

TOOLS = {
    "compile": "compiles a program into a library, assembly or PTX",
    "lsp-server": "is a language server for editors, which shows errors and definitions in programs",
    "opt": "runs passes and pipelines on a module; --lint warns about likely mistakes",
    "reduce": "makes a program smaller for as long as a script reports a failure",
    "run": "compiles a program and runs it",
}


def modules() -> dict[str, str]:
    """The packages in saccade that `python -m` runs, with the first line of what their `__main__` says about itself.

    Their source is parsed, not imported: a frontend requires its framework.
    """
    found = {}
    for module in pkgutil.iter_modules(saccade.__path__):
        spec = importlib.util.find_spec(f"saccade.{module.name}") if module.ispkg else None
        for folder in spec.submodule_search_locations or [] if spec else []:
            path = os.path.join(folder, "__main__.py")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    text = ast.get_docstring(ast.parse(file.read())) or ""
                found[module.name] = text.partition("\n")[0].partition(": python -m")[0]
    return found


def usage() -> str:
    lines = ["usage: python -m saccade NAME [ARGUMENTS]", "       python -m saccade --version", "", "Tools:"]
    for name, text in TOOLS.items():
        note = "" if os.path.exists(saccade.tool(f"saccade-{name}")) else " (not in this build)"
        lines.append(f"  {name:<12}{text}{note}")
    lines += ["", "Modules:"]
    lines += [f"  {name:<12}{text[:1].lower()}{text[1:]}" for name, text in modules().items()]
    lines += ["", "`python -m saccade NAME --help` prints the options. The tools are also installed as commands:",
              "  " + ", ".join(f"saccade-{name}" for name in TOOLS)]  # fmt: skip
    return "\n".join(lines)


def run_packaged(name: str, arguments: list[str]) -> NoReturn:
    """Replaces this process by a tool of the package, or exits with 3."""
    path = saccade.tool(name)
    try:
        os.execv(path, [name, *arguments])
    except OSError as error:
        print(f"{name}: error: cannot run the tool of this package, {path}: {error.strerror}", file=sys.stderr)
        sys.exit(3)


# The commands that the package installs.


def compile_tool() -> NoReturn:
    run_packaged("saccade-compile", sys.argv[1:])


def lsp_server_tool() -> NoReturn:
    run_packaged("saccade-lsp-server", sys.argv[1:])


def opt_tool() -> NoReturn:
    run_packaged("saccade-opt", sys.argv[1:])


def reduce_tool() -> NoReturn:
    run_packaged("saccade-reduce", sys.argv[1:])


def run_tool() -> NoReturn:
    run_packaged("saccade-run", sys.argv[1:])


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name == "--version":
        from saccade._library import library  # loads the compiler

        print(f"saccade {library().saccade_version().decode()}")
        return 0
    if name in TOOLS:
        run_packaged(f"saccade-{name}", arguments[1:])
    known = modules()
    if name in known:
        sys.argv[:] = [name, *arguments[1:]]
        runpy.run_module(f"saccade.{name}", run_name="__main__", alter_sys=True)
        return 0
    expected = ", ".join([*TOOLS, *known])
    print(f"python -m saccade: error: unknown name '{name}', expected one of {expected}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
