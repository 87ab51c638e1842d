//===- BulkCopy.cpp - cp.async.bulk ---------------------------------------===//
//
// A load is performed at its issue, or with AsyncMode::Late when no warp can go on otherwise. A store is performed at
// its issue or at the wait for its group. Until then the accesses are in `AsyncShadow`.
//
//===----------------------------------------------------------------------===//

#include "BulkCopy.h"
#include "Block.h"
#include "MemoryDecode.h"
#include <algorithm>
#include <cstring>
#include <mutex>

using namespace saccade::ptxsim;

void BulkCopy::move() {
  isDone = true;
  for (const Piece &piece : pieces) {
    if (reduction) {
      auto [operation, type] = *reduction;
      std::lock_guard lock(warp->block.code.device->atomics);
      for (uint32_t at = 0; at < piece.size; at += bytesOf(type)) {
        uint64_t old = 0, operand = 0;
        std::memcpy(&old, piece.to.bytes + at, bytesOf(type));
        std::memcpy(&operand, piece.from.bytes + at, bytesOf(type));
        uint64_t value = combine(operation, type, old, operand, 0, /*inGlobal=*/true);
        std::memcpy(piece.to.bytes + at, &value, bytesOf(type));
      }
      continue;
    }
    std::memset(piece.to.bytes, 0, piece.size);
    std::fill_n(piece.to.states, piece.size, ByteState::Defined);
    if (piece.begin == piece.end)
      continue;
    std::memcpy(piece.to.bytes + piece.begin, piece.from.bytes, piece.end - piece.begin);
    for (uint32_t byte = piece.begin; byte < piece.end; ++byte)
      piece.to.states[byte] = piece.from.states[byte - piece.begin] == ByteState::Undefined
                                  ? ByteState::Undefined
                                  : ByteState::WrittenByLaunch;
  }
}

/// Records the writes of a load with the phase of the barrier that it completes in.
static void recordLoad(const BulkCopy &copy, const Mbarrier &barrier) {
  Block &block = copy.warp->block;
  if (!block.launch.checkRaces)
    return;
  for (const BulkCopy::Piece &piece : copy.pieces)
    for (uint32_t at = 0; at < piece.size; at += AsyncShadow::unit) {
      uint32_t offset = piece.to.bytes - block.shared.data() + at;
      block.asyncShadow.recordWrite(offset, {barrier.agent, barrier.clock, copy.op->line});
      block.shadow.forget(offset);
    }
}

static void completeLoad(BulkCopy &copy) {
  Warp &warp = *copy.warp;
  const Op *running = warp.current;
  warp.current = copy.op;
  Mbarrier &barrier = warp.block.mbarriers[copy.barrier];
  if (!barrier.isLive)
    return warp.fail(FindingKind::Uninitialised, "the mbarrier is invalidated before the copy completes", copy.lane);
  copy.move();
  recordLoad(copy, barrier);
  addBytes(warp, barrier, -int64_t(copy.bytes));
  barrier.unobserved = copy.op;
  settle(warp, barrier);
  warp.current = running;
}

bool BulkCopies::completeOne() {
  if (loads.empty())
    return false;
  BulkCopy copy = std::move(loads.back());
  loads.pop_back();
  completeLoad(copy);
  return true;
}

