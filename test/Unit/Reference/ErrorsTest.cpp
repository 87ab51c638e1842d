// Diagnostics of the interpreter.
#include "Harness.h"

using namespace saccade::reference;

namespace {

class Errors : public Reference {
protected:
  void expectError(llvm::StringRef expected, llvm::StringRef source, llvm::ArrayRef<Tensor> arguments) {
    std::string message = errorOf(source, arguments);
    EXPECT_NE(std::string::npos, message.find(expected)) << "found: " << message << "\nexpected: " << expected.str();
  }
};

TEST_F(Errors, UnsupportedOpsAreReportedEvenIfUnused) {
  expectError("'memref.alloc' op has a value of type 'memref<4xf32>'",
              "func.func @f(%a: f32) -> f32 { %m = memref.alloc() : memref<4xf32> return %a : f32 }", {reals({}, {1})});
  expectError("'tensor.gather' op is not supported by the reference interpreter", R"(
    func.func @f(%a: tensor<3xf32>, %i: tensor<2x1xindex>) -> tensor<2xf32> {
      %g = tensor.gather %a[%i] gather_dims([0]) : (tensor<3xf32>, tensor<2x1xindex>) -> tensor<2xf32>
      return %g : tensor<2xf32>
    })",
              {reals({3}, {1, 2, 3}), integers({2, 1}, {0, 1})});
  expectError("reference interpreter supports ranked tensors and scalars only", R"(
    func.func @f(%a: memref<3xf32>, %x: f32) -> f32 {
      linalg.fill ins(%x : f32) outs(%a : memref<3xf32>)
      return %x : f32
    })",
              {reals({3}, {1, 2, 3}), reals({}, {1})});
}

TEST_F(Errors, ArgumentsMustFit) {
  constexpr const char *source = "func.func @f(%a: tensor<?x3xf32>) -> tensor<?x3xf32> { return %a : tensor<?x3xf32> }";
  expectError("found 0 arguments, expected 1", source, {});
  expectError("argument 0 is 2x2x'f32', expected 'tensor<?x3xf32>'", source, {reals({2, 2}, {1, 2, 3, 4})});
  expectError("argument 0 is 1x3x'f64', expected 'tensor<?x3xf32>'", source, {reals({1, 3}, {1, 2, 3}, "f64")});
  expectError("argument 0 is 'f32', expected 'tensor<?x3xf32>'", source, {reals({}, {1})});
}

TEST_F(Errors, StatesHaveTheExtentsOfKeysAndValues) {
  constexpr const char *source = R"(
    func.func @f(%x: tensor<1x2xf32>, %s: tensor<?x?x?xf32>) -> tensor<1x2xf32> {
      %q = tensor.expand_shape %x [[0, 1], [2]] output_shape [1, 1, 2] : tensor<1x2xf32> into tensor<1x1x2xf32>
      %o = attn.linear %q[h,s,d], %q[h,s,d], %q[h,s,d] state(%s : tensor<?x?x?xf32>)
        : (tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
      %r = tensor.collapse_shape %o [[0, 1], [2]] : tensor<1x1x2xf32> into tensor<1x2xf32>
      return %r : tensor<1x2xf32>
    })";
  for (auto [shape, message] :
       {std::pair(std::vector<int64_t>{2, 2, 2}, "state has extent 0 2, but the state of these keys and values has 1"),
        {{1, 1, 2}, "state has extent 1 1, but the state of these keys and values has 2"},
        {{1, 2, 1}, "state has extent 2 1, but the state of these keys and values has 2"}})
    expectError(message, source, {random({1, 2}), random(shape)});
}

