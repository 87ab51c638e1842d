"""Libraries with bound weights: `bind` of a loaded function, and `saccade.load(weights=...)` of files and mappings."""

import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from programs import refused

import saccade

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")

# Scalars of each kind beside the weights; the second function takes one of the weights of the first, and an own one.
TEXT = """
func.func @main(%x: tensor<?x24xf32>, %layer_0_weight: tensor<24x40xf32> {attn.constant}, %factor: f32,
                %layer_0_bias: tensor<40xbf16> {attn.constant}, %count: index, %flag: i1) -> tensor<?x40xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %number = arith.index_cast %count : index to i64
  %counted = arith.sitofp %number : i64 to f32
  %product = arith.mulf %factor, %counted : f32
  %times = arith.select %flag, %product, %factor : f32
  %rows = tensor.dim %x, %c0 : tensor<?x24xf32>
  %e = tensor.empty(%rows) : tensor<?x40xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x40xf32>) -> tensor<?x40xf32>
  %y = linalg.matmul ins(%x, %layer_0_weight : tensor<?x24xf32>, tensor<24x40xf32>) outs(%z : tensor<?x40xf32>)
      -> tensor<?x40xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
                                        affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%y, %layer_0_bias : tensor<?x40xf32>, tensor<40xbf16>) outs(%e : tensor<?x40xf32>) {
  ^bb0(%a: f32, %b: bf16, %o: f32):
    %wide = arith.extf %b : bf16 to f32
    %scaled = arith.mulf %a, %times : f32
    %sum = arith.addf %scaled, %wide : f32
    linalg.yield %sum : f32
  } -> tensor<?x40xf32>
  return %r : tensor<?x40xf32>
}
func.func @plain(%x: tensor<40xf32>, %own: tensor<40xf32>) -> tensor<40xf32> {
  %y = arith.addf %x, %own : tensor<40xf32>
  return %y : tensor<40xf32>
}
"""
NAMES = {"layer_0_weight": "layer.0.weight", "layer_0_bias": "layer.0.bias", "own": "own"}
generator = torch.Generator().manual_seed(3)
WEIGHTS = {"layer.0.weight": torch.randn(24, 40, generator=generator),
           "layer.0.bias": torch.randn(40, generator=generator).bfloat16(), "own": torch.randn(40, generator=generator),
           "not.read": torch.zeros(3)}  # fmt: skip
X = torch.randn(5, 24, generator=generator)


def expected(x=X, weights=WEIGHTS, factor=2.0, count=3, flag=True):
    return x @ weights["layer.0.weight"] * (factor * count if flag else factor) + weights["layer.0.bias"].float()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module", params=["prepack", "plain", "levels"])
def path(request, folder):
    """A library that packs weights, one that does not, and one with code for two CPU targets."""
    (folder / "program.mlir").write_text(TEXT)
    options = {"prepack": ["--prepack"], "plain": [], "levels": ["--target=portable,v3"]}[request.param]
    made = folder / f"{request.param}.so"
    subprocess.run(["saccade-compile", folder / "program.mlir", "--emit=so", "-o", made, *options], check=True)
    return made


@pytest.fixture(scope="module")
def file(folder):
    safetensors_torch.save_file(WEIGHTS, folder / "model.safetensors")
    return folder / "model.safetensors"


