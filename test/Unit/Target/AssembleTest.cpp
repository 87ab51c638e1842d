//===- AssembleTest.cpp - Parsing the output of ptxas -------------------------===//
#include "saccade/Support/GPUTarget.h"
#include "saccade/Target/Device.h"
#include "llvm/Support/FileSystem.h"
#include "gtest/gtest.h"
#include <fstream>

using namespace saccade;

// A stand-in for an older ptxas, which lacks the option for several threads.
TEST(Assemble, ReportsWhatTheAssemblerSays) {
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("assembler", "sh", path));
  std::ofstream(path.c_str()) << "#!/bin/sh\n"
                                 "case $* in *split-compile*) echo unknown option split-compile; exit 1;; esac\n"
                                 "echo \"Compiling entry function 'only' for '$1'\"\n"
                                 "echo \"Used 24 registers\"\n"
                                 "while [ \"$1\" != -o ]; do shift; done\n"
                                 "cp \"$3\" \"$2\"\n";
  ASSERT_FALSE(llvm::sys::fs::setPermissions(path, llvm::sys::fs::owner_all));
  llvm::Expected<Cubin> cubin = assemble("text", *lookupGPUTarget("sm_80"), path);
  ASSERT_FALSE(llvm::sys::fs::remove(path));
  ASSERT_TRUE(bool(cubin)) << llvm::toString(cubin.takeError());
  EXPECT_EQ(cubin->bytes, "text");
  ASSERT_EQ(cubin->kernels.size(), 1u);
  EXPECT_EQ(cubin->kernels[0].name, "only");
  EXPECT_EQ(cubin->kernels[0].registers, 24);
}

TEST(Assemble, ReadsRegistersAndSpillsOfEveryKernel) {
  Cubin cubin;
  readAssemblerLog("ptxas info    : 0 bytes gmem\n"
                   "ptxas info    : Compiling entry function 'first' for 'sm_80'\n"
                   "ptxas info    : Function properties for first\n"
                   "    88 bytes stack frame, 84 bytes spill stores, 80 bytes spill loads\n"
                   "ptxas info    : Used 255 registers, used 1 barriers, 88 bytes cumulative stack size\n"
                   "ptxas info    : Compiling entry function 'second' for 'sm_80'\n"
                   "ptxas info    : Function properties for second\n"
                   "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                   "ptxas info    : Used 32 registers, 360 bytes cmem[0]\n",
                   cubin);
  ASSERT_EQ(cubin.kernels.size(), 2u);
  EXPECT_EQ(cubin.kernels[0].name, "first");
  EXPECT_EQ(cubin.kernels[0].registers, 255);
  EXPECT_EQ(cubin.kernels[0].stack, 88);
  EXPECT_EQ(cubin.kernels[0].spillStores, 84);
  EXPECT_EQ(cubin.kernels[0].spillLoads, 80);
  EXPECT_EQ(cubin.kernels[1].registers, 32);
  EXPECT_EQ(cubin.kernels[1].spillStores, 0);
  EXPECT_TRUE(cubin.warnings.empty());
}

TEST(Assemble, KeepsTheWarningsThatCostSpeed) {
  Cubin cubin;
  readAssemblerLog(
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register "
      "requirements.\n"
      "ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
      "ptxas info    : (C7500) something else\n",
      cubin);
  ASSERT_EQ(cubin.warnings.size(), 2u);
  EXPECT_NE(cubin.warnings[0].find("C7508"), std::string::npos);
  EXPECT_NE(cubin.warnings[1].find("C7512"), std::string::npos);
}
