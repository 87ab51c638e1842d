"""How precise the analysis of masks is. For each mask of the library, at most one tile in twenty is called partial that
is empty or full, and no tile is called empty or full that is not.
"""

import subprocess

import numpy as np
import pytest

from saccade import _program, masks, regions
from saccade._form import Form

random = np.random.default_rng(1)
LENGTH = 1024
TILE = 64
sizes = random.multinomial(LENGTH, np.full(12, 1 / 12))
offsets = np.concatenate([[0], np.cumsum(sizes)])
shuffled = random.permutation(LENGTH // 8).repeat(8) % 5
flags = random.random(LENGTH) < 0.01
parents = [-1] + [int(random.integers(max(0, n - 5), n)) for n in range(1, LENGTH)]
own = lambda b, h, i, j: flags[i] | flags[j]

LIBRARY = {
    "causal": masks.causal(),
    "causal, offset": masks.causal(np.array(100)),
    "window": masks.window(100, 20),
    "window, run time": masks.window(np.array(100), np.array(20)),
    "causal and window": masks.causal() & masks.window(200, 200),
    "not causal": ~masks.causal(),
    "dilated": masks.dilated(4, 40, 40),
    "dilated, run time": masks.dilated(np.array(4), np.array(40), np.array(40)),
    "strided": masks.strided(128, 64),
    "block sparse": masks.block_sparse(random.random((16, 16)) < 0.2, 64),
    "block sparse, small": masks.block_sparse(random.random((64, 64)) < 0.1, 16),
    "block sparse, heads": masks.block_sparse(random.random((2, 8, 16)) < 0.2, 128, 64),
    "prefix": masks.prefix_lm(300),
    "prefix, batch": masks.prefix_lm(np.array([300])),
    "padding": masks.padding(np.array([700])),
    "packed": masks.ragged(offsets),
    "packed and causal": masks.ragged(offsets) & masks.causal(),
    "documents in any order": masks.documents(shuffled),
    "global": masks.global_tokens(10),
    "longformer": masks.longformer(64, 4),
    "longformer, dilated": masks.longformer(32, 4, 4),
    "bigbird": masks.bigbird(LENGTH, 32),
    "swin": masks.swin(32, 32, 8),
    "swin, shifted": masks.swin(32, 32, 8, 4),
    "neighbourhood": masks.neighborhood((LENGTH,), 101),
    "neighbourhood, 2-D": masks.neighborhood((32, 32), 7),
    "neighbourhood, 3-D": masks.neighborhood((16, 8, 8), 3),
    "tree": masks.tree(parents),
    "flagged or near": masks.window(50, 50) | own,
}  # fmt: skip


def count(counter, mask, folder):
    """Tiles that are empty, full, partial, partial without need, wrong, and a line for each of the last two kinds."""
    region = regions.trace(mask.function, "mask", "f32")
    form = Form("f32", 8, 8, "bhsd", mask=_program.region_text("mask", region))
    program = folder / "mask.mlir"
    program.write_text(_program.program(form))
    numbers = []
    for capture in region.captures:
        capture = np.asarray(capture)
        numbers += [capture.ndim, *capture.shape, *capture.astype(np.int64).reshape(-1)]
    result = subprocess.run([counter, program, str(LENGTH), str(TILE), str(TILE)], check=True, text=True,
                            input=" ".join(map(str, numbers)), capture_output=True)
    return [int(number) for number in result.stdout.split()], result.stderr.splitlines()


@pytest.mark.parametrize("name", LIBRARY)
def test_tiles_are_classified_correctly_and_few_are_partial_without_need(name, build, tmp_path):
    (empty, full, partial, needless, wrong), lines = count(build / "test/Unit/mask-tiles", LIBRARY[name], tmp_path)
    tiles = empty + full + partial
    line = f"{empty} empty, {full} full, {partial} partial, of these {needless} without need, {wrong} wrong"
    told = "\n".join([line, *sorted(lines, key=lambda line: "called partial" in line)[:20]])
    assert not wrong, told
    assert needless <= tiles / 20, told
