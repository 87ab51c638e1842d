"""The decoder in llama.cpp, for compare.py: steps of generation with the weights of a GGUF file.

Needs the packages gguf and llama-cpp-python, which builds llama.cpp. The matrices and the caches of keys and values are
f32, as those of the other steps.
"""

import ctypes

import llama_cpp
import torch
from gguf_file import write_gguf


@llama_cpp.llama_log_callback
def _ignore(level, text, data):
    pass


class LlamaStep:
    """Steps of one sequence. The cache is that of llama.cpp; a step with length 0 clears it."""

    def __init__(self, decoder, path, threads):
        write_gguf(decoder, path)
        llama_cpp.llama_log_set(_ignore, None)
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = decoder.shape.positions
        options.n_threads = options.n_threads_batch = threads
        options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
        self.context, self.count = llama_cpp.llama_init_from_model(model, options), decoder.shape.tokens

    def __call__(self, tokens, lengths, caches):
        if int(lengths[0]) == 0:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        own = (llama_cpp.llama_token * tokens.shape[1])(*tokens[0].tolist())
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(own, len(own))) != 0:
            raise RuntimeError("llama_decode failed")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return torch.frombuffer(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float * self.count)).contents,
                                dtype=torch.float32)[None]
