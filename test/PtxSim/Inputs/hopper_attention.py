"""Prints hopper_attention.ptx: attention for sm_90a, head size 128, bf16, as a test of the simulator.

    hopper_attention.py > hopper_attention.ptx

A block has 128 queries. Warp 0 of the first warpgroup loads queries, keys and values with bulk tensor copies; the other two
warpgroups compute 64 rows each: S = Q K^T with both operands in shared memory, softmax in registers, O += P V with P in
registers. Keys and values have two stages each. Parameters: tensor maps of q, k, v (boxes of 64 x 64, 128-byte swizzle) and
o (boxes of 64 x 128, no swizzle), the number of keys, the scale times log2(e).
"""

HEAD, KEYS, STAGES = 128, 64, 2  # a tile has 64 rows; its boxes have 64 columns
BOX = 64 * 128  # bytes of a box
TILE = BOX * HEAD // 64
Q, K = 0, 2 * TILE
V = K + STAGES * TILE
BARRIERS = V + STAGES * TILE
# Barriers of 8 bytes; all but the first have one per stage.
Q_FULL, K_FULL, K_EMPTY, V_FULL, V_EMPTY = BARRIERS, BARRIERS + 8, BARRIERS + 24, BARRIERS + 40, BARRIERS + 56
SHARED = BARRIERS + 72
CONSUMERS = 8  # warps

S_COUNT, O_COUNT = KEYS // 2, HEAD // 2  # sums of a thread
lines: list[str] = []


def emit(text: str) -> None:
    """Adds instructions, one a line; labels end in a colon."""
    for line in text.strip().split("\n"):
        line = line.strip()
        lines.append(line if line.endswith(":") else "\t" + line)


def registers(prefix: str, count: int) -> str:
    return ", ".join(f"%{prefix}{index}" for index in range(count))


def wait(barrier: str, parity: str, label: str) -> None:
    emit(f"""
{label}:
mbarrier.try_wait.parity.shared::cta.b64 %done, [{barrier}], {parity};
@!%done bra {label};""")