namespace {

enum : uint32_t { isTensor = 1, isStore = 2 };
enum AddressIndex { inShared, inGlobal, atBarrier };

/// Address of a lane. Numbers: 1 + index is the offset, bit `index` of 4 is set if addresses have 32 bits.
uint64_t laneAddress(Warp &warp, const Op &op, AddressIndex index, unsigned lane) {
  int64_t offset = int32_t(op.numbers[1 + index]);
  if (op.numbers[4] >> index & 1)
    return uint32_t(warp.row<uint32_t>(op.input(index))[lane] + offset);
  return warp.row<uint64_t>(op.input(index))[lane] + offset;
}

/// Memory at one address.
bool resolveOne(Warp &warp, Request request, uint64_t address, unsigned lane, Place &place) {
  uint64_t addresses[32];
  Place places[32];
  addresses[lane] = address;
  request.byAsyncUnit = true;
  if (!warp.resolve(request, addresses, uint32_t(1) << lane, places))
    return false;
  place = places[lane];
  return true;
}

/// Resolves the pieces of a copy of `size` contiguous bytes.
bool addContiguous(BulkCopy &copy, uint64_t shared, uint64_t global, uint32_t size, bool stores) {
  Access access = !stores ? Access::Read : copy.reduction ? Access::AtomicWrite : Access::Write;
  if (size == 0 || size % 16) {
    copy.warp->fail(FindingKind::BadOperand,
                    "found a size of " + llvm::Twine(size) + ", expected a positive multiple of 16", copy.lane);
    return false;
  }
  Place here, there;
  if (!resolveOne(*copy.warp, {Space::Shared, size, 16, stores ? Access::Read : Access::Write}, shared, copy.lane,
                  here) ||
      !resolveOne(*copy.warp, {Space::Global, size, 16, access}, global, copy.lane, there))
    return false;
  copy.pieces.push_back({stores ? there : here, stores ? here : there, size, 0, size});
  copy.bytes = size;
  return true;
}

/// Resolves the pieces of a copy of a box.
bool addBox(BulkCopy &copy, const TiledTensor &tensor, uint64_t shared, const std::array<int32_t, 5> &coordinates,
            bool stores) {
  Warp &warp = *copy.warp;
  auto wrong = [&](FindingKind kind, const llvm::Twine &message) {
    warp.fail(kind, message, copy.lane);
    return false;
  };
  uint32_t element = elementBytes(tensor.type), inner = tensor.box[0] * element, span = swizzleSpan(tensor.swizzle);
  bool isSwizzled = tensor.swizzle != TensorSwizzle::None;
  uint32_t alignment = isSwizzled ? 8 * span : 128;
  if (shared % alignment)
    return wrong(FindingKind::Misaligned, "address 0x" + llvm::Twine::utohexstr(shared) +
                                              " of a tile in shared memory is not a multiple of " +
                                              llvm::Twine(alignment));
  if (isSwizzled && inner != span)
    return wrong(FindingKind::Unsupported, "a swizzle of " + llvm::Twine(span) + " bytes of a box with rows of " +
                                               llvm::Twine(inner) + " bytes is not simulated");
  for (unsigned index = 0; index < tensor.rank && stores; ++index)
    if (coordinates[index] < 0)
      return wrong(FindingKind::BadOperand, "found coordinate " + llvm::Twine(coordinates[index]) + " of dimension " +
                                                llvm::Twine(index) + " of a store, expected at least 0");
  std::vector<BoxRow> rows = boxRows(tensor, coordinates);
  copy.bytes = rows.size() * inner;
  Place here;
  if (!resolveOne(warp, {Space::Shared, copy.bytes, 128, stores ? Access::Read : Access::Write}, shared, copy.lane,
                  here))
    return false;
  constexpr uint32_t unit = AsyncShadow::unit;
  Access access = !stores ? Access::Read : copy.reduction ? Access::AtomicWrite : Access::Write;
  for (const BoxRow &row : rows) {
    Place there = {nullptr, nullptr};
    uint32_t begin = row.first * element, end = row.last * element;
    if (begin != end && !resolveOne(warp, {Space::Global, end - begin, element, access}, row.address, copy.lane, there))
      return false;
    for (uint32_t at = 0; at < inner; at += unit) {
      uint32_t first = std::clamp(begin, at, at + unit), last = std::clamp(end, first, at + unit);
      uint32_t place = swizzled(uint32_t(shared) + row.offset + at, tensor.swizzle) - uint32_t(shared);
      Place tile = {here.bytes + place, here.states + place};
      Place other = {there.bytes + (first - begin), there.states + (first - begin)};
      if (!stores)
        copy.pieces.push_back({tile, first == last ? Place{nullptr, nullptr} : other, unit, first - at, last - at});
      else if (first != last)
        copy.pieces.push_back(
            {other, {tile.bytes + (first - at), tile.states + (first - at)}, last - first, 0, last - first});
    }
  }
  return true;
}

/// Reads the tensor map of a lane.
std::optional<TiledTensor> tensorOf(Warp &warp, const Op &op, unsigned lane, unsigned rank) {
  Place place;
  if (!resolveOne(warp, {Space::Generic, sizeof(TensorMap), 64, Access::Read}, laneAddress(warp, op, inGlobal, lane),
                  lane, place))
    return std::nullopt;
  auto tensor = decodeTiled(place.bytes);
  if (!tensor)
    warp.fail(FindingKind::BadOperand, "there is no tensor map at this address", lane);
  else if (tensor->rank != rank)
    warp.fail(FindingKind::BadOperand,
              "found a tensor map of rank " + llvm::Twine(tensor->rank) + ", expected rank " + llvm::Twine(rank), lane);
  else
    return tensor;
  return std::nullopt;
}

/// The type that a reduction adds in.
Type scalarOf(TensorType type) {
  constexpr Type types[] = {Type::U8,  Type::U16, Type::U32, Type::S32, Type::U64,
                            Type::S64, Type::F16, Type::F32, Type::F64, Type::BF16};
  return types[unsigned(type)];
}

/// Checks the accesses of shared memory, and that global memory receives and reduces defined values.
bool checkPieces(const BulkCopy &copy, bool stores, const AsyncOperation &operation) {
  Warp &warp = *copy.warp;
  Block &block = warp.block;
  for (const BulkCopy::Piece &piece : copy.pieces) {
    uint32_t first = (stores ? piece.from : piece.to).bytes - block.shared.data();
    for (uint32_t offset = first / 16 * 16; block.launch.checkRaces && offset < first + piece.size; offset += 16) {
      if (!warp.checkAsync(offset, copy.lane, !stores))
        return false;
      if (stores)
        block.asyncShadow.recordRead(offset, operation);
    }
    if (stores && (anyUndefined(piece.from.states, piece.size) ||
                   (copy.reduction && anyUndefined(piece.to.states, piece.size)))) {
      warp.fail(FindingKind::Uninitialised, "a bulk store to global memory reads undefined bytes", copy.lane);
      return false;
    }
  }
  return true;
}

void issueStore(BulkCopy &copy) {
  Block &block = copy.warp->block;
  auto [stream, isNew] = block.copies.streams.try_emplace({copy.warp->id, copy.lane});
  if (isNew)
    stream->second.agent = block.asyncShadow.addAgent("bulk store");
  copy.group = stream->second.committed;
  if (!checkPieces(copy, true, {stream->second.agent, copy.group, copy.op->line}))
    return;
  if (block.launch.async == AsyncMode::Early)
    copy.move();
  block.copies.stores.push_back(std::move(copy));
}

void issueLoad(BulkCopy &copy, uint64_t barrierAddress) {
  Warp &warp = *copy.warp;
  Block &block = warp.block;
  Place place;
  if (!resolveOne(warp, {Space::Shared, 8, 8, Access::AtomicRead}, barrierAddress, copy.lane, place))
    return;
  copy.barrier = place.bytes - block.shared.data();
  Mbarrier *barrier = usableBarrier(warp, copy.barrier, copy.lane, /*byCopy=*/true);
  if (!barrier || !checkPieces(copy, false, {}))
    return;
  if (block.launch.async == AsyncMode::Early)
    return completeLoad(copy);
  recordLoad(copy, *barrier);
  for (const BulkCopy::Piece &piece : copy.pieces) {
    // NaN in every format, and undefined.
    std::memset(piece.to.bytes, 0xff, piece.size);
    std::fill_n(piece.to.states, piece.size, ByteState::Undefined);
  }
  block.copies.loads.push_back(std::move(copy));
}

/// Inputs: the address in shared memory; the address in global memory or of the tensor map; of a load, the address of
/// the mbarrier; then the coordinates or the size. Numbers: flags | rank << 4 | (1 + operation) << 8 | type << 16.
void copyInBulk(Warp &warp, const Op &op, uint32_t mask) {
  bool stores = op.numbers[0] & isStore;
  unsigned rank = op.numbers[0] >> 4 & 15, first = stores ? 2 : 3;
  for (unsigned index = 0; index < op.inputs; ++index)
    if (!warp.requireDefined(op.input(index), mask, index < first ? "an address" : "a coordinate or size"))
      return;
  forLanes(mask, [&](unsigned lane) {
    if (warp.block.finding)
      return;
    BulkCopy copy = {&warp, &op, lane, {}, std::nullopt};
    uint64_t shared = laneAddress(warp, op, inShared, lane);
    if (op.numbers[0] & isTensor) {
      auto tensor = tensorOf(warp, op, lane, rank);
      std::array<int32_t, 5> coordinates = {};
      for (unsigned index = 0; index < rank; ++index)
        coordinates[index] = warp.row<int32_t>(op.input(first + index))[lane];
      uint32_t operation = op.numbers[0] >> 8 & 0xff;
      if (tensor && operation)
        copy.reduction = {AtomicOperation(operation - 1), scalarOf(tensor->type)};
      if (!tensor || !addBox(copy, *tensor, shared, coordinates, stores))
        return;
    } else {
      if (uint32_t operation = op.numbers[0] >> 8 & 0xff)
        copy.reduction = {AtomicOperation(operation - 1), Type(op.numbers[0] >> 16)};
      if (!addContiguous(copy, shared, laneAddress(warp, op, inGlobal, lane), warp.row<uint32_t>(op.input(first))[lane],
                         stores))
        return;
    }
    ++warp.block.events;
    if (stores)
      issueStore(copy);
    else
      issueLoad(copy, laneAddress(warp, op, atBarrier, lane));
  });
}

void commitBulk(Warp &warp, const Op &, uint32_t mask) {
  forLanes(mask, [&](unsigned lane) {
    auto &streams = warp.block.copies.streams;
    if (auto found = streams.find({warp.id, lane}); found != streams.end())
      ++found->second.committed;
  });
}

/// numbers[0]: groups that may be pending. The source of a store has been read when its group is complete, and a store
/// is not delayed further.
void waitBulk(Warp &warp, const Op &op, uint32_t mask) {
  BulkCopies &copies = warp.block.copies;
  forLanes(mask, [&](unsigned lane) {
    auto found = copies.streams.find({warp.id, lane});
    if (found == copies.streams.end() || found->second.committed <= op.numbers[0])
      return;
    uint32_t complete = found->second.committed - op.numbers[0];
    warp.known.learn(found->second.agent, complete);
    for (BulkCopy &copy : copies.stores)
      if (copy.warp == &warp && copy.lane == lane && copy.group < complete && !copy.isDone)
        copy.move();
    std::erase_if(copies.stores, [&](const BulkCopy &copy) {
      return copy.warp == &warp && copy.lane == lane && copy.group < complete;
    });
  });
}

/// [base, {coordinates}] without the coordinates.
Operand withoutCoordinates(const Operand &operand) {
  Operand base = operand;
  base.parts.resize(std::min<size_t>(base.parts.size(), 1));
  return base;
}

} // namespace

