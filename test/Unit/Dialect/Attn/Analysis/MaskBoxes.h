//===- MaskBoxes.h - Boxes of a mask, drawn and evaluated ---------*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_MASKBOXES_H
#define SACCADE_TEST_UNIT_MASKBOXES_H

#include "RandomMask.h"
#include "llvm/Support/raw_ostream.h"

/// Queries and keys of a mask.
constexpr int64_t maskExtent = 16;

struct Box {
  int64_t queries[2], keys[2]; ///< first and last, from the origins
};

/// Half of the sides have at most five positions.
inline Box drawBox(std::mt19937_64 &random) {
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  Box box;
  for (int64_t *side : {box.queries, box.keys}) {
    side[0] = pick(0, maskExtent - 1);
    side[1] = std::min(maskExtent - 1, side[0] + (pick(0, 2) ? pick(0, 4) : maskExtent));
  }
  return box;
}

/// A failed claim on a value in a box.
inline std::string describe(mlir::Value value, const Box &box, const std::string &claim) {
  std::string text;
  llvm::raw_string_ostream(text) << value << " for queries " << box.queries[0] << " to " << box.queries[1] << ", keys "
                                 << box.keys[0] << " to " << box.keys[1] << ": " << claim << "\n";
  return text;
}

/// Evaluates values of a mask for all pairs.
inline LaneEvaluator onAllPairs(RandomMask &mask) {
  constexpr size_t pairs = maskExtent * maskExtent;
  LaneEvaluator lanes(pairs);
  auto arguments = mask.region.getArguments();
  Lanes queries, keys;
  for (size_t i = 0; i < pairs; ++i) {
    queries.push_back(mask.queryOrigin + int64_t(i / maskExtent));
    keys.push_back(mask.keyOrigin + int64_t(i % maskExtent));
  }
  lanes.bind(arguments[0], Lanes(pairs, mask.batch));
  lanes.bind(arguments[1], Lanes(pairs, mask.head));
  lanes.bind(arguments[2], std::move(queries));
  lanes.bind(arguments[3], std::move(keys));
  for (unsigned i = 0; i < mask.tables.size(); ++i) {
    bool isTruth = arguments[4 + i].getType().isInteger(1);
    if (mask.tables[i])
      lanes.bindTable(arguments[4 + i], *mask.tables[i]);
    else
      lanes.bind(arguments[4 + i], Lanes(pairs, mask.scalars[i] & (isTruth ? 1 : -1)));
  }
  lanes.queryLength = mask.queryLength, lanes.keyLength = mask.keyLength;
  return lanes;
}

#endif // SACCADE_TEST_UNIT_MASKBOXES_H
