"""Times matmuls with quantized weights beside a plain read of as many bytes and, if its libraries are given, ggml.

    python benchmarks/quantized_weights.py --threads 2 --ggml FOLDER

FOLDER has libggml-base.so and libggml-cpu.so, as the package llama-cpp-python does (`llama_cpp/lib`). Rounds of all
programs alternate, and the best of each counts, so that other load of the machine meets all of them alike.
"""

import argparse
import ctypes
import threading
import time

SIZES = {"q4_0": (32, 18), "q8_0": (32, 34), "q4_k": (256, 144), "q6_k": (256, 210)}


def program(kind, columns, depth, form):
    """x · wᵀ for any number of rows of x. `form`: the type of x, or int8 for f32 that is rounded."""
    element = "f32" if form == "int8" else form
    elements, size = SIZES[kind]
    blocks = f"tensor<{columns}x{depth // elements}x{size}xi8>"
    x, w, y = (f"tensor<?x{depth}x{element}>", f"tensor<{columns}x{depth}x{element}>", f"tensor<?x{columns}xf32>")
    rounded = f"%r = attn.fake_quantize %x : {x}" if form == "int8" else ""
    lhs = "%r" if rounded else "%x"
    return f"""
func.func @f(%x: {x}, %b: {blocks} {{attn.constant}}) -> {y} {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %w = attn.dequantize %b format({kind}) : {blocks} -> {w}
  {rounded}
  %m = tensor.dim %x, %c0 : {x}
  %e = tensor.empty(%m) : {y}
  %z = linalg.fill ins(%zero : f32) outs(%e : {y}) -> {y}
  %y = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>,
      affine_map<(i, j, k) -> (i, j)>] ins({lhs}, %w : {x}, {w}) outs(%z : {y}) -> {y}
  return %y : {y}
}}"""


