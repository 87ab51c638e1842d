// A block copies a tile of 64 x 64 bf16 elements by bulk tensor copies. Source of nvvm_tile.ptx:
//   mlir-opt -convert-nvvm-to-llvm | mlir-translate --mlir-to-llvmir | llc -mcpu=sm_90a -mattr=+ptx84 -mtriple=nvptx64-nvidia-cuda
module {
  llvm.mlir.global external @memory() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
  llvm.func @copy_tile(%from: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant},
                       %to: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant},
                       %out: !llvm.ptr<1>) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128, 1, 1>, nvvm.minctasm = 3 : i32} {
    %barrier = llvm.mlir.addressof @memory : !llvm.ptr<3>
    %zero = llvm.mlir.constant(0 : i32) : i32
    %one = llvm.mlir.constant(1 : i32) : i32
    %bytes = llvm.mlir.constant(8192 : i32) : i32
    %ticks = llvm.mlir.constant(1000 : i32) : i32
    %tile = llvm.getelementptr %barrier[1024] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
    nvvm.setmaxregister decrease 40
    %thread = nvvm.read.ptx.sreg.tid.x : i32
    %first = llvm.icmp "eq" %thread, %zero : i32
    llvm.cond_br %first, ^initialise, ^initialised
  ^initialise:
    nvvm.mbarrier.init %barrier, %one : !llvm.ptr<3>, i32
    nvvm.fence.mbarrier.init
    llvm.br ^initialised
  ^initialised:
    nvvm.cluster.arrive {aligned}
    nvvm.cluster.wait {aligned}
    nvvm.griddepcontrol wait
    llvm.cond_br %first, ^load, ^wait
  ^load:
    nvvm.mbarrier.arrive.expect_tx %barrier, %bytes : !llvm.ptr<3>, i32
    %destination = llvm.addrspacecast %tile : !llvm.ptr<3> to !llvm.ptr<7>
    nvvm.cp.async.bulk.tensor.shared.cluster.global %destination, %from, %barrier, box[%zero, %zero] : !llvm.ptr<7>, !llvm.ptr
    llvm.br ^wait
  ^wait:
    nvvm.mbarrier.try_wait.parity %barrier, %zero, %ticks : !llvm.ptr<3>, i32, i32
    %rank = nvvm.read.ptx.sreg.cluster.ctarank : i32
    %own = nvvm.mapa %tile, %rank : !llvm.ptr<3> -> !llvm.ptr<7>
    %word = llvm.load %own : !llvm.ptr<7> -> i32
    %place = llvm.getelementptr %out[%thread] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %word, %place : i32, !llvm.ptr<1>
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.barrier
    llvm.cond_br %first, ^store, ^end
  ^store:
    nvvm.cp.async.bulk.tensor.global.shared.cta %to, %tile, box[%zero, %zero] : !llvm.ptr, !llvm.ptr<3>
    nvvm.cp.async.bulk.commit.group
    nvvm.cp.async.bulk.wait_group 0 {read}
    llvm.br ^end
  ^end:
    llvm.return
  }
}