def load(name: str, destination: str, barrier: str, row: str) -> None:
    """Two boxes of 64 columns."""
    for part in range(HEAD // 64):
        emit(f"""
add.u32 %to, {destination}, {part * BOX};
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%to], [%{name}_map, {{{64 * part}, {row}}}], [{barrier}];""")


def stage_of(step: str) -> None:
    emit(f"""
and.b32 %stage, {step}, {STAGES - 1};
shr.u32 %phase, {step}, {STAGES.bit_length() - 1};
and.b32 %phase, %phase, 1;
shl.b32 %slot, %stage, 3;
add.u32 %slot, %slot, %smem;
shl.b32 %tile, %stage, {TILE.bit_length() - 1};
add.u32 %tile, %tile, %smem;""")


def descriptor(name: str, address: str, leading: int) -> None:
    """128-byte swizzle, 1024 bytes between groups of eight rows."""
    emit(f"""
shr.u32 %tmp, {address}, 4;
cvt.u64.u32 %{name}, %tmp;
or.b64 %{name}, %{name}, {1 << 62 | 1024 >> 4 << 32 | leading >> 4 << 16};""")


def prologue() -> None:
    maps = ", ".join(f".param .align 64 .b8 {name}_param[128]" for name in "qkvo")
    lines.extend([
        ".version 8.4", ".target sm_90a", ".address_size 64", "", ".extern .shared .align 1024 .b8 shared_memory[];",
        f".visible .entry attention({maps}, .param .u32 keys_param, .param .f32 scale_param)", ".reqntid 384, 1, 1", "{"])
    emit(f"""
.reg .pred %done, %leader, %first, %last, %more, %masked, %accumulate;
.reg .b32 %smem, %thread, %group, %warp, %lane, %row, %keys, %tiles, %step, %stage, %phase, %other, %slot, %tile, %to, %tmp;
.reg .b32 %at, %key, %column, %barrier;
.reg .b64 %q_map, %k_map, %v_map, %o_map, %q_desc, %k_desc, %v_desc, %a_desc, %b_desc;
.reg .f32 %scale, %max0, %max1, %new0, %new1, %sum0, %sum1, %factor0, %factor1, %part, %inf;
.reg .f32 {registers('s', S_COUNT)};
.reg .f32 {registers('o', O_COUNT)};
.reg .b32 {registers('p', S_COUNT // 2)};
.reg .b32 %pair;
mov.u32 %smem, shared_memory;
mov.u32 %thread, %tid.x;
shr.u32 %group, %thread, 7;
shr.u32 %warp, %thread, 5;
and.b32 %lane, %thread, 31;
mov.u32 %row, %ctaid.x;
shl.b32 %row, %row, 7;
ld.param.u32 %keys, [keys_param];
ld.param.f32 %scale, [scale_param];
add.u32 %tiles, %keys, {KEYS - 1};
shr.u32 %tiles, %tiles, {KEYS.bit_length() - 1};""")
    for name in "qkvo":
        emit(f"mov.b64 %{name}_map, {name}_param;\ncvta.param.u64 %{name}_map, %{name}_map;")
    emit("setp.ne.u32 %first, %thread, 0;\n@%first bra initialised;")
    barriers = [(Q_FULL, 1)]
    for stage in range(STAGES):
        barriers += [(K_FULL + 8 * stage, 1), (K_EMPTY + 8 * stage, CONSUMERS), (V_FULL + 8 * stage, 1), (V_EMPTY + 8 * stage, CONSUMERS)]
    for offset, count in barriers:
        emit(f"mbarrier.init.shared::cta.b64 [%smem+{offset}], {count};")
    emit("""
fence.mbarrier_init.release.cluster;
initialised:
bar.sync 0;
setp.ne.u32 %first, %group, 0;
@%first bra consumer;""")


def producer() -> None:
    emit("""
setmaxnreg.dec.sync.aligned.u32 24;
setp.ne.u32 %first, %warp, 0;
@%first bra end;
elect.sync _|%leader, -1;
@!%leader bra end;""")
    emit(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%smem+{Q_FULL}], {2 * TILE};")
    emit(f"add.u32 %barrier, %smem, {Q_FULL};")
    for group in range(2):
        emit(f"add.u32 %at, %smem, {Q + group * TILE};\nadd.u32 %tmp, %row, {64 * group};")
        load("q", "%at", "%barrier", "%tmp")
    emit("mov.u32 %step, 0;\nproduce:")
    stage_of("%step")
    emit("xor.b32 %other, %phase, 1;\nshl.b32 %key, %step, 6;")
    for name, base, full, empty in (("k", K, K_FULL, K_EMPTY), ("v", V, V_FULL, V_EMPTY)):
        emit(f"add.u32 %barrier, %slot, {empty};")
        wait("%barrier", "%other", f"{name}_is_empty")
        emit(f"""
add.u32 %barrier, %slot, {full};
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], {TILE};
add.u32 %at, %tile, {base};""")
        load(name, "%at", "%barrier", "%key")
    emit("""
add.u32 %step, %step, 1;
setp.lt.u32 %more, %step, %tiles;
@%more bra produce;
bra end;""")


def row_maximum(row: int) -> None:
    emit(f"mov.f32 %new{row}, %max{row};")
    for index in range(S_COUNT):
        if index // 2 % 2 == row:
            emit(f"max.f32 %new{row}, %new{row}, %s{index};")
    for distance in (1, 2):
        emit(f"""
mov.b32 %tmp, %new{row};
shfl.sync.bfly.b32 %tmp, %tmp, {distance}, 31, -1;
mov.b32 %part, %tmp;
max.f32 %new{row}, %new{row}, %part;""")
    emit(f"""
sub.f32 %factor{row}, %max{row}, %new{row};
ex2.approx.ftz.f32 %factor{row}, %factor{row};
mov.f32 %max{row}, %new{row};
mul.f32 %sum{row}, %sum{row}, %factor{row};""")


def release(barrier: int) -> None:
    """Lane 0 of every warp arrives; the warp has waited for its products."""
    emit(f"@%leader mbarrier.arrive.shared::cta.b64 _, [%slot+{barrier}];")


def consumer() -> None:
    emit("""
consumer:
setmaxnreg.inc.sync.aligned.u32 240;
setp.eq.u32 %leader, %lane, 0;
mov.f32 %inf, 0fFF800000;
mov.f32 %max0, 0fFF800000;
mov.f32 %max1, 0fFF800000;
mov.f32 %sum0, 0f00000000;
mov.f32 %sum1, 0f00000000;""")
    for index in range(O_COUNT):
        emit(f"mov.f32 %o{index}, 0f00000000;")
    emit(f"""
sub.u32 %tmp, %group, 1;
shl.b32 %at, %tmp, {TILE.bit_length() - 1};
add.u32 %at, %at, %smem;
add.u32 %at, %at, {Q};""")
    descriptor("q_desc", "%at", 16)
    emit(f"add.u32 %barrier, %smem, {Q_FULL};")
    wait("%barrier", "0", "q_is_full")
    emit("mov.u32 %step, 0;\nconsume:")
    stage_of("%step")

    # S = Q K^T
    emit(f"add.u32 %tmp, %tile, {K};\nmov.u32 %to, %tmp;")
    descriptor("k_desc", "%to", 16)
    emit(f"add.u32 %barrier, %slot, {K_FULL};")
    wait("%barrier", "%phase", "k_is_full")
    emit("wgmma.fence.sync.aligned;")
    for block in range(HEAD // 16):
        advance = (block % 4 * 32 + block // 4 * BOX) >> 4
        emit(f"""
add.s64 %a_desc, %q_desc, {advance};
add.s64 %b_desc, %k_desc, {advance};
wgmma.mma_async.sync.aligned.m64n{KEYS}k16.f32.bf16.bf16 {{{registers('s', S_COUNT)}}}, %a_desc, %b_desc, {int(block > 0)}, 1, 1, 0, 0;""")
    emit("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")
    release(K_EMPTY)

    # Softmax: a thread has columns 8 j + 2 (lane % 4) and the next one of rows lane / 4 and lane / 4 + 8.
    emit("""
shl.b32 %key, %step, 6;
and.b32 %column, %lane, 3;
shl.b32 %column, %column, 1;
add.u32 %column, %column, %key;""")
    for index in range(S_COUNT):
        emit(f"mul.f32 %s{index}, %s{index}, %scale;")
        emit(f"""
add.u32 %tmp, %column, {8 * (index // 4) + index % 2};
setp.ge.u32 %masked, %tmp, %keys;
selp.f32 %s{index}, %inf, %s{index}, %masked;""")
    for row in range(2):
        row_maximum(row)
    for index in range(S_COUNT):
        row = index // 2 % 2
        emit(f"""
sub.f32 %s{index}, %s{index}, %max{row};
ex2.approx.ftz.f32 %s{index}, %s{index};
add.f32 %sum{row}, %sum{row}, %s{index};""")
    for index in range(O_COUNT):
        emit(f"mul.f32 %o{index}, %o{index}, %factor{index // 2 % 2};")
    for index in range(S_COUNT // 2):
        emit(f"cvt.rn.bf16x2.f32 %p{index}, %s{2 * index + 1}, %s{2 * index};")

    # O += P V
    emit(f"add.u32 %to, %tile, {V};")
    descriptor("v_desc", "%to", BOX)
    emit(f"add.u32 %barrier, %slot, {V_FULL};")
    wait("%barrier", "%phase", "v_is_full")
    emit("wgmma.fence.sync.aligned;")
    for block in range(KEYS // 16):
        fragment = ", ".join(f"%p{4 * block + index}" for index in range(4))
        emit(f"""
add.s64 %b_desc, %v_desc, {16 * 128 * block >> 4};
wgmma.mma_async.sync.aligned.m64n{HEAD}k16.f32.bf16.bf16 {{{registers('o', O_COUNT)}}}, {{{fragment}}}, %b_desc, 1, 1, 1, 1;""")
    emit("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")
    release(V_EMPTY)
    emit("""
add.u32 %step, %step, 1;
setp.lt.u32 %more, %step, %tiles;
@%more bra consume;""")


def epilogue() -> None:
    for row in range(2):
        for distance in (1, 2):
            emit(f"""
mov.b32 %tmp, %sum{row};
shfl.sync.bfly.b32 %tmp, %tmp, {distance}, 31, -1;
mov.b32 %part, %tmp;
add.f32 %sum{row}, %sum{row}, %part;""")
        emit(f"rcp.approx.ftz.f32 %factor{row}, %sum{row};")
    # O replaces the queries of the warpgroup: rows of 256 bytes.
    emit(f"""
sub.u32 %tmp, %group, 1;
shl.b32 %at, %tmp, {TILE.bit_length() - 1};
add.u32 %at, %at, %smem;
add.u32 %at, %at, {Q};
shl.b32 %tmp, %tmp, 6;
add.u32 %row, %row, %tmp;
and.b32 %tmp, %warp, 3;
shl.b32 %tmp, %tmp, 12;
add.u32 %to, %at, %tmp;
shr.u32 %tmp, %lane, 2;
shl.b32 %tmp, %tmp, 8;
add.u32 %to, %to, %tmp;
and.b32 %tmp, %lane, 3;
shl.b32 %tmp, %tmp, 2;
add.u32 %to, %to, %tmp;""")
    for index in range(0, O_COUNT, 2):
        row = index // 2 % 2
        emit(f"""
mul.f32 %o{index}, %o{index}, %factor{row};
mul.f32 %o{index + 1}, %o{index + 1}, %factor{row};
cvt.rn.bf16x2.f32 %pair, %o{index + 1}, %o{index};
st.shared.b32 [%to+{index // 4 * 16 + row * 8 * 256}], %pair;""")
    emit("""
fence.proxy.async.shared::cta;
bar.sync %group, 128;
and.b32 %tmp, %thread, 127;
setp.ne.u32 %last, %tmp, 0;
@%last bra end;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%o_map, {0, %row}], [%at];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
end:
ret;""")
    lines.append("}")


prologue()
producer()
consumer()
epilogue()
print("\n".join(lines))
