//===- CompiledProgramTest.cpp - Compiled programs in the disk cache ----------===//
#include "saccade/JIT/CompiledProgram.h"
#include "saccade/JIT/DiskCache.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"
#include <filesystem>
#include <fstream>

using namespace saccade;

namespace {

const std::string twice = R"(
func.func @twice(%x: tensor<4xf16>, %n: index) -> tensor<4xf16> {
  %y = arith.addf %x, %x : tensor<4xf16>
  return %y : tensor<4xf16>
}
)";

/// With `lint`, a warning about the scale.
const std::string wrongScale = R"(
func.func @attend(%x: tensor<8x?x64xf32>) -> tensor<8x?x64xf32> {
  %o = attn.attention %x[h,s,d], %x[h,s,d], %x[h,s,d] scale(0.0442)
    : (tensor<8x?x64xf32>, tensor<8x?x64xf32>, tensor<8x?x64xf32>) -> tensor<8x?x64xf32>
  return %o : tensor<8x?x64xf32>
}
)";

CompiledProgram compileTest(llvm::StringRef text, const CompileOptions &options) {
  auto compiled = compileText(text, "program.mlir", options, [](mlir::DiagnosticSeverity, llvm::StringRef) {});
  if (!compiled) {
    ADD_FAILURE() << llvm::toString(compiled.takeError());
    std::abort();
  }
  return std::move(*compiled);
}

std::vector<std::string> signatures(llvm::ArrayRef<Entry> entries) {
  std::vector<std::string> texts;
  for (const Entry &entry : entries)
    texts.push_back(entry.signature());
  return texts;
}

TEST(CompiledProgram, ComesBackFromItsValue) {
  CompileOptions options;
  options.lint = true;
  CompiledProgram original = compileTest(twice + wrongScale, options);
  ASSERT_EQ(1u, original.diagnostics.size());
  original.kernels = {{"kernel", "sm_80", ""}, {"another", "simt", ", without warpgroups: elements are f32"}};
  std::optional<CompiledProgram> decoded = decodeProgram(encodeProgram(original));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(signatures(original.entries), signatures(decoded->entries));
  EXPECT_EQ(original.object, decoded->object);
  EXPECT_EQ(original.diagnostics, decoded->diagnostics);
  EXPECT_EQ(mlir::DiagnosticSeverity::Warning, decoded->diagnostics[0].first);
  ASSERT_EQ(2u, decoded->kernels.size());
  EXPECT_EQ("another", decoded->kernels[1].name);
  EXPECT_EQ("simt", decoded->kernels[1].family);
  EXPECT_EQ(", without warpgroups: elements are f32", decoded->kernels[1].notes);
  EXPECT_EQ(0.0, decoded->times.total());
}

TEST(CompiledProgram, KeepsTheKernelsOfAGPU) {
  CompileOptions options;
  options.device = lookupGPUTarget("sm_80");
  CompiledProgram original = compileTest(wrongScale, options);
  std::optional<CompiledProgram> decoded = decodeProgram(encodeProgram(original));
  ASSERT_TRUE(decoded);
  auto linked = Executable::link(original), again = Executable::link(*decoded);
  ASSERT_TRUE(linked && again);
  ASSERT_FALSE((*again)->kernels().empty());
  EXPECT_NE("", (*again)->kernels()[0].family);
  EXPECT_EQ((*linked)->kernels()[0].family, (*again)->kernels()[0].family);
  EXPECT_NE(std::string::npos, (*again)->ptx().find(".target sm_80"));
  EXPECT_NE(std::string::npos, (*again)->ptx().find((*again)->kernels()[0].name));
  EXPECT_EQ((*linked)->ptx(), (*again)->ptx());
}

TEST(CompiledProgram, AMalformedValueIsRefused) {
  CompiledProgram small;
  small.entries = {{"f", {{ElementType::f32, true, {mlir::ShapedType::kDynamic}, "x"}}, {}}};
  small.diagnostics = {{mlir::DiagnosticSeverity::Remark, "text"}};
  small.object = "object";
  const std::string value = encodeProgram(small);
  ASSERT_TRUE(decodeProgram(value));
  for (size_t size = 0; size < value.size(); ++size)
    EXPECT_FALSE(decodeProgram(llvm::StringRef(value).take_front(size))) << size;
  EXPECT_FALSE(decodeProgram(value + "x"));
  // Every changed byte either makes the value malformed or is read back as it is.
  for (size_t i = 0; i < value.size(); ++i) {
    std::string changed = value;
    changed[i] = static_cast<char>(changed[i] ^ 0x80);
    if (std::optional<CompiledProgram> decoded = decodeProgram(changed))
      EXPECT_EQ(changed, encodeProgram(*decoded)) << i;
  }
}

TEST(CompiledProgram, CompilingAgainGivesTheSameObject) {
  EXPECT_EQ(compileTest(wrongScale, CompileOptions()).object, compileTest(wrongScale, CompileOptions()).object);
}

