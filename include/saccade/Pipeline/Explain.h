//===- Explain.h - What a program became, in words ----------------*- C++ -*-===//
//
// The report of --explain: for each attention its kernels, what is proved of its mask and its softmax, and, for sizes
// that are given, the tiles, the work and a picture; and why other softmaxes did not become attention.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_EXPLAIN_H
#define SACCADE_PIPELINE_EXPLAIN_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "llvm/Support/Error.h"
#include <memory>

namespace saccade {

/// A number that a user gives ahead of a call: the extent `b`, `h`, `q` or `k` of an attention, or an integer argument by its
/// name; of one function, or (`function` empty) of all.
struct GivenSize {
  std::string function, name;
  int64_t value;
};

/// Reads "[FUNCTION:]NAME=NUMBER,...", groups with ';' between them. An error says what was found and wanted.
llvm::Expected<std::vector<GivenSize>> parseGivenSizes(llvm::StringRef text);

/// The report of one program.
class Explanation {
public:
  ~Explanation();
  /// Looks at a copy of `program`, which is whole and as it was read. Null after a diagnostic where it is refused.
  static std::unique_ptr<Explanation> create(mlir::ModuleOp program, const CompileOptions &options,
                                             std::vector<GivenSize> sizes);

  /// Notes the kernels of the compiled program; what was not compiled to the end has none.
  void addKernels(mlir::ModuleOp compiled);

  /// Given sizes that no attention has a use for, for a warning.
  std::vector<std::string> unusedSizes() const;

  void print(llvm::raw_ostream &os) const;

private:
  struct Attention;
  Explanation();
  std::vector<Attention> attentions;
  std::vector<std::string> softmaxes;    ///< a line for each that did not become attention
  std::vector<std::string> otherKernels; ///< of which it is not known whose they are
  std::vector<GivenSize> sizes;
  std::vector<bool> isUsed; ///< by size
};

} // namespace saccade

#endif // SACCADE_PIPELINE_EXPLAIN_H
