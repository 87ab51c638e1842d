// The attention block of MiniLM-L6 from the examples, compared with the expected output in its data.
#include "Harness.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace saccade::reference;

namespace {

class MiniLM : public Reference {
protected:
  static std::string read(llvm::StringRef name) {
    auto buffer = llvm::MemoryBuffer::getFile((SACCADE_MINILM_DIR "/" + name).str(), /*IsText=*/false,
                                              /*RequiresNullTerminator=*/false);
    EXPECT_TRUE(bool(buffer)) << name.str();
    return buffer ? (*buffer)->getBuffer().str() : "";
  }

  /// A version 1 .npy file of little-endian f4 or i4.
  Tensor load(llvm::StringRef name) {
    std::string file = read(("data/" + name + ".npy").str());
    size_t header = llvm::support::endian::read16le(file.data() + 8);
    llvm::StringRef description = llvm::StringRef(file).substr(10, header);
    bool isReal = description.contains("<f4");
    EXPECT_TRUE(isReal || description.contains("<i4")) << name.str();
    llvm::SmallVector<int64_t> shape;
    llvm::SmallVector<llvm::StringRef> extents;
    description.split('(').second.split(')').first.split(extents, ',', -1, /*KeepEmpty=*/false);
    for (llvm::StringRef extent : extents)
      if (int64_t number; !extent.trim().getAsInteger(10, number))
        shape.push_back(number);
    Tensor tensor(type(isReal ? "f32" : "i32"), shape);
    const char *data = file.data() + 10 + header;
    for (Scalar &value : tensor.values) {
      uint32_t bits = llvm::support::endian::read32le(data);
      data += 4;
      if (isReal)
        value.real = llvm::bit_cast<float>(bits);
      else
        value.integer = int32_t(bits);
    }
    return tensor;
  }
};

TEST_F(MiniLM, FirstAttentionBlock) {
  module = mlir::parseSourceString<mlir::ModuleOp>(read("attention.mlir"), &context);
  ASSERT_TRUE(module);
  auto function = module->lookupSymbol<mlir::func::FuncOp>("minilm_attention");
  llvm::SmallVector<Tensor> arguments;
  for (const char *name : {"hidden", "wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo", "gamma", "beta", "lengths"})
    arguments.push_back(load(name));
  Tensor expected = load("expected");
  auto results = run(function, arguments);
  ASSERT_EQ(expected.shape, results[0].shape);
  // Padding rows are unspecified and not compared.
  int64_t sentences = expected.shape[0], tokens = expected.shape[1], width = expected.shape[2];
  for (int64_t b = 0; b < sentences; ++b)
    for (int64_t i = 0; i < arguments.back().values[b].integer * width; ++i)
      ASSERT_NEAR(expected.values[b * tokens * width + i].real, results[0].values[b * tokens * width + i].real, 2e-5);
}

} // namespace
