//===- Refusals.cpp - PyTorch operators that a program cannot have --------===//
//
// Results that are drawn, or whose number or shape depends on elements. The message says why, and what to do.
//
//===----------------------------------------------------------------------===//
#include "Torch.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

static void refuse(frontend::Frontend &frontend, ArrayRef<StringRef> names, StringRef reason) {
  for (StringRef name : names)
    frontend.translators[name] = [reason](FrontendOp &op, Values &) -> LogicalResult { return op.error() << reason; };
}

void torch::addRefusals(frontend::Frontend &frontend) {
  refuse(
      frontend, {"aten._local_scalar_dense", "aten.item"},
      "it makes a number of an element, as item(), tolist(), int() and float() of a tensor do, but elements are known "
      "only when the program runs: keep the tensor, or pass the number as an argument");
  refuse(frontend,
         {"aten.bernoulli", "aten.multinomial", "aten.normal", "aten.rand", "aten.rand_like", "aten.randint",
          "aten.randint_like", "aten.randn", "aten.randn_like", "aten.randperm", "aten.rrelu_with_noise"},
         "random numbers are not supported: call eval() on the module, or pass them as an argument");
  refuse(frontend,
         {"aten._unique2", "aten.masked_select", "aten.nonzero", "aten.unique_consecutive", "aten.unique_dim"},
         "it is not supported: the result shape depends on the data");
}
