"""Measurement library of the benchmarks: each implementation runs in its own process, one at a time, in rounds."""
