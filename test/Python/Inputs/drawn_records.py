"""Records with random attention weights, in which each weight is known: no model runs."""

import numpy as np

from saccade.observe.record import STATISTICS, Event, Layer, Map, MaskTiles, Received, Record, Tile


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def drawn_weights(generator, queries, keys, causal):
    """Weights [queries, keys] that fall mostly on the first key and near the diagonal."""
    i, j = np.mgrid[:queries, :keys]
    scores = generator.normal(0, 1.5, (queries, keys)) - 0.15 * abs(i - j) + 3 * (j == 0)
    return softmax(np.where(j <= i, scores, -np.inf) if causal else scores)


def statistics(weights):
    """The statistics of one head, in the order of STATISTICS."""
    entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum(-1).mean()
    return (entropy, np.exp(entropy), weights.max(), weights[:, 0].mean(), np.diagonal(weights).mean(),
            entropy / np.log(weights.shape[1]))  # fmt: skip


def as_bytes(numbers):
    scale = float(numbers.max())
    return scale, np.round(numbers / scale * 255).astype(np.uint8)


def pooled(weights, size):
    """Mean mass of blocks of size × size."""
    rows = np.add.reduceat(weights, range(0, weights.shape[0], size), axis=0)
    counts = np.diff([*range(0, weights.shape[0], size), weights.shape[0]])
    return np.add.reduceat(rows / counts[:, None], range(0, weights.shape[1], size), axis=1)


def record(layers=2, heads=3, tokens=("[CLS]", "the", "animal", "was", "tired", "because", "it", "slept", "[SEP]"), steps=(0, 100, 200),
           length=None, block=1, tile=None, causal=False, seed=0):
    """A record of `layers` × `heads` heads. Without `length` it is that of the tokens. `block`: the size of the blocks of
    maps. `tile`: the size of one tile of exact weights for each head, from position 0 on."""
    generator = np.random.default_rng(seed)
    length = length or len(tokens)
    result = Record("DrawnModel", [Layer(f"layer.{n}.attention", 0, heads, length, length, causal) for n in range(layers)],
                    list(steps), tokens=None if tokens is None else [[tokens[i % len(tokens)] for i in range(length)]])  # fmt: skip
    last = np.zeros((layers, len(STATISTICS), heads))
    for layer in range(layers):
        for head in range(heads):
            weights = drawn_weights(generator, length, length, causal)
            last[layer, :, head] = statistics(weights)
            result.maps.append(Map(*as_bytes(pooled(weights, block)), layer, head, block, block))
            result.received.append(Received(*as_bytes(weights.sum(0)), layer, head))
            if tile:
                result.tiles.append(Tile(*as_bytes(weights[:tile, :tile]), layer, head, 0, 0, 0))
    for n, name in enumerate(STATISTICS):
        result.statistics[name] = [[(last[layer, n] * (1 + 0.1 * (len(steps) - 1 - step))).astype(np.float32)
                                    for layer in range(layers)] for step in range(len(steps))]  # fmt: skip
    return result


def with_events_and_mask(result):
    """The record with an event of a head and one of a layer, a statistic that is NaN, and a causal mask of tiles."""
    result.events += [Event(100, "nan", 1, 2, 4, 3, "key", "layer 1, head 2: the first NaN is at query 4, key 3, from the key"),
                      Event(200, "uniform", 0, None, None, None, None, "the weights of layer 0 are almost even")]  # fmt: skip
    result.statistics["entropy"][-1][1][2] = np.float32("nan")
    i, j = np.mgrid[:4, :4]
    result.mask_tiles = [MaskTiles(0, 128, np.where(i == j, 1, np.where(j < i, 2, 0)).astype(np.uint8))]
    return result
