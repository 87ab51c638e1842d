// Checked memory of calls, and what it counts.
#include "saccade/JIT/MemoryChecks.h"
#include "../../../lib/JIT/Linker.h"
#include "saccade/JIT/Executable.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace saccade;

namespace {

TEST(MemoryChecks, ScratchOfWorkItemsIsNaNAndGuarded) {
  ScopedMemoryChecks checks(Guard::End);
  struct Seen {
    std::atomic<int> items = 0, notNaN = 0;
  } seen;
  auto run = [](void *data, int64_t begin, int64_t end, void *scratch) {
    auto *seen = static_cast<Seen *>(data);
    auto *words = static_cast<float *>(scratch);
    seen->items += static_cast<int>(end - begin);
    for (int i = 0; i < 256; ++i)
      seen->notNaN += !std::isnan(words[i]);
    std::fill_n(words, 256, 0.0f);
  };
  EXPECT_EQ(0, checkedParallelFor(run, &seen, 100, 1024));
  EXPECT_EQ(100, seen.items);
  EXPECT_EQ(0, seen.notNaN);
  EXPECT_EQ(100, checks.workItems());
  auto writesBehind = [](void *, int64_t, int64_t, void *scratch) { static_cast<volatile char *>(scratch)[1024] = 1; };
  EXPECT_DEATH(checkedParallelFor(writesBehind, nullptr, 1, 1024),
               "scratch memory out of bounds, 0 bytes after its end");
  auto writesRest = [](void *, int64_t, int64_t, void *scratch) { static_cast<volatile char *>(scratch)[1000] = 1; };
  EXPECT_DEATH(checkedParallelFor(writesRest, nullptr, 1, 1000), "compiled code writes outside of scratch memory");
}

TEST(MemoryChecks, TemporariesAreNaNAndGuarded) {
  ScopedMemoryChecks checks(Guard::End);
  auto *memory = static_cast<float *>(checkedAllocate(4096));
  EXPECT_TRUE(std::isnan(memory[0]) && std::isnan(memory[1023]));
  memory[1023] = 0;
  EXPECT_DEATH(static_cast<volatile float *>(memory)[1024] = 0, "temporary memory out of bounds");
  checkedRelease(memory);
}

TEST(MemoryChecks, SplitKVReadsKeysAndValuesOnceForAGroup) {
  // A work item reads a range of the keys of one KV head. So keys and values are read once for a group if the number of
  // work items does not depend on the number of query heads that share a KV head.
  const char *program = "func.func @f(%q: tensor<?x1x16xf32>, %k: tensor<?x?x16xf32>, %v: tensor<?x?x16xf32>) -> "
                        "tensor<?x1x16xf32> {\n %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] : "
                        "(tensor<?x1x16xf32>, tensor<?x?x16xf32>, tensor<?x?x16xf32>) -> tensor<?x1x16xf32>\n"
                        " return %o : tensor<?x1x16xf32>\n}";
  auto executable = Executable::createFromText(program, "program.mlir", CompileOptions());
  if (!executable)
    FAIL() << llvm::toString(executable.takeError());
  constexpr int64_t keys = 5000, depth = 16;
  auto workItems = [&](int64_t heads, int64_t kvHeads) {
    std::vector<float> q(heads * depth, 1), k(kvHeads * keys * depth, 1), v(k), o(q.size());
    ScopedMemoryChecks checks(Guard::End);
    llvm::Error error =
        (*executable)
            ->call(*(*executable)->lookup("f"),
                   {Buffer::compact(q.data(), {heads, 1, depth}), Buffer::compact(k.data(), {kvHeads, keys, depth}),
                    Buffer::compact(v.data(), {kvHeads, keys, depth})},
                   {Buffer::compact(o.data(), {heads, 1, depth})});
    EXPECT_FALSE(static_cast<bool>(error));
    llvm::consumeError(std::move(error));
    EXPECT_NEAR(1, o.back(), 1e-5);
    return checks.workItems();
  };
  int64_t alone = workItems(2, 2);
  EXPECT_GE(alone, 2 * keys / 1024);
  EXPECT_EQ(alone, workItems(8, 2));
  EXPECT_EQ(alone, workItems(20, 2));
  EXPECT_LT(alone, workItems(8, 8));
}

} // namespace