bool saccade::ptxsim::decodeBulkCopy(Decoder &d, bool reduces) {
  if (d.architecture() < 90)
    return d.fail("expected target sm_90 or higher");
  d.builder.kernel.usesAsync = true;
  d.op.tracksUndefined = true;
  if (!reduces && d.take("commit_group"))
    return d.expectOperands(0) && d.emit(commitBulk);
  if (!reduces && d.take("wait_group")) {
    d.take("read");
    if (!d.expectOperands(1))
      return false;
    d.op.numbers[0] = d.immediate(d.at(0));
    return d.emit(waitBulk);
  }
  int dimensions = d.take("tensor") ? 1 + d.takeOneOf({"1d", "2d", "3d", "4d", "5d"}) : -1;
  bool tensor = dimensions > 0;
  bool loads = !reduces && d.takeOneOf({"shared::cluster", "shared::cta"}) >= 0;
  if (dimensions == 0 || (loads ? !d.take("global") : !d.take("global") || !d.take("shared::cta")))
    return d.fail("this bulk copy is not simulated");
  uint32_t operation = 0, type = 0;
  auto takeReduction = [&] {
    auto found = takeOperation(d);
    operation = found ? 1 + uint32_t(*found) : 0;
    return found.has_value();
  };
  if (reduces && tensor && !takeReduction())
    return d.fail("expected an operation");
  if (tensor)
    d.take("tile");
  if (loads ? !d.take("mbarrier::complete_tx::bytes") : !d.take("bulk_group"))
    return d.fail("this completion mechanism is not simulated");
  bool hinted = d.take("L2::cache_hint");
  if (reduces && !tensor) {
    bool found = takeReduction(), noFlush = d.take("noftz");
    Type of = d.type();
    if (!found || !isAtomicOn(AtomicOperation(operation - 1), of, noFlush))
      return d.fail("this operation on this type is not simulated");
    type = uint32_t(of);
  }
  // The shared address, the global one or the tensor map, and the size or the barrier.
  unsigned here = loads ? 0 : 1, there = 1 - here, size = 2, barrier = tensor ? 2 : 3;
  if (!d.expectOperands((tensor ? 2 : 3) + loads + hinted))
    return false;
  uint32_t offsets[3] = {}, narrow = 0;
  auto address = [&](const Operand &operand, Space space, AddressIndex index) {
    d.address(operand, space);
    offsets[index] = uint32_t(d.op.offset);
    narrow |= uint32_t(d.op.numbers[5] == 4) << index;
  };
  address(d.at(here), Space::Shared, inShared);
  address(withoutCoordinates(d.at(there)), tensor ? Space::Generic : Space::Global, inGlobal);
  if (loads)
    address(d.at(barrier), Space::Shared, atBarrier);
  if (tensor) {
    const auto &parts = d.at(there).parts;
    if (parts.size() != 2 || parts[1].parts.size() != size_t(dimensions))
      return d.fail("expected a tensor map and " + llvm::Twine(dimensions) + " coordinates");
    for (const Operand &coordinate : parts[1].parts)
      d.input(coordinate, Type::B32);
  } else {
    d.input(d.at(size), Type::U32);
  }
  uint32_t flags = (tensor ? isTensor : 0) | (loads ? 0 : isStore);
  d.op.numbers[0] = flags | uint32_t(tensor ? dimensions : 0) << 4 | operation << 8 | type << 16;
  for (unsigned index = 0; index < 3; ++index)
    d.op.numbers[1 + index] = offsets[index];
  d.op.numbers[4] = narrow;
  return d.emit(copyInBulk);
}
