// Programs that test/Fuzz/torch_texts.py changes, beside those that test the importer.

func.func @sizes(%x: tensor<?x4xf32>) -> !torch.value {
  %n = "torch.aten.sym_size"(%x) {arguments = ["self"], dim = 0 : i64} : (tensor<?x4xf32>) -> tensor<i64>
  %h = "torch.sym.floordiv"(%n) {arguments = ["self"], other = 2 : i64} : (tensor<i64>) -> tensor<i64>
  %y = "torch.aten.slice"(%x, %h) {arguments = ["self", "end"], dim = 0 : i64, start = 1 : i64} : (tensor<?x4xf32>, tensor<i64>) -> !torch.value
  %z = "torch.aten.narrow"(%y) {arguments = ["self"], dim = 1 : i64, start = -3 : i64, length = 2 : i64} : (!torch.value) -> !torch.value
  return %z : !torch.value
}
// -----
func.func @parts(%x: tensor<8x4xf32>, %y: tensor<2x4xf32>, %m: tensor<8xi1>) -> !torch.value {
  %a = "torch.aten.slice_scatter"(%x, %y) {arguments = ["self", "src"], dim = 0 : i64, start = 1 : i64, end = 3 : i64} : (tensor<8x4xf32>, tensor<2x4xf32>) -> !torch.value
  %b = "torch.aten.sum"(%a) {arguments = ["self"], dim = [0, 1], keepdim = true, dtype = f64} : (!torch.value) -> !torch.value
  %c = "torch.aten.add"(%a, %b) {arguments = ["self", "other"], alpha = 2 : i64} : (!torch.value, !torch.value) -> !torch.value
  %o = "torch.aten.full"() {arguments = [], size = [2, 4], fill_value = 2 : i64, dtype = f32} : () -> !torch.value
  %d = "torch.aten.cat"(%c, %o) {arguments = ["tensors", "tensors"], dim = 0 : i64} : (!torch.value, !torch.value) -> !torch.value
  %e = "torch.aten.pad"(%d) {arguments = ["self"], pad = [1, 2, 0, 1], value = 0.5 : f64} : (!torch.value) -> !torch.value
  %f = "torch.aten.roll"(%e) {arguments = ["self"], shifts = [1, 2], dims = [0, 1]} : (!torch.value) -> !torch.value
  %g = "torch.aten.unflatten"(%d) {arguments = ["self"], dim = 0 : i64, sizes = [2, -1]} : (!torch.value) -> !torch.value
  %h = "torch.aten.repeat_interleave"(%y) {arguments = ["self"], repeats = 2 : i64, dim = 0 : i64} : (tensor<2x4xf32>) -> !torch.value
  %i = "torch.aten.arange"() {arguments = [], start = 0.0 : f64, end = 4.0 : f64, step = 0.5 : f64} : () -> !torch.value
  %j = "torch.aten.repeat"(%i) {arguments = ["self"], repeats = [2, 1]} : (!torch.value) -> !torch.value
  %k = "torch.aten.clamp"(%j) {arguments = ["self"], min = 0 : i64, max = 2.5 : f64} : (!torch.value) -> !torch.value
  %l = "torch.aten.select_scatter"(%y, %i) {arguments = ["self", "src"], dim = 0 : i64, index = 1 : i64} : (tensor<2x4xf32>, !torch.value) -> !torch.value
  return %k : !torch.value
}
