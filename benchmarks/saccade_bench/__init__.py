"""How the benchmarks measure: every implementation in a process of its own, one at a time, in rounds."""
