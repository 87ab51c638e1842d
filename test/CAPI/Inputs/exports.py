"""Compares what libsaccade.so exports with what saccade-c/saccade.h declares. Plugins use its classes of C++ as well."""

import pathlib
import re
import subprocess
import sys

source, build = map(pathlib.Path, sys.argv[1:])
library = build / "lib" / "libsaccade.so"
header = (source / "include" / "saccade-c" / "saccade.h").read_text()
declared = set(re.findall(r"^SACCADE_API [^;{]*?\b(saccade_\w+)\(", header, re.M | re.S))
assert len(declared) > 20, declared
listed = subprocess.run(["llvm-nm", "-D", "-C", "--defined-only", library], check=True, capture_output=True, text=True).stdout
exported = {line.split(maxsplit=2)[2]: line.split(maxsplit=2)[1] for line in listed.splitlines()}
runtime_table = exported.pop("saccade_runtime_v1", None)
assert runtime_table == "u", f"saccade_runtime_v1 must be unique in a process, found {runtime_table}"
tools = {f"saccade_{tool}_main" for tool in ("compile", "opt", "run", "reduce", "lsp_server")}
cplusplus = {name for name in exported if re.search(r"\bsaccade::|_ZN7saccade", name)}
assert "saccade::attn::analyzeStability(saccade::attn::AttentionOp)" in cplusplus
assert "mlir::detail::TypeIDResolver<saccade::attn::AttentionOp, void>::id" in cplusplus
found = set(exported) - cplusplus - tools
assert found == declared, f"exported only: {found - declared}; declared only: {declared - found}"