TEST(CompiledProgram, KeysTellCompilationsApart) {
  EXPECT_NE("", compilerIdentity()) << "the test or LLVM is linked without a build ID";
  EXPECT_EQ(3, std::count(compilerIdentity().begin(), compilerIdentity().end(), ',') - 1);
  CompileOptions plain, portable, lint, device;
  portable.target = lookupCPUTarget("portable");
  lint.lint = true;
  device.device = lookupGPUTarget("sm_80");
  std::vector<std::string> keys = {
      makeDiskKey("program", "text", "name", plain),  makeDiskKey("output", "text", "name", plain),
      makeDiskKey("program", "texts", "name", plain), makeDiskKey("program", "text", "names", plain),
      makeDiskKey("program", "text", "name", lint),   makeDiskKey("program", "text", "name", device)};
  if (plain.target != portable.target)
    keys.push_back(makeDiskKey("program", "text", "name", portable));
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_NE(std::string::npos, keys[i].find(compilerIdentity()));
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(keys[i], keys[j]) << i << ' ' << j;
  }
  EXPECT_EQ(keys[0], makeDiskKey("program", "text", "name", CompileOptions()));
}

TEST(CompiledProgram, CompilationsWithEffectsHaveNoKey) {
  std::vector<CompileOptions> options(3);
  options[0].insertions = {{"tiling", "cse"}};
  options[1].dumpStages = "folder";
  options[2].stopAfter = "tiling";
  for (const CompileOptions &each : options)
    EXPECT_EQ("", makeDiskKey("program", "text", "name", each));
}

TEST(CompiledProgram, AFileIsKnownByItsSizeAndTime) {
  std::string path = testing::TempDir() + "saccade-file-identity-" + std::to_string(getpid());
  std::ofstream(path) << "text";
  std::string first = fileIdentity(path);
  EXPECT_NE("", first);
  EXPECT_EQ(first, fileIdentity(path));
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_NE(first, fileIdentity(path));
  std::filesystem::remove(path);
  EXPECT_EQ("", fileIdentity(path));
  EXPECT_EQ("", fileIdentity(""));
}

/// A directory for a cache, removed at the end of a test.
class Folder {
public:
  Folder() : path(testing::TempDir() + "saccade-programs-XXXXXX") {
    if (!mkdtemp(path.data()))
      std::abort();
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::shared_ptr<DiskCache> open() const { return llvm::cantFail(DiskCache::open(path)); }

private:
  std::string path;
};

/// Compiles a program with `cache` and calls @twice.
void runTwice(llvm::StringRef text, DiskCache &cache, const CompileOptions &options, bool &isLoaded) {
  Source source;
  ASSERT_TRUE(succeeded(source.parse(llvm::MemoryBuffer::getMemBufferCopy(text, "program.mlir"),
                                     [](mlir::DiagnosticSeverity, llvm::StringRef) {})));
  auto executable = Executable::create(source.module(), options, &cache);
  ASSERT_TRUE(bool(executable)) << llvm::toString(executable.takeError());
  isLoaded = (*executable)->compileTimes().pipeline == 0;
  EXPECT_GT((*executable)->compileTimes().link, 0);
  uint16_t in[4] = {0x3c00, 0x4000, 0, 0xbc00}, out[4]; // 1, 2, 0, -1
  int64_t n = 0;
  const Entry &entry = *(*executable)->lookup("twice");
  EXPECT_EQ("twice(x: tensor<4xf16>, n: index) -> (result: tensor<4xf16>)", entry.signature());
  llvm::Error error =
      (*executable)->call(entry, {Buffer::compact(in, {4}), Buffer::scalar(&n)}, {Buffer::compact(out, {4})});
  ASSERT_FALSE(bool(error)) << llvm::toString(std::move(error));
  EXPECT_EQ((std::vector<uint16_t>{0x4000, 0x4400, 0, 0xc000}), std::vector<uint16_t>(out, out + 4));
}

TEST(CompiledProgram, IsLoadedFromTheCacheOfAModule) {
  Folder folder;
  bool isLoaded = true;
  runTwice(twice, *folder.open(), CompileOptions(), isLoaded);
  EXPECT_FALSE(isLoaded);
  runTwice(twice, *folder.open(), CompileOptions(), isLoaded);
  EXPECT_TRUE(isLoaded);
}

TEST(CompiledProgram, AModuleWithAWarningIsCompiledAgain) {
  Folder folder;
  CompileOptions options;
  options.lint = true;
  bool isLoaded = true;
  for (int round = 0; round < 2; ++round) {
    runTwice(twice + wrongScale, *folder.open(), options, isLoaded);
    EXPECT_FALSE(isLoaded);
  }
}

TEST(CompiledProgram, AnObjectThatDoesNotLinkIsNotLoaded) {
  Folder folder;
  std::shared_ptr<DiskCache> cache = folder.open();
  CompiledProgram broken;
  broken.entries = {{"f", {}, {}}};
  broken.object = "no object";
  cache->store("key", encodeProgram(broken));
  EXPECT_EQ(nullptr, Executable::load(*cache, "key").first);
  cache->store("key", "no program");
  EXPECT_EQ(nullptr, Executable::load(*cache, "key").first);
  EXPECT_EQ(nullptr, Executable::load(*cache, "another key").first);
  broken = compileTest(twice, CompileOptions());
  cache->store("key", encodeProgram(broken));
  EXPECT_NE(nullptr, Executable::load(*cache, "key").first);
}

} // namespace
