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

FragmentSoftmax WarpgroupRole::makeSoftmax(const Lane &lane) {
  FragmentSoftmax softmax(e, op, makeFragment(lane), rowsOf(op.getQuery(), op.getQueryDims()),
                          rowsOf(op.getKey(), op.getKeyDims()));
  if (shape.permitsApproximateTanh())
    softmax.permitApproximateTanh();
  return softmax;
}

void WarpgroupRole::forTiles(FragmentSoftmax &softmax, function_ref<void(const KeyTile &)> body) {
  TileLoop loop{rowsOf(op.getQuery(), op.getQueryDims()), rowsOf(op.getKey(), op.getKeyDims()), /*heads=*/{},
                softmax.getTiles(e, shape.keys()), shape.keys()};
  auto nothing = [](Value) {};
  if (softmax.testsTiles())
    return forEachVisibleTile(e, op, loop, nothing, body);
  forEachTile(e, loop, nothing, [&](Value first) { return softmax.isFull(e, first, shape.keys()); }, body);
}

void Producer::copyQueries(const MappedOperand &query, Value map) {
  RingPlace at = queries.at(e, item.items);
  at.waitUntilEmpty(e);
  e.ifElse(e.isFirstLane(), [&] { copy(query, map, e.i32(0), shape.rows, shape.depth, queryTile(), at.full); });
}

void Producer::copyQueriesOfNoTile(const MappedOperand &query, Value map) {
  e.ifElse(isFirstStep(), [&] { copyQueries(query, map); });
}

void Producer::copyTiles(const MappedOperand &query, const MappedOperand &key, const MappedOperand &value,
                         ValueRange maps) {
  FragmentSoftmax softmax = makeSoftmax(Lane(e, shape));
  forTiles(softmax, [&](const KeyTile &tile) {
    RingPlace ofKeys = keys.at(e, step()), ofValues = values.at(e, step());
    auto fill = [&](const RingPlace &at, const MappedOperand &operand, Value map, int64_t columns, Value target) {
      at.waitUntilEmpty(e);
      e.ifElse(e.isFirstLane(), [&] { copy(operand, map, tile.first, shape.keys(), columns, target, at.full); });
    };
    fill(ofKeys, key, maps[1], shape.depth, keyTile(ofKeys.stage));
    e.ifElse(isFirstStep(), [&] { copyQueries(query, maps[0]); });
    fill(ofValues, value, maps[2], shape.valueDepth, valueTile(ofValues.stage));
    nextStep();
  });
}

void Producer::copy(const MappedOperand &operand, Value map, Value row, int64_t rows, int64_t columns, Value target,
                    const Mbarrier &full) {
  full.expect(e, shape.tileBytes(rows, columns));
  for (int64_t box = 0; box < shape.boxes(columns); ++box)
    copyBox(e, map, operand.coordinates(e, row, box * shape.boxColumns), e.add(target, box * shape.boxBytes(rows)),
            full);
}
