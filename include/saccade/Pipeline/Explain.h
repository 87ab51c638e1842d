//===- Explain.h - Report on a compiled program -------------------*- C++ -*-===//
//
// The report of --explain: for each attention its kernels, the proved properties of its mask and softmax and, for given
// sizes, tiles, FLOPs and a picture of the mask. Also the reasons why other softmaxes were not raised to attention. One
// record is printed as text, JSON or HTML.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_EXPLAIN_H
#define SACCADE_PIPELINE_EXPLAIN_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "saccade/Target/Device.h"
#include "llvm/Support/Error.h"
#include <memory>

namespace llvm::json {
class OStream;
}

namespace saccade {

/// A size given by the user: the extent `b`, `h`, `q` or `k` of an attention, or an integer argument by its name.
/// Applies to all functions if `function` is empty.
struct GivenSize {
  std::string function, name;
  int64_t value;
};

/// Parses groups "[FUNCTION:]NAME=NUMBER,..." separated by ';'. The error names what was found and what was expected.
llvm::Expected<std::vector<GivenSize>> parseGivenSizes(llvm::StringRef text);

enum class ExplainForm {
  Text,
  JSON, ///< the schema is in docs/guides/explain.md
  HTML  ///< one page without references to other files
};

/// The report of one program for one target.
class Explanation {
public:
  ~Explanation();
  /// Analyzes a copy of the parsed `program`. Null after a diagnostic if it does not compile.
  static std::unique_ptr<Explanation> create(mlir::ModuleOp program, const CompileOptions &options,
                                             std::vector<GivenSize> sizes);

  /// Adds the kernels of the completely compiled program.
  void addKernels(mlir::ModuleOp compiled);

  /// Adds registers and memory of the kernels in a cubin.
  void addResources(llvm::ArrayRef<KernelReport> kernels);

  /// Given sizes that no attention uses, for a warning.
  std::vector<std::string> unusedSizes() const;

  /// Prints the reports on a program, one for each target. A text names the target if there are several.
  static void print(llvm::ArrayRef<std::unique_ptr<Explanation>> reports, ExplainForm form, llvm::raw_ostream &os);

  /// The parts of the record.
  struct Attention;
  struct Kernel;
  struct Line;
  struct Prepacked;
  struct Resources;
  struct Softmax;

private:
  Explanation();
  void printText(llvm::raw_ostream &os) const;
  void printJSON(llvm::json::OStream &json) const;
  void printHTML(llvm::raw_ostream &os) const;

  std::string program, target;
  std::vector<Attention> attentions;
  std::vector<Softmax> softmaxes;   ///< those that were not raised to attention
  std::vector<Kernel> otherKernels; ///< kernels that belong to no known attention
  std::vector<Prepacked> prepacked;
  std::vector<Resources> resources;
  std::vector<GivenSize> sizes;
  std::vector<bool> isUsed; ///< for each size
};

} // namespace saccade

#endif // SACCADE_PIPELINE_EXPLAIN_H
