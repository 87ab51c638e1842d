// The source of kernels.ptx:
//   clang++-22 -std=c++20 --target=nvptx64-nvidia-cuda -march=sm_80 -O2 -nogpulib -S kernels.cpp -o kernels.ptx
#define KERNEL extern "C" __attribute__((nvptx_kernel)) void
#define SHARED __attribute__((address_space(3)))

static int threadX() { return __nvvm_read_ptx_sreg_tid_x(); }
static int threadY() { return __nvvm_read_ptx_sreg_tid_y(); }
static int blockX() { return __nvvm_read_ptx_sreg_ctaid_x(); }
static int blockY() { return __nvvm_read_ptx_sreg_ctaid_y(); }
static void barrier() { __nvvm_bar_sync(0); }

KERNEL add(const float *a, const float *b, float *c, int n) {
  int i = blockX() * 128 + threadX();
  if (i < n)
    c[i] = a[i] + b[i];
}

static SHARED float partial[4];

// Sum of n floats by one block of 128 threads: warp shuffles, then one word of shared memory per warp.
KERNEL sum(const float *a, float *result, int n) {
  float total = 0;
  for (int i = threadX(); i < n; i += 128)
    total += a[i];
  for (int distance = 16; distance; distance /= 2)
    total += __builtin_bit_cast(float, __nvvm_shfl_sync_bfly_i32(-1, __builtin_bit_cast(int, total), distance, 31));
  if (threadX() % 32 == 0)
    partial[threadX() / 32] = total;
  barrier();
  if (threadX() == 0)
    *result = partial[0] + partial[1] + partial[2] + partial[3];
}

constexpr int tile = 16;
static SHARED float tileA[tile][tile], tileB[tile][tile];

// C = A B in tiles of 16 x 16; any m, n, k.
KERNEL matmul(const float *a, const float *b, float *c, int m, int n, int k) {
  int row = blockY() * tile + threadY(), column = blockX() * tile + threadX();
  float total = 0;
  for (int start = 0; start < k; start += tile) {
    int alongA = start + threadX(), alongB = start + threadY();
    tileA[threadY()][threadX()] = row < m && alongA < k ? a[row * k + alongA] : 0;
    tileB[threadY()][threadX()] = alongB < k && column < n ? b[alongB * n + column] : 0;
    barrier();
    for (int i = 0; i < tile; ++i)
      total += tileA[threadY()][i] * tileB[i][threadX()];
    barrier();
  }
  if (row < m && column < n)
    c[row * n + column] = total;
}

// Histogram by atomics on shared, then global memory, with a switch.
static SHARED unsigned counts[8];

KERNEL histogram(const int *values, unsigned *result, int n) {
  if (threadX() < 8)
    counts[threadX()] = 0;
  barrier();
  for (int i = threadX(); i < n; i += 64) {
    unsigned bin;
    switch (values[i] & 7) {
    case 0:
      bin = 3;
      break;
    case 1:
      bin = values[i] > 64 ? 1 : 2;
      break;
    case 2:
      bin = 7;
      break;
    case 3:
      bin = values[i] / 3 & 7;
      break;
    case 4:
      bin = __builtin_popcount(values[i]) & 7;
      break;
    default:
      bin = 0;
    }
    __nvvm_atom_add_gen_i((int *)&counts[bin], 1);
  }
  barrier();
  if (threadX() < 8)
    __nvvm_atom_add_gen_i((int *)&result[threadX()], counts[threadX()]);
}
