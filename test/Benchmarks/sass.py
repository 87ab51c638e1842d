# RUN: %python %s %src | FileCheck %s
# REQUIRES: numpy
"""The path of a full tile is found in a disassembled loop, and counts above the recorded ones are reported."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "benchmarks"))
import sass
from saccade_bench.sass import count_classes, count_in_flight, main_loop, resources

# The loop from .L_x_1 to the last BRA. An iteration takes one of two products, the first with one more instruction,
# and branches around the copy if there is no other tile. An element loop (.L_x_4) is an alternative to the copy.
TEXT = """
//--------------------- .text.other --------------------------
.text.other:
        /*0000*/                   HMMA.16816.F32 R0, R4, R6, R0 ;
        /*0010*/                   EXIT ;
//--------------------- .text.kernel --------------------------
.text.kernel:
        /*0000*/                   S2R R2, SR_CTAID.X ;
.L_x_1:
        /*0010*/               @P0 BRA `(.L_x_2) ;
        /*0020*/                   LDSM.16.M88.4 R4, [R6] ;
        /*0030*/                   FADD R1, R1, R2 ;
        /*0040*/                   HMMA.16816.F32 R0, R4, R6, R0 ;
        /*0050*/                   BRA `(.L_x_3) ;
.L_x_2:
        /*0060*/                   LDSM.16.M88.4 R4, [R6] ;
        /*0070*/                   HMMA.16816.F32 R0, R4, R6, R0 ;
.L_x_3:
        /*0080*/                   BRA P1, `(.L_x_6) ;
        /*0090*/               @P2 BRA `(.L_x_5) ;
.L_x_4:
        /*00a0*/                   STS [R6], R7 ;
        /*00b0*/               @P3 BRA `(.L_x_4) ;
        /*00c0*/                   BRA `(.L_x_6) ;
.L_x_5:
        /*00d0*/                   LDGSTS.E.BYPASS.128 [R6], [R8.64] ;
.L_x_6:
        /*00e0*/                   MUFU.EX2 R1, R1 ;
        /*00f0*/              @!P0 BRA `(.L_x_1) ;
        /*0100*/                   EXIT ;
.L_x_7:
        /*0110*/                   BRA `(.L_x_7);
"""
# CHECK: 'HMMA': 1, 'MUFU': 1, 'FP32': 0, 'LDS': 1, 'LDG': 1, 'control': 4, 'SHFL': 0, 'integer': 0
print(count_classes(main_loop(TEXT, "kernel")))

# Two products of an iteration, and a wait for all. The second product is in flight until that of the next iteration.
PRODUCTS = """
.text.kernel:
        /*0000*/                   S2R R2, SR_CTAID.X ;
.L_x_1:
        /*0000*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], RZ, !UPT ;
        /*0010*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], R24, gsb0 ;
        /*0020*/                   MUFU.EX2 R1, R1 ;
        /*0030*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0040*/                   HGMMA.64x128x16.F32.BF16 R88, R152, gdesc[UR16].tnspB, R88, gsb0 ;
        /*0050*/                   FADD R2, R2, R1 ;
        /*0060*/                   MUFU.EX2 R3, R3 ;
        /*0070*/              @!P0 BRA `(.L_x_1) ;
        /*0080*/                   EXIT ;
"""


def in_flight(text):
    return [(each["MUFU"], each["FP32"]) for each in count_in_flight(main_loop(text, "kernel"))]


# CHECK-NEXT: [(1, 0), (2, 1)]
print(in_flight(PRODUCTS))
# The same with a wait that leaves one product in flight, which completes both of the iteration before.
# CHECK-NEXT: [(3, 1), (2, 1)]
print(in_flight(PRODUCTS.replace("gsb0, 0x0", "gsb0, 0x1")))

LOG = """ptxas info    : Function properties for kernel
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
"""
# CHECK-NEXT: {'registers': 255, 'spilled bytes': 16}
print(resources(LOG, "kernel"))

RECORDED = {"same": 100, "allowed": 100, "more": 100, "spills": 100}
recorded = {name: {"other": other, "spilled bytes": 8} for name, other in RECORDED.items()}
measured = {"same": {"other": 100, "spilled bytes": 8}, "allowed": {"other": 102, "spilled bytes": 0},
            "more": {"other": 103, "spilled bytes": 8}, "spills": {"other": 90, "spilled bytes": 9},
            "new": {"other": 1, "spilled bytes": 0}}  # fmt: skip
# CHECK-NEXT: more: 103 other instructions, 100 before
# CHECK-NEXT: spills: 9 bytes spilled, 8 before
# CHECK-NEXT: new: not in sass.json
print("\n".join(sass.regressions(measured, recorded, {})))

# Two products, during the second of which 64 exponentials may be 63.
recorded = {name: {"other": 100, "spilled bytes": 0, "MUFU in flight": [0, 64]} for name in ("same", "fewer", "product")}
measured = {"same": {**recorded["same"], "MUFU in flight": [1, 63]}, "fewer": {**recorded["fewer"], "MUFU in flight": [0, 62]},
            "product": {**recorded["product"], "MUFU in flight": [64]}}  # fmt: skip
# CHECK-NEXT: fewer: [0, 62] MUFU between the starts of products and the waits for them, [0, 64] before
# CHECK-NEXT: product: [64] MUFU between the starts of products and the waits for them, [0, 64] before
print("\n".join(sass.regressions(measured, recorded, {})))

# The tile of 128 keys is compared with the reference's, whatever its mask, and 128 keys with its own tile of 160.
references = {"FlashAttention-3 d64 full": {"keys": 160, "other": 500}, "FlashAttention-3 d64 causal": {"keys": 128, "other": 400},
              "FlashAttention-3 d128 causal": {"keys": 128, "other": 100}}  # fmt: skip
measured = {"sm_90a d64 full": {"other": 190, "keys": 128, "other of tile": 380, "spilled bytes": 0},
            "sm_90a d64 causal": {"other": 225, "keys": 128, "other of tile": 450, "spilled bytes": 0},
            "sm_90a d64 alibi": {"other": 300, "keys": 128, "other of tile": 600, "spilled bytes": 0}}  # fmt: skip
# CHECK-NEXT: [('sm_90a d64 full', 0.95, 0.95), ('sm_90a d64 causal', 1.125, 1.125)]
print([(name, round(tile, 3), round(keys, 3)) for name, tile, keys in sass.compare(measured, references)])
# CHECK-NEXT: sm_90a d64 causal: 1.125 times the other instructions of FlashAttention-3 for the same tile, at most 0.96 allowed
print("\n".join(sass.regressions(measured, measured, references)))

# Two kernels of 2 and 3 cycles per instruction of either class.
cases = [(64, 128, 612), (64, 128, 300), (128, 256, 801)]
rates = [4 * 32 * 64 * depth / (2 * hmma + 3 * other) * sass.CLOCK * sass.ISSUERS / 1e12 for depth, hmma, other in cases]
# CHECK-NEXT: {'cycles per HMMA': 2.0, 'cycles per other': 3.0, 'largest error': 0.0}
print({name: float(value) for name, value in sass.fit([
    {"head size": depth, "HMMA": hmma, "other": other, "TFLOP/s": rate} for (depth, hmma, other), rate in zip(cases, rates)
]).items()})  # fmt: skip
