//===- Producer.cpp - The warpgroup of sm_90a that copies ---------------------===//
#include "Roles.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

static Ring queryRing(Emitter &e, const WarpgroupShape &shape, Value shared) {
  return {e.add(shared, shape.queryBarriers()), 1};
}
static Ring keyRing(Emitter &e, const WarpgroupShape &shape, Value shared) {
  return {e.add(shared, shape.keyBarriers()), shape.stages};
}
static Ring valueRing(Emitter &e, const WarpgroupShape &shape, Value shared) {
  return {e.add(shared, shape.valueBarriers()), shape.stages};
}

void WarpgroupRole::initBarriers(Emitter &e, const WarpgroupShape &shape, Value shared) {
  for (const Ring &ring : {queryRing(e, shape, shared), keyRing(e, shape, shared), valueRing(e, shape, shared)})
    ring.init(e, shape.warps);
}

WarpgroupRole::WarpgroupRole(const Emitter &e, AccumulateOp op, const WarpgroupShape &shape, const ItemPlace &place)
    : e(e), op(op), shape(shape), item(place), queries(queryRing(this->e, shape, place.shared)),
      keys(keyRing(this->e, shape, place.shared)), values(valueRing(this->e, shape, place.shared)) {}

Value WarpgroupRole::rowsOf(Value operand, DimsAttr dims) { return e.size(operand, *dims.position(Dim::Seq)); }

Value WarpgroupRole::heads() {
  std::optional<unsigned> dim = op.getQueryDims().position(Dim::Head);
  return dim ? e.size(op.getQuery(), *dim) : Value();
}

Value WarpgroupRole::queryRows() {
  Value queries = rowsOf(op.getQuery(), op.getQueryDims()), ofQuery = heads();
  return ofQuery ? e.mul(queries, ofQuery) : queries;
}

Fragment WarpgroupRole::makeFragment(const Lane &lane) {
  Fragment fragment{e.add(lane.firstRow, lane.group), lane.column, {}, {}, {}};
  for (int64_t r = 0; r < shape.rowsPerThread(); ++r)
    fragment.rows.push_back(Lane::offset(r));
  for (int64_t tile = 0; tile < shape.keyTiles(); ++tile)
    for (int64_t i = 0; i < 4; ++i) {
      fragment.rowOf.push_back(i / 2);
      fragment.columns.push_back(8 * tile + i % 2);
    }
  // Beside a load of each pair, computing the position again takes little.
  if (shape.readsPairs)
    fragment.emit = [&shape = shape](Emitter &e) {
      Lane lane(e, shape, e.optimizationBarrier(e.thread()));
      return std::pair(e.add(lane.firstRow, lane.group), lane.column);
    };
  return fragment;
}

FragmentScores WarpgroupRole::makeScores(const Lane &lane) {
  FragmentScores scoring(e, op, makeFragment(lane), queryRows(), rowsOf(op.getKey(), op.getKeyDims()), heads());
  if (shape.permitsApproximateTanh())
    scoring.permitApproximateTanh();
  return scoring;
}

void Producer::copyQueries(const MappedQueries &mapped) {
  RingPlace at = queries.at(e, item.items);
  at.waitUntilEmpty(e);
  copy(mapped.operand, mapped.map, e.i32(0), shape.rows, shape.depth, queryTile(), at.full);
}

void Producer::copyQueriesOfNoTile(const MappedQueries &mapped) {
  e.ifElse(isFirstStep(), [&] { copyQueries(mapped); });
}

void Producer::copyTiles(const std::optional<MappedQueries> &mapped, const MappedOperand &key,
                         const MappedOperand &value, ValueRange maps) {
  FragmentScores scoring = makeScores(Lane(e, shape));
  scoring.forEachTile(scoring.getTiles(shape.keys()), shape.keys(), [&](const KeyTile &tile) {
    RingPlace ofKeys = keys.at(e, step()), ofValues = values.at(e, step());
    // Entries of page tables are loaded before the waits.
    std::optional<PagedTile> keyBoxes = findBoxes(key, rowsOf(op.getKey(), op.getKeyDims()), tile.first);
    std::optional<PagedTile> valueBoxes = findBoxes(value, rowsOf(op.getValue(), op.getValueDims()), tile.first);
    ofKeys.waitUntilEmpty(e);
    copy(key, maps[0], tile.first, shape.keys(), shape.depth, keyTile(ofKeys.stage), ofKeys.full, keyBoxes);
    if (mapped)
      e.ifElse(isFirstStep(), [&] { copyQueries(*mapped); });
    ofValues.waitUntilEmpty(e);
    copy(value, maps[1], tile.first, shape.keys(), shape.valueDepth, valueTile(ofValues.stage), ofValues.full,
         valueBoxes);
    nextStep();
  });
}

std::optional<PagedTile> Producer::findBoxes(const MappedOperand &operand, Value rows, Value first) {
  if (!operand.pages)
    return std::nullopt;
  return PagedTile(e, operand, shape.keys(), e.toI32(rows), first);
}

void Producer::copy(const MappedOperand &operand, Value map, Value row, int64_t rows, int64_t columns, Value target,
                    const Mbarrier &full, const std::optional<PagedTile> &boxes) {
  auto copyRows = [&](Value first, Value page, Value to) {
    for (int64_t box = 0; box < shape.boxes(columns); ++box)
      copyBox(e, map, operand.coordinates(e, first, box * shape.boxColumns, page),
              e.add(to, box * shape.boxBytes(rows)), full);
  };
  e.ifElse(e.isFirstLane(), [&] {
    full.expect(e, shape.tileBytes(rows, columns));
    if (!boxes)
      copyRows(row, /*page=*/{}, target);
  });
  if (boxes)
    boxes->forEach(e, [&](Value tileRow, Value page, Value rowInPage) {
      e.ifElse(e.isFirstLane(), [&] { copyRows(rowInPage, page, e.add(target, e.mul(tileRow, shape.boxRowBytes))); });
    });
}
