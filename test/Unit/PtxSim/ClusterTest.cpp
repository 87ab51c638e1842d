//===- ClusterTest.cpp - Clusters of one block, code of LLVM --------------===//

#include "AsyncHarness.h"
#include "Kernels.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

TEST(Cluster, BarrierOrdersMemory) {
  std::string write = "setp.eq.u32 %p0, %thread, 0;\n@%p0 st.shared.b32 [%smem], 9;\n",
              arrive = "barrier.cluster.arrive.release.aligned;\n", wait = "barrier.cluster.wait.acquire.aligned;\n",
              read = "ld.shared.b32 %r0, [%smem];\nmul.wide.u32 %l0, %thread, 4;\nadd.s64 %l0, %l0, %out;\n"
                     "st.global.b32 [%l0], %r0;\n";
  AsyncCase test{write + arrive + wait + read + arrive + wait, 64};
  test.outputBytes = 256;
  EXPECT_EQ(asyncOutput(test), rawBytes(std::vector<uint32_t>(64, 9)));
  test.body = write + "barrier.cluster.arrive.relaxed.aligned;\n" + wait + read;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Race);
  test.body = write + arrive + read + wait;
  EXPECT_EQ(runAsync(test).report.finding->kind, FindingKind::Race);
  test.body = wait;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::BadOperand);
  test.body = arrive + arrive;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Deadlock);
  test.body =
      "setp.eq.u32 %p1, %warp, 0;\n@%p1 bra other;\n" + arrive + wait + "bra end;\nother:\nbar.sync 1, 64;\nend:\n";
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Deadlock);
  // Threads that have exited are not waited for.
  test.body = "setp.eq.u32 %p1, %warp, 0;\n@%p1 bra end;\n" + arrive + wait + "end:\n";
  EXPECT_TRUE(runAsync(test).report);
}

TEST(Cluster, HasOneBlock) {
  AsyncCase test{"mov.u32 %r0, %cluster_ctarank;\nmov.u32 %r1, %cluster_nctarank;\nmov.u32 %r2, %clusterid.x;\n"
                 "mov.u32 %r3, %cluster_nctaid.y;\nst.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};\n"
                 "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\n"};
  EXPECT_EQ(asyncOutput(test), rawBytes(std::vector<uint32_t>{0, 1, 0, 1}));
  test.body = "mov.u32 %r0, 1;\nmapa.shared::cluster.u32 %r1, %smem, %r0;\n";
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::BadOperand);
  test.directives = ".explicitcluster\n.reqnctapercluster 2, 1, 1\n";
  test.body = "";
  test.forPtxas = false;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Syntax);
}

TEST(Cluster, CodeOfLLVMCopiesATile) {
  std::string text = readInput("nvvm_tile.ptx");
  keepForPtxas(text);
  std::vector<uint16_t> tile;
  for (unsigned index = 0; index < 64 * 64; ++index)
    tile.push_back(uint16_t(index * 7));
  for (AsyncMode async : {AsyncMode::Early, AsyncMode::Late}) {
    Device device;
    auto loaded = Program::load(text, device);
    ASSERT_TRUE(std::holds_alternative<Program>(loaded)) << std::get<Finding>(loaded).str();
    uint64_t from = device.allocate(bytesOf(tile), "from"), to = device.allocate(8192, "to"),
             words = device.allocate(512, "words");
    auto mapOf = [](uint64_t address) {
      TiledTensor tensor;
      tensor.address = address;
      tensor.extents = {64, 64}, tensor.strides = {128}, tensor.box = {64, 64};
      tensor.swizzle = TensorSwizzle::Bytes128;
      return std::get<TensorMap>(encodeTiled(tensor));
    };
    Launch launch = mode(async);
    launch.block = {128, 1, 1}, launch.dynamicShared = 1024 + 8192;
    launch.parameters = Parameters().add(mapOf(from)).add(mapOf(to)).add(words).bytes;
    Report report = std::get<Program>(loaded).run("copy_tile", launch);
    EXPECT_TRUE(report) << report.finding->str();
    EXPECT_EQ(read<uint16_t>(device, to, 64 * 64), tile);
    EXPECT_EQ(read<uint32_t>(device, words, 128), std::vector<uint32_t>(128, 7 << 16));
  }
}
