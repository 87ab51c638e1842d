//===- MaskTiles.cpp - Classifies the tiles of a mask -------------------------===//
//
// mask-tiles PROGRAM LENGTH ROWS COLUMNS < captures: analyzes the mask of the attention in the program tile by tile,
// compares with every pair, and prints the numbers of tiles that are empty, full, partial, unnecessarily partial and
// wrong. Standard error has a line for each of the last two kinds. Captures are read as numbers: for each the rank, the
// extents and the elements.
//
//===----------------------------------------------------------------------===//
#include "Lanes.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Dialect/Attn/Analysis/MaskBox.h"
#include "saccade/Pipeline/Pipeline.h"
#include <iostream>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// Bounds of parts of tables, over every element.
class TableInputs : public MaskInputs {
public:
  TableInputs(const std::vector<Table> &tables, int64_t sequence) : tables(tables), sequence(sequence) {}

  StagedInt length(StagedIntBuilder &, Role) override { return sequence; }
  StagedInt scalar(StagedIntBuilder &, unsigned capture) override { return tables[capture].elements[0]; }
  StagedInt extent(StagedIntBuilder &, unsigned capture, unsigned dim) override { return tables[capture].shape[dim]; }

  std::optional<Interval> elements(StagedIntBuilder &, unsigned capture, ArrayRef<Interval> place) override {
    int64_t low = INT64_MAX, high = INT64_MIN;
    visit(tables[capture], place, 0, 0, low, high);
    return Interval(low, high);
  }

private:
  static void visit(const Table &table, ArrayRef<Interval> place, unsigned dim, int64_t offset, int64_t &low,
                    int64_t &high) {
    if (dim == place.size()) {
      low = std::min(low, table.elements[offset]), high = std::max(high, table.elements[offset]);
      return;
    }
    int64_t last = table.shape[dim] - 1;
    int64_t begin = std::clamp<int64_t>(*place[dim].low.getConstant(), 0, last);
    int64_t end = std::clamp<int64_t>(*place[dim].high.getConstant(), 0, last);
    for (int64_t i = begin; i <= end; ++i)
      visit(table, place, dim + 1, offset * table.shape[dim] + i, low, high);
  }

  const std::vector<Table> &tables;
  int64_t sequence;
};

} // namespace

int main(int count, char **arguments) {
  if (count != 5)
    return 2;
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(arguments[1], &context);
  int64_t length = std::stoll(arguments[2]), rows = std::stoll(arguments[3]), columns = std::stoll(arguments[4]);
  AttentionOp op;
  if (module)
    module->walk([&](AttentionOp found) { op = found; });
  if (!op || length <= 0 || rows <= 0 || columns <= 0)
    return 2;
  RegionArguments args = getRegionArguments(op.getMask(), /*numbers=*/0);
  std::vector<Table> tables(args.captures.size());
  for (Table &table : tables) {
    int64_t rank = 0, size = 1;
    std::cin >> rank;
    table.shape.resize(rank);
    for (int64_t &extent : table.shape) {
      std::cin >> extent;
      size *= extent;
    }
    table.elements.resize(size);
    for (int64_t &element : table.elements)
      std::cin >> element;
  }
  if (!std::cin)
    return 2;

  Value holds = cast<YieldOp>(op.getMask().front().getTerminator()).getOperand();
  TableInputs inputs(tables, length);
  int64_t empty = 0, full = 0, partial = 0, needless = 0, wrong = 0;
  for (int64_t q = 0; q < length; q += rows)
    for (int64_t k = 0; k < length; k += columns) {
      int64_t lastQuery = std::min(q + rows, length) - 1, lastKey = std::min(k + columns, length) - 1;
      Lanes queries, keys;
      for (int64_t i = q; i <= lastQuery; ++i)
        for (int64_t j = k; j <= lastKey; ++j)
          queries.push_back(i), keys.push_back(j);
      int64_t pairs = queries.size();
      LaneEvaluator evaluate(pairs);
      evaluate.queryLength = evaluate.keyLength = length;
      evaluate.bind(args.batch, Lanes(pairs, 0));
      evaluate.bind(args.head, Lanes(pairs, 1));
      evaluate.bind(args.query, std::move(queries));
      evaluate.bind(args.key, std::move(keys));
      for (auto [argument, table] : llvm::zip_equal(args.captures, tables)) {
        evaluate.bindTable(argument, table);
        if (table.shape.empty())
          evaluate.bind(argument, Lanes(pairs, table.elements[0]));
      }
      int64_t visible = llvm::count(evaluate(holds), 1);
      StagedIntBuilder numbers;
      Coverage found =
          analyzeMask(op.getMask(), {StagedInt(0), StagedInt(1), {q, lastQuery}, {k, lastKey}}, inputs, numbers);
      bool isEmpty = found.mayHold.isConstant(0), isFull = found.mayFail.isConstant(0);
      empty += isEmpty, full += isFull, partial += !isEmpty && !isFull;
      bool isNeedless = !isEmpty && !isFull && (visible == 0 || visible == pairs);
      bool isWrong = (isEmpty && visible != 0) || (isFull && visible != pairs);
      needless += isNeedless, wrong += isWrong;
      if (isNeedless || isWrong)
        std::cerr << "queries " << q << " to " << lastQuery << ", keys " << k << " to " << lastKey << ": called "
                  << (isEmpty  ? "empty"
                      : isFull ? "full"
                               : "partial")
                  << ", " << visible << " of " << pairs << " pairs are visible\n";
    }
  std::cout << empty << " " << full << " " << partial << " " << needless << " " << wrong << '\n';
  return 0;
}