TEST_F(Errors, IndicesOutOfBounds) {
  expectError("has index 3 in dimension 0, which has extent 3",
              "func.func @f(%a: tensor<?xf32>, %i: index) -> f32 { %x = tensor.extract %a[%i] : tensor<?xf32> return "
              "%x : f32 }",
              {reals({3}, {1, 2, 3}), index(3)});
  expectError("accesses indices 1 to 3 of dimension 0, which has extent 3",
              "func.func @f(%a: tensor<?xf32>, %i: index) -> tensor<?xf32> { %x = tensor.extract_slice %a[1] [%i] [1] "
              ": tensor<?xf32> to tensor<?xf32> return %x : tensor<?xf32> }",
              {reals({3}, {1, 2, 3}), index(3)});
  expectError("reads index 1 of dimension 0, which has extent 1", R"(
    func.func @f(%q: tensor<2x4xf32>, %k: tensor<2x4xf32>, %t: tensor<1xf32>) -> tensor<2x4xf32> {
      %o = attn.attention %q[s,d], %k[s,d], %k[s,d] captures(%t : tensor<1xf32>) score(%s, %b, %h, %i, %j, %tb) {
          %x = tensor.extract %tb[%j] : tensor<1xf32>
          attn.yield %x : f32
        } : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      return %o : tensor<2x4xf32>
    })",
              {random({2, 4}), random({2, 4}), random({1})});
}

TEST_F(Errors, WithinCallsBranchesAndLoops) {
  // The value that fails is inside, of a tensor and of a scalar.
  for (auto [type, value] : {std::pair("f32", "%x"), std::pair("tensor<2xf32>", "%y")}) {
    std::string inside = std::string(R"(
        %x = tensor.extract %a[%i] : tensor<?xf32>
        %y = tensor.from_elements %x, %x : tensor<2xf32>
)");
    std::string t = type, v = value, arguments = "%a: tensor<?xf32>, %i: index, %c: i1, %e: " + t;
    std::string from = "index 3 in dimension 0, which has extent 3";
    std::vector<Tensor> given = {reals({3}, {1, 2, 3}), index(3), integers({}, {1}, "i1"),
                                 t == "f32" ? reals({}, {0}) : reals({2}, {0, 0})};
    expectError(from,
                "func.func private @g(" + arguments + ") -> " + t + " {" + inside + "return " + v + " : " + t + " }\n" +
                    "func.func @f(" + arguments + ") -> " + t + " { %r = call @g(%a, %i, %c, %e) : " +
                    "(tensor<?xf32>, index, i1, " + t + ") -> " + t + " return %r : " + t + " }",
                given);
    expectError(from,
                "func.func @f(" + arguments + ") -> " + t + " { %r = scf.if %c -> " + t + " {" + inside + "scf.yield " +
                    v + " : " + t + " } else { scf.yield %e : " + t + " } return %r : " + t + " }",
                given);
    expectError(from,
                "func.func @f(" + arguments + ") -> " + t + " { %n = arith.constant 1 : index " +
                    "%z = arith.constant 0 : index %r = scf.for %k = %z to %n step %n iter_args(%w = %e) -> " + t +
                    " {" + inside + "scf.yield " + v + " : " + t + " } return %r : " + t + " }",
                given);
  }
}

TEST_F(Errors, MapsOutOfBounds) {
  auto source = [](const std::string &input, const std::string &output) {
    return "func.func @f(%a: tensor<?xf32>, %e: tensor<?xf32>) -> tensor<?xf32> { %r = linalg.generic {indexing_maps = "
           "[" +
           ("affine_map<(i) -> (" + input + ")>, affine_map<(i) -> (" + output +
            ")>], iterator_types = [\"parallel\"]} ") +
           "ins(%a : tensor<?xf32>) outs(%e : tensor<?xf32>) { ^bb0(%x: f32, %y: f32): linalg.yield %x : f32 } "
           "-> tensor<?xf32> return %r : tensor<?xf32> }";
  };
  Tensor two = reals({2}, {1, 2}), three = reals({3}, {1, 2, 3});
  expectError("beyond dimension 0 of operand 0", source("i + 1", "i"), {two, two});
  expectError("beyond dimension 0 of operand 0", source("i - 1", "i"), {two, two});
  expectError("beyond dimension 0 of operand 0", source("i * 3 floordiv 2 + 1", "i"), {three, three});
  expectError("beyond dimension 0 of operand 1", source("i", "i + 1"), {two, two});
  expectError("beyond dimension 0 of operand 1", source("i", "i floordiv 2 + 2"), {three, two});
  // i − (i mod 2) is within bounds, though the range of its parts is not.
  EXPECT_EQ("", errorOf(source("i - i mod 2", "i"), {three, three}));
}

TEST_F(Errors, DivisionByZero) {
  expectError("'arith.floordivsi' op division by zero",
              "func.func @f(%a: i32, %b: i32) -> i32 { %x = arith.floordivsi %a, %b : i32 return %x : i32 }",
              {integers({}, {1}, "i32"), integers({}, {0}, "i32")});
}

