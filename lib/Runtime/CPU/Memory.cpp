//===- Memory.cpp - Aligned memory with a cache per thread --------------------===//
//
// Blocks are aligned to 64 bytes, the size of a cache line and of the widest vector. Released blocks go to a bounded
// cache of the thread, so that repeated calls do not allocate. A pthread key frees the cache at thread exit, because a
// thread_local destructor would require the C++ library.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Runtime.h"
#include <cstdlib>
#include <pthread.h>
#include <sys/mman.h>

namespace {
constexpr int64_t alignment = 64;
constexpr int64_t smallest = 4096;          // bytes of the smallest block
constexpr int64_t limit = int64_t(1) << 40; // larger sizes fail here, because sanitizers abort on them
// Blocks of at least minLargePages use large pages: page faults per 4 KiB cost more than packing the weights.
constexpr int64_t largePage = int64_t(1) << 21, minLargePages = 4;
constexpr int64_t cacheLimit = (int64_t(1) << 27) + largePage; // bytes cached per thread: 128 MiB, rounded up

/// Precedes every block.
struct alignas(alignment) Header {
  int64_t bytes;
};

struct ThreadCache {
  static constexpr unsigned numSlots = 24;
  Header *blocks[numSlots];
  unsigned nextEvicted; ///< the slot that is evicted next
  bool willBeReleased;
};
} // namespace

static thread_local ThreadCache threadCache;
static pthread_key_t key;
static bool haveKey;

static void releaseCache(void *memory) {
  auto *threadCache = static_cast<ThreadCache *>(memory);
  for (Header *&block : threadCache->blocks) {
    std::free(block);
    block = nullptr;
  }
  threadCache->willBeReleased = false;
}

/// Whether the pthread key is set. Without it nothing is cached, because it would leak.
static bool isReleasedAtThreadEnd() {
  if (threadCache.willBeReleased)
    return true;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { haveKey = pthread_key_create(&key, releaseCache) == 0; });
  threadCache.willBeReleased = haveKey && pthread_setspecific(key, &threadCache) == 0;
  return threadCache.willBeReleased;
}

void *saccade_allocate(int64_t bytes) {
  if (bytes < 0 || bytes > limit)
    return nullptr;
  // The smallest cached block that is large enough, and not so large that small requests use up large blocks.
  Header **best = nullptr;
  for (Header *&slot : threadCache.blocks)
    if (slot && slot->bytes >= bytes && slot->bytes <= 2 * bytes + smallest && (!best || slot->bytes < (*best)->bytes))
      best = &slot;
  if (best) {
    Header *block = *best;
    *best = nullptr;
    return block + 1;
  }
  // Temporaries grow with the lengths of sequences. Powers of two leave few sizes, so that blocks of earlier calls fit.
  if (bytes <= minLargePages * largePage / 2) {
    int64_t power = smallest;
    while (power < bytes)
      power *= 2;
    bytes = power;
  }
  // aligned_alloc requires a multiple of the alignment.
  int64_t unit = bytes < minLargePages * largePage ? alignment : largePage, header = sizeof(Header);
  int64_t rounded = (header + bytes + unit - 1) / unit * unit - header;
  auto size = static_cast<size_t>(header + rounded);
  auto *block = static_cast<Header *>(std::aligned_alloc(static_cast<size_t>(unit), size));
  if (!block)
    return nullptr;
  // Failure is harmless: the block then uses small pages.
  if (unit == largePage)
    madvise(block, size, MADV_HUGEPAGE);
  block->bytes = rounded;
  return block + 1;
}

void saccade_release(void *memory) {
  if (!memory)
    return;
  Header *block = static_cast<Header *>(memory) - 1;
  Header **slot = nullptr;
  int64_t bytes = block->bytes;
  for (Header *&other : threadCache.blocks) {
    if (other)
      bytes += other->bytes;
    else
      slot = &other;
  }
  if (bytes > cacheLimit || !isReleasedAtThreadEnd())
    return std::free(block);
  // Evict a block in round-robin order, so that sizes no longer in use leave the cache.
  if (!slot)
    slot = &threadCache.blocks[threadCache.nextEvicted++ % ThreadCache::numSlots];
  std::free(*slot);
  *slot = block;
}
