"""Programs that several tests of the package call, their results in NumPy's float64, and a check of refusals."""

import numpy as np


def attention(element="f32", name="attend"):
    """@attend(q, k, v) over [batch, heads, length, 16]."""
    tensor = f"tensor<?x?x?x16x{element}>"
    return f"""func.func @{name}(%q: {tensor}, %k: {tensor}, %v: {tensor}) -> {tensor} {{
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : ({tensor}, {tensor}, {tensor}) -> {tensor}
  return %o : {tensor}
}}
"""


# Two results, scalars of three kinds.
capped = """func.func @capped(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %n: index, %cap: f32,
                              %strict: i1) -> (tensor<?x16xf32>, tensor<?xf32>) {
  %o, %lse = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%cap, %strict : f32, i1) kv_len(%n : index)
    mask(%b, %h, %i, %j, %c, %strict_) {
      %before = arith.cmpi slt, %j, %i : index
      %to = arith.cmpi sle, %j, %i : index
      %keep = arith.select %strict_, %before, %to : i1
      attn.yield %keep : i1
    }
    score(%s, %b, %h, %i, %j, %c, %strict_) {
      %x = arith.divf %s, %c : f32
      %t = math.tanh %x : f32
      %y = arith.mulf %t, %c : f32
      attn.yield %y : f32
    } lse : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?xf32>)
  return %o, %lse : tensor<?x16xf32>, tensor<?xf32>
}
"""

# The extent of the result is what a tensor holds; the tensor %bias has no dimensions.
filled = """func.func @filled(%length: tensor<i32>, %bias: tensor<f32>) -> tensor<?xf32> {
  %n = tensor.extract %length[] : tensor<i32>
  %size = arith.index_cast %n : i32 to index
  %b = tensor.extract %bias[] : tensor<f32>
  %e = tensor.empty(%size) : tensor<?xf32>
  %f = linalg.fill ins(%b : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  return %f : tensor<?xf32>
}
"""


def expected_attention(q, k, v):
    """softmax(q kᵀ / √d) v in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def expected_capped(q, k, v, n, cap, strict):
    """What @capped gives, in float64; a row without keys gives 0 and -inf."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.tanh(q @ k.T / 4 / cap) * cap
    rows, columns = np.arange(len(q))[:, None], np.arange(len(k))[None, :]
    keep = (columns < rows if strict else columns <= rows) & (columns < n)
    p = np.where(keep, np.exp(scores), 0)
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return p / np.where(total == 0, 1, total) @ v, np.log(total[:, 0])


def refused(exception, words, call, *arguments, **named):
    """Asserts that a call raises exactly `exception`, with all `words` in its message; returns it."""
    try:
        call(*arguments, **named)
    except Exception as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        missing = [word for word in words if word not in text]
        assert type(error) is exception and not missing, f"{error!r}: expected {exception.__name__} with {missing}"
        return error
    raise AssertionError(f"not refused; expected {exception.__name__} with {words}")
