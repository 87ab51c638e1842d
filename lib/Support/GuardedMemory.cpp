//===- GuardedMemory.cpp - Memory that shows wrong accesses -------------------===//
//
// The handler of SIGSEGV looks up the address in a fixed table, because it may not allocate. It prints a line and
// restores the handler that was there, so that the access faults again and the process ends as it would have.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/GuardedMemory.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/MathExtras.h"
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

using namespace saccade;

namespace {

/// A live block, for the handler. A slot is free if `first` is 0.
struct Registered {
  std::atomic<uintptr_t> first{0};
  uintptr_t last, blockBegin, blockEnd;
  std::array<char, 64> name;
};

constexpr int maxRegistered = 256;
std::array<Registered, maxRegistered> registered;
struct sigaction previous;

/// Text in a buffer, without allocation.
struct Line {
  std::array<char, 256> text;
  size_t length = 0;

  void add(const char *part) {
    while (*part && length < text.size())
      text[length++] = *part++;
  }
  void add(uint64_t number) {
    std::array<char, 20> digits;
    size_t count = 0;
    do
      digits[count++] = static_cast<char>('0' + number % 10);
    while (number /= 10);
    while (count && length < text.size())
      text[length++] = digits[--count];
  }
};

void onFault(int, siginfo_t *info, void *) {
  auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Registered &block : registered) {
    uintptr_t first = block.first.load();
    if (first == 0 || address < first || address >= block.last)
      continue;
    Line line;
    line.add("error: compiled code accesses ");
    line.add(block.name.data());
    if (address >= block.blockEnd) {
      line.add(" out of bounds, ");
      line.add(address - block.blockEnd);
      line.add(" bytes after its end\n");
    } else if (address < block.blockBegin) {
      line.add(" out of bounds, ");
      line.add(block.blockBegin - address);
      line.add(" bytes before its begin\n");
    } else {
      line.add(", which is read-only\n");
    }
    [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line.text.data(), line.length);
    break;
  }
  sigaction(SIGSEGV, &previous, nullptr);
}

void installHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = onFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &previous);
  });
}

/// The byte of the pattern at an address. The pattern begins at even addresses, so that every aligned element is NaN.
uint8_t patternAt(const char *at) {
  return reinterpret_cast<uintptr_t>(at) % 2 ? poisonPattern >> 8 : poisonPattern & 0xff;
}

bool hasPattern(const char *begin, const char *end) {
  for (; begin != end; ++begin)
    if (static_cast<uint8_t>(*begin) != patternAt(begin))
      return false;
  return true;
}

} // namespace

GuardedMemory::GuardedMemory(int64_t bytes, int64_t alignment, Guard guard, std::string name)
    : size(bytes), name(std::move(name)) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  assert(bytes >= 0 && alignment > 0 && alignment <= page && "expected a small alignment");
  installHandler();
  pageBytes = llvm::alignTo(std::max<int64_t>(bytes, 1), page);
  mappedBytes = pageBytes + 2 * page;
  mapping = mmap(nullptr, mappedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    llvm::report_bad_alloc_error("not enough memory for a guarded block");
  pages = static_cast<char *>(mapping) + page;
  if (mprotect(pages, pageBytes, PROT_READ | PROT_WRITE))
    llvm::report_bad_alloc_error("not enough memory for a guarded block");
  block = guard == Guard::End ? pages + pageBytes - llvm::alignTo(bytes, alignment) : pages;
  poison();
  for (int i = 0; i < maxRegistered; ++i) {
    uintptr_t free = 0;
    // 1 reserves the slot: no address is below it.
    if (!registered[i].first.compare_exchange_strong(free, 1))
      continue;
    slot = i;
    Registered &into = registered[i];
    into.last = reinterpret_cast<uintptr_t>(mapping) + mappedBytes;
    into.blockBegin = reinterpret_cast<uintptr_t>(block);
    into.blockEnd = into.blockBegin + bytes;
    std::strncpy(into.name.data(), this->name.c_str(), into.name.size() - 1);
    into.name.back() = 0;
    into.first.store(reinterpret_cast<uintptr_t>(mapping));
    break;
  }
}

GuardedMemory::GuardedMemory(GuardedMemory &&other) noexcept
    : mapping(std::exchange(other.mapping, nullptr)), mappedBytes(other.mappedBytes), block(other.block),
      pages(other.pages), size(other.size), pageBytes(other.pageBytes), name(std::move(other.name)),
      slot(std::exchange(other.slot, -1)) {}

GuardedMemory::~GuardedMemory() {
  if (slot >= 0)
    registered[slot].first.store(0);
  if (mapping)
    munmap(mapping, mappedBytes);
}

void GuardedMemory::poison() {
  auto *words = reinterpret_cast<uint16_t *>(pages);
  std::fill(words, words + pageBytes / 2, poisonPattern);
}

void GuardedMemory::protect() { mprotect(pages, pageBytes, PROT_READ); }

bool GuardedMemory::isRestIntact() const {
  return hasPattern(pages, block) && hasPattern(block + size, pages + pageBytes);
}
