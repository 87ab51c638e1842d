//===- Explain.h - Report on a compiled program -------------------*- C++ -*-===//
//
// The report of --explain: for each attention its kernels, the proved properties of its mask and softmax and, for given
// sizes, tiles, FLOPs and a picture of the mask. Also the reasons why other softmaxes were not raised to attention.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_EXPLAIN_H
#define SACCADE_PIPELINE_EXPLAIN_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "llvm/Support/Error.h"
#include <memory>

namespace saccade {

/// A size given by the user: the extent `b`, `h`, `q` or `k` of an attention, or an integer argument by its name.
/// Applies to all functions if `function` is empty.
struct GivenSize {
  std::string function, name;
  int64_t value;
};

/// Parses groups "[FUNCTION:]NAME=NUMBER,..." separated by ';'. The error names what was found and what was expected.
llvm::Expected<std::vector<GivenSize>> parseGivenSizes(llvm::StringRef text);

/// The report of one program.
class Explanation {
public:
  ~Explanation();
  /// Analyzes a copy of the parsed `program`. Null after a diagnostic if it does not compile.
  static std::unique_ptr<Explanation> create(mlir::ModuleOp program, const CompileOptions &options,
                                             std::vector<GivenSize> sizes);

  /// Adds the kernels of the completely compiled program.
  void addKernels(mlir::ModuleOp compiled);

  /// Given sizes that no attention uses, for a warning.
  std::vector<std::string> unusedSizes() const;

  void print(llvm::raw_ostream &os) const;

private:
  struct Attention;
  Explanation();
  std::vector<Attention> attentions;
  std::vector<std::string> softmaxes;    ///< a line for each that was not raised to attention
  std::vector<std::string> otherKernels; ///< kernels that belong to no known attention
  std::vector<GivenSize> sizes;
  std::vector<bool> isUsed; ///< for each size
};

} // namespace saccade

#endif // SACCADE_PIPELINE_EXPLAIN_H
