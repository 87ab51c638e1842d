//===- CacheEntry.cpp - File format of the disk cache -------------------------===//
//
// An entry: the checksum of all bytes after it (8 bytes), magic (8), format version (8), length of the key (8), length
// of the value (8), key, value. Numbers are little-endian. The checksum detects damage only; the permissions of the
// directory keep other users from writing entries.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/DiskCache.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/EndianStream.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;

static constexpr StringLiteral magic = "SACCACHE";
static constexpr uint64_t formatVersion = 1;
static constexpr size_t checksumBytes = 8, headerBytes = checksumBytes + 32;

std::string saccade::encodeCacheEntry(StringRef key, StringRef value) {
  std::string rest;
  rest.reserve(headerBytes + key.size() + value.size());
  raw_string_ostream os(rest);
  support::endian::Writer writer(os, endianness::little);
  os << magic;
  writer.write(formatVersion);
  writer.write<uint64_t>(key.size());
  writer.write<uint64_t>(value.size());
  os << key << value;
  char checksum[checksumBytes];
  support::endian::write64le(checksum, xxh3_64bits(rest));
  rest.insert(0, checksum, checksumBytes);
  return rest;
}

std::optional<StringRef> saccade::decodeCacheEntry(StringRef contents, StringRef key) {
  if (contents.size() < headerBytes)
    return std::nullopt;
  auto number = [&](size_t offset) { return support::endian::read64le(contents.data() + offset); };
  StringRef rest = contents.drop_front(headerBytes);
  if (contents.substr(checksumBytes, magic.size()) != magic || number(16) != formatVersion ||
      number(24) != key.size() || key.size() > rest.size() || number(32) != rest.size() - key.size() ||
      !rest.starts_with(key) || number(0) != xxh3_64bits(contents.drop_front(checksumBytes)))
    return std::nullopt;
  return rest.drop_front(key.size());
}
