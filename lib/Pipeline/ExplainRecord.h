//===- ExplainRecord.h - What --explain reports -------------------*- C++ -*-===//
//
// The record from which the report is printed as text, JSON and HTML.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PIPELINE_EXPLAINRECORD_H
#define SACCADE_LIB_PIPELINE_EXPLAINRECORD_H

#include "mlir/IR/Location.h"
#include "saccade/Pipeline/Explain.h"
#include "llvm/Support/JSON.h"

namespace saccade {

/// The version of the JSON schema in docs/guides/explain.md.
inline constexpr int64_t explainVersion = 1;

struct Explanation::Kernel {
  std::string name, family;
  std::string notes; ///< begins with ", " unless it is empty
};

/// "NAME: TEXT"
struct Explanation::Line {
  std::string name, text;
};

/// The report on an attention.
struct Explanation::Attention {
  std::string function, place; ///< place: "program.mlir:4:8", or empty
  bool hasTangents;
  mlir::Location loc;
  std::string prefix; ///< of the names of its kernels, as of a symbol of a GPU
  std::vector<Kernel> kernels;
  std::vector<Line> lines;
  std::vector<std::string> picture; ///< rows of the mask
  llvm::json::Object numbers;       ///< sizes and counts, as far as they are known

  std::string title() const;
};

/// Why a softmax was not raised to attention.
struct Explanation::Softmax {
  std::string place, reason;
};

/// What a function computes of its weights once.
struct Explanation::Prepacked {
  std::string function, amount;
};

/// Registers and memory of a kernel in a cubin.
struct Explanation::Resources {
  std::string kernel;
  int64_t registers, stack, spilled;
};

} // namespace saccade

#endif // SACCADE_LIB_PIPELINE_EXPLAINRECORD_H
