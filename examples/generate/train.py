"""Trains the decoder on Newton's Opticks and writes its weights in bfloat16: python examples/generate/train.py

The text is the one of examples/training. Two cores of an Intel Sapphire Rapids take three steps a second.
"""

import argparse
import itertools
import math
import pathlib
import sys

import torch
from model import WEIGHTS, Decoder, Shape
from safetensors.torch import save_file
from tqdm import tqdm

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from char_gpt import batches, read_text

RATE = 3e-3  # of learning, after the warm-up
WARM_UP = 50  # steps
BATCH = {"size": 4, "context": Shape.positions}
HELD_OUT, HELD_OUT_BATCHES = 20000, 16  # bytes at the end, to measure the loss, and batches of them


def on(device, pairs):
    return ([x.to(device) for x in pair] for pair in pairs)


def train(decoder, data, steps, seed):
    device = decoder.cos.device
    optimizer = torch.optim.AdamW(decoder.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    progress = tqdm(range(steps), unit="step")
    for step, batch in zip(progress, on(device, batches(data, seed, **BATCH))):
        rate = RATE * min(1, (step + 1) / WARM_UP) * (0.05 + 0.95 * (1 + math.cos(math.pi * step / steps)) / 2)
        optimizer.param_groups[0]["lr"] = rate
        loss = decoder.loss(*batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        progress.set_postfix_str(f"loss {loss.item():.3f}")


@torch.no_grad()
def held_out_loss(decoder, data):
    pairs = itertools.islice(batches(data, 0, **BATCH), HELD_OUT_BATCHES)
    losses = [decoder.loss(*pair).item() for pair in on(decoder.cos.device, pairs)]
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", metavar="FILE", help="a text to train on instead of Newton's Opticks")
    parser.add_argument("--out", metavar="FILE", type=pathlib.Path, default=WEIGHTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    data = torch.frombuffer(bytearray(read_text(options.text).encode()), dtype=torch.uint8).long()
    decoder = Decoder().to(options.device)
    train(decoder, data[:-HELD_OUT], options.steps, options.seed)
    print(f"loss of the held-out text: {held_out_loss(decoder.eval(), data[-HELD_OUT:]):.3f}")
    save_file({name: x.detach().bfloat16().cpu().contiguous() for name, x in decoder.state_dict().items()}, options.out)
    print(f"{sum(x.numel() for x in decoder.parameters()) / 1e6:.2f} M parameters: {options.out}")


if __name__ == "__main__":
    main()
