"""The build backend of the package: scikit-build-core, after a check that the toolchain is there.

`pip install .` builds libsaccade.so and the tools with the CMake preset `wheel`. Without the toolchain it ends with a
message that lists what is missing, before pip downloads CMake and before a compiler error hides the cause. The package
that `./dev build` stages in a build tree contains the library already: there the backend runs no CMake.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import Any

LLVM = 22
# Where CMakePresets.json looks for LLVM, MLIR and LLD.
PREFIX = pathlib.Path(f"/usr/lib/llvm-{LLVM}")
# A file, and the Debian package that has it. CMake and Ninja are not listed: pip installs them if the system has none.
FILES = [
    ("lib/cmake/llvm/LLVMConfig.cmake", f"llvm-{LLVM}-dev"),
    ("lib/cmake/mlir/MLIRConfig.cmake", f"libmlir-{LLVM}-dev"),
    ("lib/cmake/lld/LLDConfig.cmake", f"liblld-{LLVM}-dev"),
    ("lib/libLLVMCore.a", f"llvm-{LLVM}-dev"),
    ("lib/libMLIRIR.a", f"libmlir-{LLVM}-dev"),
    ("lib/liblldELF.a", f"liblld-{LLVM}-dev"),
    ("bin/mlir-tblgen", f"mlir-{LLVM}-tools"),
]
PROGRAMS = [(f"clang++-{LLVM}", f"clang-{LLVM}"), (f"ld.lld-{LLVM}", f"lld-{LLVM}")]

ADVICE = """saccade: the toolchain is incomplete, so the package cannot be built from source. Missing:
{missing}

On Debian 12, `./dev build` in the source tree installs everything (as root or with sudo). Elsewhere, install
    {packages}
or the same parts of LLVM {version} under {prefix}. A wheel (saccade-*.whl, `./dev wheel`) needs none of this."""


def missing() -> list[tuple[str, str]]:
    """What the build needs and does not find, each with the name of its Debian package."""
    # Another location is the caller's business: CMake reports what it does not find there.
    is_elsewhere = any(name in os.environ.get("CMAKE_ARGS", "") for name in ("MLIR_DIR", "CMAKE_CXX_COMPILER"))
    if is_elsewhere:
        return []
    found = [(program, package) for program, package in PROGRAMS if not shutil.which(program)]
    return found + [(str(PREFIX / file), package) for file, package in FILES if not (PREFIX / file).exists()]


def require_toolchain() -> None:
    """Ends the build with a message if a part of the toolchain is missing."""
    parts = missing()
    if not parts:
        return
    lines = "\n".join(f"    {part} ({package})" for part, package in parts)
    packages = " ".join(sorted({package for _, package in parts}))
    text = ADVICE.format(missing=lines, packages=packages, version=LLVM, prefix=PREFIX)
    sys.exit(text)  # without a traceback


def settings(given: dict[str, Any] | None) -> dict[str, Any]:
    """The settings of scikit-build-core: those given; a staged package is packed as it is."""
    if not pathlib.Path("saccade/lib/libsaccade.so").exists():
        require_toolchain()
        return given or {}
    return {"wheel.cmake": "false", "wheel.platlib": "true", "wheel.packages": "saccade", **(given or {})}


def call(hook: str, *arguments: Any) -> Any:
    """Calls the hook of scikit-build-core, imported late: the check of the toolchain runs without it."""
    from scikit_build_core import build

    return getattr(build, hook)(*arguments)


# The hooks of PEP 517 and PEP 660.

Config = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Config = None) -> list[str]:
    return call("get_requires_for_build_wheel", settings(config_settings))


def get_requires_for_build_editable(config_settings: Config = None) -> list[str]:
    return call("get_requires_for_build_editable", settings(config_settings))


def get_requires_for_build_sdist(config_settings: Config = None) -> list[str]:
    return call("get_requires_for_build_sdist", config_settings)


def prepare_metadata_for_build_wheel(folder: str, config_settings: Config = None) -> str:
    return call("prepare_metadata_for_build_wheel", folder, settings(config_settings))


def prepare_metadata_for_build_editable(folder: str, config_settings: Config = None) -> str:
    return call("prepare_metadata_for_build_editable", folder, settings(config_settings))


def build_wheel(folder: str, config_settings: Config = None, metadata: str | None = None) -> str:
    return call("build_wheel", folder, settings(config_settings), metadata)


def build_editable(folder: str, config_settings: Config = None, metadata: str | None = None) -> str:
    return call("build_editable", folder, settings(config_settings), metadata)


def build_sdist(folder: str, config_settings: Config = None) -> str:
    return call("build_sdist", folder, config_settings)
