//===- Memory.cpp - Aligned memory that a thread keeps ------------------------===//
//
// Every buffer of compiled code starts on a cache line, which is also the widest vector. What a thread releases it keeps
// for its next call, within limits, so that nothing is allocated once the program is warm. A key of pthreads releases that
// at the thread's end: the destructor of a thread_local would need the C++ library at link time.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Runtime.h"
#include <cstdlib>
#include <pthread.h>
#include <sys/mman.h>

namespace {
constexpr int64_t alignment = 64;
constexpr int64_t limit = int64_t(1) << 40;     // beyond it a size is a mistake, and sanitizers abort rather than fail
// From so many large pages on a block is asked for in them: a fault for every 4 KiB of packed weights costs more than
// packing them.
constexpr int64_t largePage = int64_t(1) << 21, minLargePages = 4;
constexpr int64_t cacheLimit = (int64_t(1) << 27) + largePage; // of what a thread keeps in all: 128 MiB, rounded up

/// Stands before every block.
struct alignas(alignment) Header {
  int64_t bytes;
};

struct ThreadCache {
  static constexpr unsigned places = 24;
  Header *blocks[places];
  unsigned turn; ///< the place that is given up next
  bool willBeReleased;
};
} // namespace

static thread_local ThreadCache threadCache;
static pthread_key_t key;
static bool haveKey;

static void releaseKept(void *memory) {
  auto *threadCache = static_cast<ThreadCache *>(memory);
  for (Header *&block : threadCache->blocks) {
    std::free(block);
    block = nullptr;
  }
  threadCache->willBeReleased = false;
}

/// Where the process is out of keys, nothing is kept: it would leak.
static bool isReleasedAtThreadEnd() {
  if (threadCache.willBeReleased)
    return true;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { haveKey = pthread_key_create(&key, releaseKept) == 0; });
  threadCache.willBeReleased = haveKey && pthread_setspecific(key, &threadCache) == 0;
  return threadCache.willBeReleased;
}

void *saccade_allocate(int64_t bytes) {
  if (bytes < 0 || bytes > limit)
    return nullptr;
  // A kept block may be larger, but a small one must not take the place of a large one.
  for (Header *&place : threadCache.blocks) {
    Header *block = place;
    if (!block || block->bytes < bytes || block->bytes > 2 * bytes + 4096)
      continue;
    place = nullptr;
    return block + 1;
  }
  // aligned_alloc wants a multiple of the alignment.
  int64_t unit = bytes < minLargePages * largePage ? alignment : largePage, header = sizeof(Header);
  int64_t rounded = (header + bytes + unit - 1) / unit * unit - header;
  auto size = static_cast<size_t>(header + rounded);
  auto *block = static_cast<Header *>(std::aligned_alloc(static_cast<size_t>(unit), size));
  if (!block)
    return nullptr;
  // Advice that the kernel may ignore.
  if (unit == largePage)
    madvise(block, size, MADV_HUGEPAGE);
  block->bytes = rounded;
  return block + 1;
}

void saccade_release(void *memory) {
  if (!memory)
    return;
  Header *block = static_cast<Header *>(memory) - 1;
  Header **place = nullptr;
  int64_t bytes = block->bytes;
  for (Header *&other : threadCache.blocks) {
    if (other)
      bytes += other->bytes;
    else
      place = &other;
  }
  if (bytes > cacheLimit || !isReleasedAtThreadEnd())
    return std::free(block);
  // Sizes that nobody asks for any more must not fill all places.
  if (!place)
    place = &threadCache.blocks[threadCache.turn++ % ThreadCache::places];
  std::free(*place);
  *place = block;
}
