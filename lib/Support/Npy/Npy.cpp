//===- Npy.cpp - NumPy's file format ------------------------------------------===//
//
// The header is a Python dictionary literal. The parser checks every length before it is used.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/Npy.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cstring>

using namespace saccade;
using llvm::StringRef;

static llvm::Error malformed(const llvm::Twine &what) {
  return llvm::createStringError("not a valid .npy file: " + what);
}

namespace {

struct Header {
  std::string descr;
  bool columnMajor = false;
  llvm::SmallVector<int64_t, 4> shape;
};

/// Reads the dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}.
class HeaderParser {
public:
  explicit HeaderParser(StringRef text) : rest(text) {}

  llvm::Expected<Header> parse() {
    Header header;
    bool seen[3] = {};
    if (!consume("{"))
      return malformed("the header is not a dictionary");
    while (!consume("}")) {
      std::string key;
      if (!parseString(key) || !consume(":"))
        return malformed("the header is malformed");
      bool ok = false; // structured types have a list as 'descr' and fail here
      if (key == "descr")
        ok = seen[0] = parseString(header.descr);
      else if (key == "fortran_order")
        ok = seen[1] = parseBool(header.columnMajor);
      else if (key == "shape")
        ok = seen[2] = parseShape(header.shape);
      else
        return malformed("the header has an unknown key '" + llvm::Twine(key) + "'");
      if (!ok)
        return malformed("the header's '" + llvm::Twine(key) + "' is malformed or not supported");
      consume(",");
    }
    if (!seen[0] || !seen[1] || !seen[2])
      return malformed("the header lacks 'descr', 'fortran_order' or 'shape'");
    return header;
  }

private:
  bool consume(StringRef token) {
    rest = rest.ltrim(" \t\n");
    return rest.consume_front(token);
  }
  bool parseString(std::string &into) {
    rest = rest.ltrim(" \t\n");
    if (rest.empty() || (rest[0] != '\'' && rest[0] != '"'))
      return false;
    size_t end = rest.find(rest[0], 1);
    if (end == StringRef::npos)
      return false;
    into = rest.substr(1, end - 1).str();
    rest = rest.drop_front(end + 1);
    return true;
  }
  bool parseBool(bool &into) {
    if (consume("True"))
      return into = true;
    return consume("False");
  }
  bool parseShape(llvm::SmallVectorImpl<int64_t> &into) {
    if (!consume("("))
      return false;
    while (!consume(")")) {
      rest = rest.ltrim(" \t\n");
      int64_t extent;
      if (rest.consumeInteger(10, extent) || extent < 0)
        return false;
      into.push_back(extent);
      if (!consume(",") && !rest.ltrim(" \t\n").starts_with(")"))
        return false;
    }
    return true;
  }

  StringRef rest;
};

struct Dtype {
  StringRef name;
  ElementType type;
};

} // namespace

static std::optional<ElementType> parseDtype(StringRef descr) {
  static const Dtype dtypes[] = {
      {"|b1", ElementType::i1},       {"|i1", ElementType::i8},       {"<i2", ElementType::i16},
      {"<i4", ElementType::i32},      {"<i8", ElementType::i64},      {"<f2", ElementType::f16},
      {"<f4", ElementType::f32},      {"<f8", ElementType::f64},      {"<u2", ElementType::bf16},
      {"<V2", ElementType::bf16},     {"|V2", ElementType::bf16},     {"<V1", ElementType::f8E4M3FN},
      {"|V1", ElementType::f8E4M3FN}, {"|u1", ElementType::f8E4M3FN}, {"<f1", ElementType::f8E5M2}};
  for (const Dtype &dtype : dtypes)
    if (dtype.name == descr)
      return dtype.type;
  return std::nullopt;
}

/// Whether NumPy itself has the type.
static bool isBuiltin(ElementType type) {
  return type != ElementType::bf16 && type != ElementType::f8E4M3FN && type != ElementType::f8E5M2;
}

