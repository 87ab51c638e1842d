//===- Memory.cpp - Loads and stores --------------------------------------===//

#include "Block.h"
#include "MemoryDecode.h"
#include "TypeDispatch.h"

using namespace saccade::ptxsim;

void saccade::ptxsim::laneAddresses(Warp &warp, const Op &op, Slot slot, uint32_t mask, uint64_t addresses[32]) {
  if (op.numbers[5] == 8) {
    const uint64_t *base = warp.row<uint64_t>(slot);
    for (unsigned lane = 0; lane < 32; ++lane)
      addresses[lane] = base[lane] + op.offset;
  } else {
    const uint32_t *base = warp.row<uint32_t>(slot);
    for (unsigned lane = 0; lane < 32; ++lane)
      addresses[lane] = uint32_t(base[lane] + op.offset);
  }
}

std::optional<Space> saccade::ptxsim::takeSpace(Decoder &d) {
  constexpr Space spaces[] = {Space::Global, Space::Shared, Space::Shared, Space::Shared,
                              Space::Local,  Space::Param,  Space::Param,  Space::Const};
  int found =
      d.takeOneOf({"global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "const"});
  if (found < 0)
    return std::nullopt;
  return spaces[found];
}

namespace {

constexpr unsigned addressInput = 0;

/// The access of a load or store. Numbers: space | access << 8 | non-coherent << 16, bytes per element, number of
/// elements; [5] is the width of addresses.
Request requestOf(const Op &op) {
  uint32_t size = (op.numbers[1] & 0xff) * op.numbers[2];
  return {Space(op.numbers[0] & 0xff), size, size, Access(op.numbers[0] >> 8 & 0xff), bool(op.numbers[0] >> 16)};
}

/// Resolves the memory of each lane; false after a finding.
bool resolveLanes(Warp &warp, const Op &op, const Request &request, uint32_t mask, uint64_t addresses[32],
                  Place places[32]) {
  if (!warp.requireDefined(op.input(addressInput), mask, "the address"))
    return false;
  laneAddresses(warp, op, op.input(addressInput), mask, addresses);
  return warp.resolve(request, addresses, mask, places);
}

/// Sign-extends or zero-extends an element, by its type, to the width of a register.
template <typename Register, typename Element> Register extend(Element element) { return Register(element); }

template <typename Element, typename Register>
void loadElements(Warp &warp, const Op &op, uint32_t mask, const Place places[32]) {
  for (unsigned index = 0; index < op.results; ++index) {
    Register *row = warp.row<Register>(op.result(index));
    forLanes(mask, [&](unsigned lane) {
      Element element;
      std::memcpy(&element, places[lane].bytes + index * sizeof(Element), sizeof(Element));
      row[lane] = extend<Register>(element);
    });
  }
}

template <typename Element, typename Register> void load(Warp &warp, const Op &op, uint32_t mask) {
  uint64_t addresses[32];
  Place places[32];
  Request request = requestOf(op);
  if (!resolveLanes(warp, op, request, mask, addresses, places))
    return;
  uint32_t undefined = 0;
  forLanes(mask,
           [&](unsigned lane) { undefined |= uint32_t(anyUndefined(places[lane].states, request.size)) << lane; });
  for (unsigned index = 0; index < op.results; ++index) {
    uint32_t lanes = 0;
    forLanes(undefined, [&](unsigned lane) {
      lanes |= uint32_t(anyUndefined(places[lane].states + index * sizeof(Element), sizeof(Element))) << lane;
    });
    warp.setUndefined(op.result(index), lanes, mask);
  }
  if (undefined)
    warp.undefinedOrigin = op.line;
  loadElements<Element, Register>(warp, op, mask, places);
}

template <typename Element, typename Register> void store(Warp &warp, const Op &op, uint32_t mask) {
  uint64_t addresses[32];
  Place places[32];
  Request request = requestOf(op);
  if (!resolveLanes(warp, op, request, mask, addresses, places))
    return;
  bool toGlobal = request.space == Space::Global;
  for (unsigned index = 1; index < op.inputs; ++index) {
    Slot slot = op.input(index);
    uint32_t undefined = warp.undefined(slot) & mask;
    if (undefined && request.space == Space::Generic)
      forLanes(undefined, [&](unsigned lane) { toGlobal |= (addresses[lane] & windowMask) == 0; });
    // Global memory outlives the launch, so an undefined value there would be a result.
    if (undefined && toGlobal && !warp.requireDefined(slot, mask, "a value stored to global memory"))
      return;
    const Register *row = warp.row<Register>(slot);
    unsigned at = (index - 1) * sizeof(Element);
    forLanes(mask, [&](unsigned lane) {
      Element element = Element(row[lane]);
      std::memcpy(places[lane].bytes + at, &element, sizeof(Element));
      ByteState state = undefined >> lane & 1 ? ByteState::Undefined : ByteState::WrittenByLaunch;
      std::memset(places[lane].states + at, int(state), sizeof(Element));
    });
  }
}

template <template <typename, typename> typename Accessor> Handler dispatchElement(Type type, unsigned registerBytes) {
  auto of = [&]<typename E>() -> Handler {
    if constexpr (sizeof(E) <= 2)
      if (registerBytes == 2)
        return Accessor<E, uint16_t>::handler;
    if constexpr (sizeof(E) <= 4)
      if (registerBytes == 4)
        return Accessor<E, uint32_t>::handler;
    return registerBytes == 8 ? Accessor<E, uint64_t>::handler : nullptr;
  };
  switch (type) {
  case Type::S8:
    return of.template operator()<int8_t>();
  case Type::S16:
    return of.template operator()<int16_t>();
  case Type::S32:
    return of.template operator()<int32_t>();
  default:
    break;
  }
  switch (bytesOf(type)) {
  case 1:
    return of.template operator()<uint8_t>();
  case 2:
    return of.template operator()<uint16_t>();
  case 4:
    return of.template operator()<uint32_t>();
  case 8:
    return of.template operator()<uint64_t>();
  default:
    return nullptr;
  }
}
template <typename E, typename R> struct Loads {
  static constexpr Handler handler = load<E, R>;
};
template <typename E, typename R> struct Stores {
  static constexpr Handler handler = store<E, R>;
};

/// Consumes .relaxed.gpu, .acquire.sys and so on. Returns true if concurrent accesses by other threads are allowed.
bool takeOrder(Decoder &d) {
  if (d.take("volatile") || d.take("mmio"))
    return true;
  bool ordered = d.takeOneOf({"relaxed", "acquire", "release"}) >= 0;
  if (ordered)
    d.takeOneOf({"cta", "cluster", "gpu", "sys"});
  else
    d.take("weak");
  return ordered;
}

/// Consumes cache hints, which do not change values.
void takeHints(Decoder &d) {
  while (d.takeOneOf({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1::evict_normal", "L1::evict_unchanged",
                      "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B",
                      "L2::cache_hint", "L2::evict_first", "L2::evict_last", "L2::evict_normal"}) >= 0)
    ;
}

bool decodeAccess(Decoder &d, bool loads) {
  bool isAtomic = takeOrder(d);
  Space space = takeSpace(d).value_or(Space::Generic);
  takeHints(d);
  bool nonCoherent = loads && d.take("nc");
  takeHints(d);
  int vector = d.takeOneOf({"v2", "v4", "v8"});
  Type type = d.type();
  unsigned elements = vector < 0 ? 1 : 2 << vector;
  if (type == Type::Pred || bytesOf(type) > 8 || elements * bytesOf(type) > 32 || d.count() < 2)
    return d.fail("the type is not simulated for this instruction");
  const Operand &value = d.at(loads ? 0 : 1), &place = d.at(loads ? 1 : 0);
  // The optional third operand is a cache policy.
  if (!d.expectOperands(2, 3))
    return false;
  if ((value.kind == Operand::Vector) != (elements > 1) || (elements > 1 && value.parts.size() != elements))
    return d.fail("expected " + llvm::Twine(elements) + " registers");
  std::vector<Operand> values = elements > 1 ? value.parts : std::vector<Operand>{value};
  unsigned registerBytes = rowBytes(type);
  for (const Operand &one : values)
    if (unsigned width = d.widthOf(one))
      registerBytes = width;
  if (loads)
    for (const Operand &one : values)
      d.result(one, registerBytes == 2 ? Type::B16 : registerBytes == 4 ? Type::B32 : Type::B64);
  space = d.address(place, space);
  if (!loads)
    for (const Operand &one : values)
      d.input(one, registerBytes == 2 ? Type::B16 : registerBytes == 4 ? Type::B32 : Type::B64);
  if (registerBytes < bytesOf(type))
    return d.fail("the register is narrower than the type");
  if (!loads && (space == Space::Param || space == Space::Const))
    return d.fail("this state space is read-only");
  Access access =
      loads ? (isAtomic ? Access::AtomicRead : Access::Read) : (isAtomic ? Access::AtomicWrite : Access::Write);
  d.op.numbers[0] = uint32_t(space) | uint32_t(access) << 8 | uint32_t(nonCoherent) << 16;
  d.op.numbers[1] = bytesOf(type);
  d.op.numbers[2] = elements;
  d.op.tracksUndefined = true;
  return d.emit(loads ? dispatchElement<Loads>(type, registerBytes) : dispatchElement<Stores>(type, registerBytes));
}

bool decodeLoad(Decoder &d) { return decodeAccess(d, true); }
bool decodeStore(Decoder &d) { return decodeAccess(d, false); }

void nothing(Warp &, const Op &, uint32_t) {}

void fenceGlobal(Warp &warp, const Op &, uint32_t) {
  if (warp.block.globalShadow)
    warp.block.globalShadow->fence(warp.block.number);
}

/// Prefetches and fences have no effect but on race detection: simulated accesses are sequentially consistent.
bool decodePrefetch(Decoder &d) {
  takeSpace(d);
  d.takeOneOf({"L1", "L2", "tensormap"});
  return d.emit(nothing);
}
bool decodeMembar(Decoder &d) { return d.emit(d.takeOneOf({"cta", "gl", "sys"}) >= 1 ? fenceGlobal : nothing); }
bool decodeFence(Decoder &d) {
  if (int kind = d.takeOneOf({"mbarrier_init", "proxy"}); kind >= 0)
    return decodeOrderingFence(d, kind == 1);
  bool releases = d.takeOneOf({"sc", "acq_rel", "acquire", "release"}) != 2;
  bool isWide = d.takeOneOf({"cta", "cluster", "gpu", "sys"}) >= 2;
  return d.emit(releases && isWide ? fenceGlobal : nothing);
}

} // namespace

void saccade::ptxsim::addMemoryInstructions(InstructionTable &table) {
  table.add("ld", TypeClass::Any, decodeLoad);
  table.add("ldu", TypeClass::Any, decodeLoad);
  table.add("st", TypeClass::Any, decodeStore);
  table.add("prefetch", TypeClass::Any, decodePrefetch);
  table.add("prefetchu", TypeClass::Any, decodePrefetch);
  table.add("membar", TypeClass::Any, decodeMembar);
  table.add("fence", TypeClass::Any, decodeFence);
}