TEST_F(Errors, LoopStepMustBePositive) {
  expectError("has step 0, expected a positive value", R"(
    func.func @f(%a: f32, %n: index, %s: index) -> f32 {
      %r = scf.for %i = %s to %n step %s iter_args(%x = %a) -> f32 { scf.yield %x : f32 }
      return %r : f32
    })",
              {reals({}, {1}), index(4), index(0)});
}

TEST_F(Errors, RecursionAndMissingBodies) {
  expectError("is recursive", "func.func @f(%a: f32) -> f32 { %r = call @f(%a) : (f32) -> f32 return %r : f32 }",
              {reals({}, {1})});
  expectError("has no body", R"(
    func.func private @g(f32) -> f32
    func.func @f(%a: f32) -> f32 { %r = call @g(%a) : (f32) -> f32 return %r : f32 })",
              {reals({}, {1})});
}

TEST_F(Errors, ChainsTooDeepForTheStack) {
  auto chain = [&](int64_t length) {
    std::string source = "func.func @f(%a0: tensor<?xf32>) -> tensor<?xf32> {\n";
    for (int64_t i = 0; i < length; ++i)
      source += "%a" + std::to_string(i + 1) + " = arith.addf %a" + std::to_string(i) + ", %a0 : tensor<?xf32>\n";
    return source + "return %a" + std::to_string(length) + " : tensor<?xf32>\n}";
  };
  EXPECT_EQ(601, run(chain(600), {reals({1}, {1})})[0].values[0].real);
  expectError("is part of a chain of more than 2000 ops", chain(20000), {reals({1}, {1})});
}

constexpr const char *attention = R"(
  func.func @f(%q: tensor<?x?x?x?xf32>, %k: tensor<?x?x?x?xf32>, %v: tensor<?x?x?x?xf32>, %n: tensor<?xi32>)
      -> tensor<?x?x?x?xf32> {
    %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%n : tensor<?xi32>)
      : (tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32>
    return %o : tensor<?x?x?x?xf32>
  })";

TEST_F(Errors, AttentionDiagnosticsNameRoles) {
  auto expect = [&](llvm::StringRef expected, std::initializer_list<int64_t> q, std::initializer_list<int64_t> k,
                    std::initializer_list<int64_t> v, int64_t lengths) {
    expectError(expected, attention,
                {random(q), random(k), random(v), integers({lengths}, std::vector<int64_t>(lengths, 1), "i32")});
  };
  expect("key has batch size 1, but query has 2", {2, 2, 3, 4}, {1, 2, 5, 4}, {2, 2, 5, 4}, 2);
  expect("value has batch size 1, but query has 2", {2, 2, 3, 4}, {2, 2, 5, 4}, {1, 2, 5, 4}, 2);
  expect("value has head count 1, but key has 2", {2, 2, 3, 4}, {2, 2, 5, 4}, {2, 1, 5, 4}, 2);
  expect("value has length 6, but key has 5", {2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 6, 4}, 2);
  expect("key has head size 3, but query has 4", {2, 2, 3, 4}, {2, 2, 5, 3}, {2, 2, 5, 4}, 2);
  expect("query has 3 heads, expected a multiple of the 2 KV heads", {2, 3, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}, 2);
  expect("kv_len has batch size 3, but query has 2", {2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}, 3);
}

TEST_F(Errors, OperandsDisagreeOnALoop) {
  expectError("has operands that disagree on loop 2: 3 and 4", R"(
    func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
      %r = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
      return %r : tensor<?x?xf32>
    })",
              {random({2, 3}), random({4, 2}), random({2, 2})});
}

TEST_F(Errors, TensorsLargerThanMemory) {
  expectError("too large for the reference interpreter",
              "func.func @f(%n: index) -> tensor<?x?xf32> { %e = tensor.empty(%n, %n) : tensor<?x?xf32> return %e : "
              "tensor<?x?xf32> }",
              {index(INT64_C(1) << 40)});
  expectError("has a result of shape",
              "func.func @f(%n: index) -> tensor<?xf32> { %e = tensor.empty(%n) : tensor<?xf32> return %e : "
              "tensor<?xf32> }",
              {index(-1)});
}

} // namespace