static StringRef dtypeName(ElementType type) {
  switch (type) {
  case ElementType::i1:
    return "|b1";
  case ElementType::i8:
    return "|i1";
  case ElementType::i16:
    return "<i2";
  case ElementType::i32:
    return "<i4";
  case ElementType::i64:
  case ElementType::index:
    return "<i8";
  case ElementType::f16:
    return "<f2";
  case ElementType::f8E4M3FN:
  case ElementType::f8E5M2:
  case ElementType::bf16:
  case ElementType::f32:
    return "<f4";
  case ElementType::f64:
    return "<f8";
  }
  llvm_unreachable("an element type without a dtype");
}

llvm::Expected<HostTensor> saccade::parseNpy(StringRef bytes) {
  using namespace llvm::support::endian;
  if (!bytes.consume_front("\x93NUMPY"))
    return malformed("it does not begin with NumPy's magic string");
  if (bytes.size() < 4)
    return malformed("it ends within the header");
  const auto version = static_cast<unsigned char>(bytes[0]);
  if (version < 1 || version > 3)
    return malformed("format version " + llvm::Twine(unsigned(version)) + " is not known, expected 1, 2 or 3");
  const size_t lengthBytes = version == 1 ? 2 : 4;
  bytes = bytes.drop_front(2);
  if (bytes.size() < lengthBytes)
    return malformed("it ends within the header");
  const size_t length = version == 1 ? read16le(bytes.data()) : read32le(bytes.data());
  bytes = bytes.drop_front(lengthBytes);
  if (bytes.size() < length)
    return malformed("it ends within the header");
  llvm::Expected<Header> header = HeaderParser(bytes.take_front(length)).parse();
  if (!header)
    return header.takeError();
  bytes = bytes.drop_front(length);

  std::optional<ElementType> type = parseDtype(header->descr);
  if (!type)
    return llvm::createStringError("elements of dtype '" + llvm::Twine(header->descr) +
                                   "' are not supported, expected bool, int8 to int64, float16, float32, float64, "
                                   "bf16 as uint16 or floats of 8 bits as uint8, little-endian");
  if (header->shape.size() > 32)
    return malformed("it has " + llvm::Twine(header->shape.size()) + " dimensions");
  // Checked before the allocation, so that a malformed shape does not allocate more memory than the file has data.
  int64_t expected = elementBytes(*type);
  for (int64_t extent : header->shape)
    if (llvm::MulOverflow(expected, extent, expected))
      return malformed("its shape is too large");
  if (int64_t(bytes.size()) < expected)
    return malformed("it is truncated: " + llvm::Twine(bytes.size()) + " bytes of data, expected " +
                     llvm::Twine(expected));
  llvm::Expected<HostTensor> tensor = HostTensor::allocate(*type, header->shape, header->columnMajor);
  if (tensor && expected)
    std::memcpy(tensor->data(), bytes.data(), expected);
  return tensor;
}

llvm::Expected<HostTensor> saccade::readNpy(StringRef path) {
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file =
      llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return llvm::createStringError(file.getError(), "cannot read '" + path + "': " + file.getError().message());
  llvm::Expected<HostTensor> tensor = parseNpy((*file)->getBuffer());
  if (!tensor)
    return llvm::createStringError("cannot read '" + path + "': " + llvm::toString(tensor.takeError()));
  return tensor;
}

llvm::Error saccade::writeNpy(const HostTensor &tensor, llvm::raw_ostream &os) {
  const ElementType stored = isBuiltin(tensor.type()) ? tensor.type() : ElementType::f32;
  if (stored != tensor.type() || !tensor.isRowMajor()) {
    llvm::Expected<HostTensor> plain = tensor.convertTo(stored);
    return plain ? writeNpy(*plain, os) : plain.takeError();
  }
  std::string header;
  llvm::raw_string_ostream text(header);
  text << "{'descr': '" << dtypeName(stored) << "', 'fortran_order': False, 'shape': (";
  for (int64_t extent : tensor.shape())
    text << extent << ", ";
  text << "), }";
  // The data starts at a multiple of 64; the header ends in a newline.
  constexpr size_t fixed = 10;
  header.resize(llvm::alignTo(fixed + header.size() + 1, 64) - fixed - 1, ' ');
  header += '\n';
  char length[2];
  llvm::support::endian::write16le(length, header.size());
  os << StringRef("\x93NUMPY\x01\x00", 8) << StringRef(length, 2) << header;
  os.write(tensor.data(), tensor.bytes());
  return llvm::Error::success();
}