def check(artifact, weights=WEIGHTS):
    main = artifact.main
    assert [value.name for value in main.inputs] == ["x", "factor", "count", "flag"]
    for flag in (True, False):
        torch.testing.assert_close(main(X, 2.0, 3, flag), expected(weights=weights, flag=flag), rtol=1e-5, atol=1e-4)
    assert main.result_shapes(X, 2.0, 3, True) == ((5, 40),)
    out = np.empty((5, 40), np.float32)
    main.into(X.numpy(), 2.0, 3, True, out)
    torch.testing.assert_close(torch.from_numpy(out), expected(weights=weights), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(artifact.plain(X[0].repeat(2)[:40]), X[0].repeat(2)[:40] + weights["own"])


def test_weights_of_a_file(path, file):
    check(saccade.load(path, weights=file))


def test_pickled_weights_are_found_in_another_folder(path, file, tmp_path, monkeypatch):
    monkeypatch.chdir(file.parent)
    for weights in (file.name, [file.name]):
        monkeypatch.chdir(file.parent)
        pickled = pickle.dumps(saccade.load(path.name, weights=weights))
        monkeypatch.chdir(tmp_path)
        check(pickle.loads(pickled))


def test_weights_of_several_files(path, folder):
    parts = [folder / "model-1.safetensors", folder / "model-2.safetensors"]
    safetensors_torch.save_file({"layer.0.weight": WEIGHTS["layer.0.weight"]}, parts[0])
    safetensors_torch.save_file({name: x for name, x in WEIGHTS.items() if name != "layer.0.weight"}, parts[1])
    check(saccade.load(path, weights=parts))
    refused(ValueError, ["model-1", "'layer.0.weight' is in", "too"], lambda: saccade.load(path, weights=[parts[0], parts[0]]))


def test_weights_of_a_mapping_by_either_name(path):
    check(saccade.load(path, weights=WEIGHTS))
    check(saccade.load(path, weights={name: WEIGHTS[given] for name, given in NAMES.items()}))


def test_weights_that_change_are_read_again(path):
    own = {name: x.clone() for name, x in WEIGHTS.items()}
    artifact = saccade.load(path, weights=own)
    check(artifact, own)
    own["layer.0.weight"].mul_(2)
    own["layer.0.bias"].add_(1)
    check(artifact, own)


def test_functions_bind_by_argument(path):
    loaded = saccade.load(path)
    bound = loaded.main.bind(**{name: WEIGHTS[given] for name, given in NAMES.items() if name != "own"})
    torch.testing.assert_close(bound(X, 2.0, 3, True), expected(), rtol=1e-5, atol=1e-4)
    half = loaded.plain.bind(own=WEIGHTS["own"].numpy())
    assert np.array_equal(half(X[0].repeat(2)[:40].numpy()), X[0].repeat(2)[:40].numpy() + WEIGHTS["own"].numpy())
    refused(TypeError, ["already has bound arguments"], lambda: bound.bind(x=X))
    refused(TypeError, ["main has no argument 'own'"], lambda: loaded.main.bind(own=X))
    refused(ValueError, ["own has shape (24,), expected (40,)"], lambda: loaded.plain.bind(own=X[0]))
    refused(TypeError, ["takes 4 arguments", "missing: count, flag"], lambda: bound(X, 2.0))
    refused(TypeError, ["argument", "expected f32"], lambda: bound(X.double(), 2.0, 3, True))


@pytest.mark.parametrize(("change", "error", "words"), [
    pytest.param({"layer.0.weight": None}, ValueError, ["no tensor of 3 fits layer_0_weight"], id="missing"),
    pytest.param({"layer.0.weight": WEIGHTS["layer.0.weight"].T.contiguous()}, ValueError,
                 ["layer.0.weight has shape (40, 24), expected (24, 40)"], id="shape"),
    pytest.param({"layer.0.bias": torch.zeros(40)}, TypeError,
                 ["layer.0.bias has element type float32, expected bfloat16"], id="type"),
    pytest.param({"layer.0_weight": torch.zeros(24, 40)}, ValueError,
                 ["'layer.0.weight' and 'layer.0_weight' fit the argument 'layer_0_weight'"], id="twice"),
    pytest.param({"layer_0_weight": torch.zeros(24, 40)}, ValueError,
                 ["'layer.0.weight' and 'layer_0_weight' fit the argument 'layer_0_weight'"], id="twice, exactly"),
])  # fmt: skip
def test_weights_that_do_not_fit_are_refused(path, change, error, words):
    given = {name: x for name, x in (WEIGHTS | change).items() if x is not None}
    if words[0].startswith("no tensor") and path.stem != "prepack":
        artifact = saccade.load(path, weights=given)  # the argument is an input of the call
        assert "layer_0_weight" in [value.name for value in artifact.main.inputs]
        return
    refused(error, words, lambda: saccade.load(path, weights=given))


def test_similar_names_are_offered(path):
    given = {"layers.0.weight": WEIGHTS["layer.0.weight"], "layer.0.bias": WEIGHTS["layer.0.bias"]}
    if path.stem == "prepack":
        refused(ValueError, ["layer_0_weight (did you mean 'layers.0.weight'?)"], lambda: saccade.load(path, weights=given))
    refused(ValueError, [f"no tensor of 1 fits {'layer_0_weight' if path.stem == 'prepack' else 'x,'}"], lambda: saccade.load(path, weights={"other": X}))


def test_files_that_are_none_are_refused(path, file, tmp_path):
    cut, foreign, none = tmp_path / "cut.safetensors", tmp_path / "foreign.safetensors", tmp_path / "none.safetensors"
    cut.write_bytes(file.read_bytes()[:-8])
    foreign.write_bytes(b"PK\x03\x04" + bytes(100))
    for each in (cut, foreign):
        refused(ValueError, [f"{each} is no safetensors file, or damaged"], lambda each=each: saccade.load(path, weights=each))
    with pytest.raises(FileNotFoundError, match=re.escape(str(none))):
        saccade.load(path, weights=none)
    refused(TypeError, ["weights is 3, expected a path"], lambda: saccade.load(path, weights=3))


def test_a_library_that_replaces_another_is_loaded(tmp_path, folder):
    """The dynamic linker returns the library of the same path that it has mapped."""
    def emit(constant):
        text = f"""func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %c = arith.constant dense<{constant}.0> : tensor<4xf32>
  %y = arith.addf %x, %c : tensor<4xf32>
  return %y : tensor<4xf32>
}}"""
        (tmp_path / "f.mlir").write_text(text)
        subprocess.run(["saccade-compile", tmp_path / "f.mlir", "--emit=so", "-o", tmp_path / "f.so"], check=True)

    loaded = []
    for constant in (1, 2, 3):
        emit(constant)
        loaded.append(saccade.load(tmp_path / "f.so"))
    x = np.zeros(4, np.float32)
    assert [float(each.f(x)[0]) for each in loaded] == [1, 2, 3]
    assert float(saccade.load(tmp_path / "f.so").f(x)[0]) == 3
    os.utime(tmp_path / "f.so", ns=(0, 0))  # as a copy into the file would
    with pytest.raises(ImportError, match="written to after this process had loaded it"):
        saccade.load(tmp_path / "f.so")


def test_importers_write_one_file(tmp_path):
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(3, 5, 16)
    batch = torch.export.Dim("batch", min=1)
    torch.export.save(torch.export.export(layer, (x,), dynamic_shapes=({0: batch},)), tmp_path / "layer.pt2")
    exported, program, weights, made = [tmp_path / f"layer.{suffix}" for suffix in ("pt2", "mlir", "safetensors", "so")]
    command = [sys.executable, "-m", "saccade.torch", exported, "-o", program, "--weights", weights]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ran.stdout.split() == [str(weights), str(program)]
    assert sorted(os.listdir(tmp_path)) == ["layer.mlir", "layer.pt2", "layer.safetensors"]
    stored = safetensors_torch.load_file(weights)
    parameters = dict(layer.named_parameters())
    assert {name: tensor.shape for name, tensor in stored.items()} == {name: p.shape for name, p in parameters.items()}
    assert all(torch.equal(stored[name], parameter) for name, parameter in parameters.items())
    subprocess.run(["saccade-compile", program, "--prepack", "--emit=so", "-o", made], check=True)
    with torch.no_grad():
        expected = layer(x)
    for given in (weights, layer.state_dict()):
        torch.testing.assert_close(saccade.load(made, weights=given).main(x), expected, rtol=1e-5, atol=1e-5)