def random_blocks(kind, columns, depth):
    import numpy as np

    elements, size = SIZES[kind]
    blocks = np.random.default_rng(0).integers(0, 256, (columns, depth // elements, size), dtype=np.uint8)
    for at in {"q4_k": (0, 2), "q6_k": (208,)}.get(kind, (0,)):
        blocks[..., at : at + 2] = np.float16([2**-6]).view(np.uint8)
    return blocks


def plain_read(blocks, threads):
    """A call that reads all bytes, each thread its part."""
    import numpy as np

    parts = np.array_split(blocks.reshape(-1)[: blocks.size // 64 * 64].view(np.int64), threads)

    def run():
        others = [threading.Thread(target=part.max) for part in parts[1:]]
        for each in others:
            each.start()
        parts[0].max()
        for each in others:
            each.join()

    return run


class Ggml:
    """ggml's mul_mat with weights in one of its kinds of buffers."""

    BUFFERS = {"plain": ("base", "ggml_backend_cpu_buffer_type"), "repacked": ("cpu", "_Z35ggml_backend_cpu_repack_buffer_typev"),
               "AMX": ("cpu", "_Z28ggml_backend_amx_buffer_typev")}  # fmt: skip

    class Parameters(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

    def __init__(self, folder, threads):
        # Permission of the system to use tile registers, for all threads.
        ctypes.CDLL(None).syscall(158, 0x1023, 18)
        self.libraries = {name: ctypes.CDLL(f"{folder}/libggml-{name}.so", mode=ctypes.RTLD_GLOBAL) for name in ("base", "cpu")}
        self.backend = self.call("cpu", "ggml_backend_cpu_init")
        self.call("cpu", "ggml_backend_cpu_set_n_threads", self.backend, ctypes.c_int(threads))

    def call(self, library, name, *arguments):
        function = getattr(self.libraries[library], name)
        function.restype = ctypes.c_void_p
        return function(*(ctypes.c_void_p(each) if isinstance(each, int) else each for each in arguments))

    def matrix(self, context, kind, columns, rows):
        return self.call("base", "ggml_new_tensor_2d", context, ctypes.c_int(kind), ctypes.c_int64(columns), ctypes.c_int64(rows))

    def context(self):
        return self.call("base", "ggml_init", self.Parameters(1 << 22, None, True))

    def set(self, tensor, array):
        self.call("base", "ggml_backend_tensor_set", tensor, array.ctypes.data, ctypes.c_size_t(0), ctypes.c_size_t(array.nbytes))

    def weights(self, blocks, depth, buffer):
        kind = self.call(*self.BUFFERS[buffer])
        if not kind:
            return None
        context = self.context()
        tensor = self.matrix(context, 2, depth, len(blocks))
        if not self.call("base", "ggml_backend_alloc_ctx_tensors_from_buft", context, kind):
            return None
        self.set(tensor, blocks)
        return tensor

    def matmul(self, weights, x):
        context = self.context()
        lhs = self.matrix(context, 0, x.shape[1], x.shape[0])
        product = self.call("base", "ggml_mul_mat", context, weights, lhs)
        graph = self.call("base", "ggml_new_graph", context)
        self.call("base", "ggml_build_forward_expand", graph, product)
        self.call("base", "ggml_backend_alloc_ctx_tensors", context, self.backend)
        self.set(lhs, x)
        return lambda: self.call("base", "ggml_backend_graph_compute", self.backend, graph)


def best_times(calls, rounds):
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads of each program (1)")
    parser.add_argument("--columns", type=int, default=65536, help="rows of the weights, the columns of the result (65536)")
    parser.add_argument("--depth", type=int, default=4096, help="elements of a row of weights (4096)")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 512], help="rows of the LHS (1 16 512)")
    parser.add_argument("--formats", nargs="+", choices=SIZES, default=["q4_0"], help="formats (q4_0)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds, of which the best counts (7)")
    parser.add_argument("--ggml", metavar="FOLDER", help="the folder of ggml's libraries; Q4_0 only")
    parser.add_argument("--buffers", nargs="+", choices=Ggml.BUFFERS, default=["plain", "repacked"], help="buffers of ggml's weights (plain repacked)")
    options = parser.parse_args()
    import numpy as np

    import saccade

    saccade.set_num_threads(options.threads)
    ggml = Ggml(options.ggml, options.threads) if options.ggml else None
    print("| weights | rows | program | ms | weights, GB/s | GFLOP/s |\n|---|---|---|---|---|---|")
    for kind in options.formats:
        blocks = random_blocks(kind, options.columns, options.depth)
        stored = {name: ggml.weights(blocks, options.depth, name) for name in options.buffers} if ggml and kind == "q4_0" else {}
        functions = {each: saccade.compile(program(kind, options.columns, options.depth, each)).f for each in ("f32", "bf16", "int8")}
        for rows in options.rows:
            x = np.random.default_rng(1).standard_normal((rows, options.depth), dtype=np.float32)
            calls = {"plain read": plain_read(blocks, options.threads), "f32": lambda: functions["f32"](x, blocks.view(np.int8)),
                     "int8": lambda: functions["int8"](x, blocks.view(np.int8))}
            try:
                import torch

                short, signed = torch.from_numpy(x).bfloat16(), torch.from_numpy(blocks.view(np.int8))
                calls["bf16"] = lambda: functions["bf16"](short, signed)
            except ImportError:
                pass
            calls |= {f"ggml, {name}": ggml.matmul(tensor, x) for name, tensor in stored.items() if tensor}
            for name, seconds in best_times(calls, options.rounds).items():
                flops = "" if name == "plain read" else f"{2e-9 * rows * options.columns * options.depth / seconds:.0f}"
                print(f"| {kind} | {rows} | {name} | {seconds * 1e3:.2f} | {blocks.nbytes / seconds * 1e-9:.2f} | {flops} |", flush=True)


if __name__ == "__main__":
    main()
