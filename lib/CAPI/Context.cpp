//===- Context.cpp - Contexts and their caches, through the C API -------------===//
#include "State.h"
#include <new>

using namespace saccade;

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

static thread_local std::string lastMessage;

SaccadeResult saccade::refuse(SaccadeResult result, const llvm::Twine &message) {
  lastMessage = message.str();
  return result;
}

SaccadeResult saccade::succeed() {
  lastMessage.clear();
  return SACCADE_OK;
}

const char *saccade_last_error(void) { return lastMessage.c_str(); }
const char *saccade_version(void) { return SACCADE_VERSION; }

//===----------------------------------------------------------------------===//
// Contexts
//===----------------------------------------------------------------------===//

SaccadeContext *saccade_context_create(void) { return new (std::nothrow) SaccadeContext; }
void saccade_context_destroy(SaccadeContext *context) { delete context; }

void saccade_context_set_diagnostic_handler(SaccadeContext *context, SaccadeDiagnosticHandler handler, void *user) {
  std::lock_guard guard(context->lock);
  context->handler = handler;
  context->user = user;
}

//===----------------------------------------------------------------------===//
// Caches
//===----------------------------------------------------------------------===//

std::shared_ptr<DiskCache> saccade::diskCache(SaccadeContext *context) {
  std::lock_guard guard(context->lock);
  return context->disk;
}

SaccadeResult saccade_context_set_disk_cache(SaccadeContext *context, const char *directory, uint64_t max_bytes) {
  std::shared_ptr<DiskCache> disk;
  std::string message;
  if (directory) {
    auto opened = DiskCache::open(directory, max_bytes ? max_bytes : DiskCache::defaultMaxBytes);
    if (opened)
      disk = std::move(*opened);
    else
      message = llvm::toString(opened.takeError());
  }
  {
    std::lock_guard guard(context->lock);
    context->disk = std::move(disk);
  }
  return message.empty() ? succeed() : refuse(SACCADE_VALUE_ERROR, message);
}

SaccadeCacheInfo saccade_cache_info(SaccadeContext *context) {
  KernelCache::Info info = context->cache.info();
  std::shared_ptr<DiskCache> disk = diskCache(context);
  DiskCache::Info ofDisk = disk ? disk->info() : DiskCache::Info();
  return {info.hits, info.compilations, info.modules, ofDisk.hits, ofDisk.misses};
}

void saccade_cache_clear(SaccadeContext *context) {
  context->cache.clear();
  clearTorchPlans();
  if (std::shared_ptr<DiskCache> disk = diskCache(context))
    disk->resetInfo();
}

SaccadeResult saccade_cache_clear_disk(SaccadeContext *context) {
  if (std::shared_ptr<DiskCache> disk = diskCache(context))
    if (llvm::Error error = disk->clear())
      return refuse(SACCADE_VALUE_ERROR, llvm::toString(std::move(error)));
  return succeed();
}
