//===- Handler.cpp - A signal handler that executes instructions ---------------===//
//
// Linux starts a handler with default floating-point state, and restores the registers of the thread after it.
//
//===----------------------------------------------------------------------===//
#include "Handler.h"
#include "VectorDot.h"
#include <atomic>
#include <cpuid.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

using namespace tilehandler;

// The registers of all threads, which outlive them. A handler must not allocate memory.
static constexpr unsigned maxThreads = 256;
static TileUnit units[maxThreads];
static std::atomic<unsigned> numUnits{0};
static thread_local TileUnit *ownUnit = nullptr;
/// What the handler executes.
static thread_local const Instruction *current = nullptr;
static thread_local uintptr_t currentCode = 0;
static std::atomic<uint64_t> numVectorDots{0};

/// Ends the process. `address` is that of the instruction.
[[noreturn]] static void stop(uintptr_t address, Op op, const char *message) {
  char text[320];
  Dl_info library = {};
  dladdr(reinterpret_cast<void *>(address), &library);
  int length = snprintf(text, sizeof(text), "tile handler: error: %s at 0x%zx: %s\n", nameOf(op),
                        address - reinterpret_cast<uintptr_t>(library.dli_fbase), message);
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text, size_t(length));
  _exit(exitCode);
}

TileUnit &tilehandler::ownTiles() {
  if (!ownUnit) {
    unsigned place = numUnits.fetch_add(1);
    if (place >= maxThreads)
      abort();
    ownUnit = &units[place];
  }
  return *ownUnit;
}

//===----------------------------------------------------------------------===//
// Handlers
//===----------------------------------------------------------------------===//

/// Executes CPUID or XGETBV as a processor with AMX and AVX-VNNI-INT8 does. Returns its length, or 0 for another
/// instruction.
static unsigned detect(const uint8_t *code, greg_t *registers) {
  constexpr unsigned amxBF16 = 1u << 22, amxTile = 1u << 24, amxInt8 = 1u << 25, avxVNNIInt8 = 1u << 4,
                     tileState = 3u << 17;
  unsigned a = unsigned(registers[REG_RAX]), b = 0, c = unsigned(registers[REG_RCX]), d = 0;
  if (code[0] != replacedFirstByte)
    return 0;
  if (code[1] == 0xa2) {
    unsigned leaf = a, subleaf = c;
    __cpuid_count(leaf, subleaf, a, b, c, d);
    if (leaf == 7 && subleaf == 0)
      d |= amxBF16 | amxTile | amxInt8;
    if (leaf == 7 && subleaf == 1)
      d |= avxVNNIInt8;
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    return 2;
  }
  if (code[1] != 0x01 || code[2] != 0xd0)
    return 0;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(c));
  registers[REG_RAX] = a | tileState, registers[REG_RDX] = d;
  return 3;
}

static void onUndefined(int, siginfo_t *, void *context) {
  static constexpr int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  mcontext_t &thread = static_cast<ucontext_t *>(context)->uc_mcontext;
  greg_t *registers = thread.gregs;
  auto *code = reinterpret_cast<const uint8_t *>(registers[REG_RIP]);
  if (unsigned bytes = detect(code, registers)) {
    registers[REG_RIP] += bytes;
    return;
  }
  uint64_t general[16];
  for (unsigned i = 0; i < 16; ++i)
    general[i] = uint64_t(registers[order[i]]);
  if (std::optional<VectorDot> dot = decodeVectorDot(code, general)) {
    execute(*dot, VectorRegisters(thread.fpregs));
    ++numVectorDots;
    registers[REG_RIP] += dot->bytes;
    return;
  }
  std::optional<Instruction> instruction = decode(code, general);
  if (!instruction) {
    signal(SIGILL, SIG_DFL); // the instruction ends the process when it is executed again
    return;
  }
  currentCode = reinterpret_cast<uintptr_t>(code);
  current = &*instruction;
  if (const char *message = ownTiles().execute(*instruction))
    stop(currentCode, instruction->op, message);
  current = nullptr;
  registers[REG_RIP] += instruction->bytes;
}

static void onFault(int, siginfo_t *info, void *) {
  if (!current) {
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  char text[96];
  snprintf(text, sizeof(text), "row %u is out of bounds, at %p", ownTiles().row, info->si_addr);
  stop(currentCode, current->op, text);
}

/// Writes the counts of all threads.
static void report() {
  uint64_t partial = 0;
  unsigned used = numUnits;
  for (unsigned i = 0; i < used; ++i) {
    partial += units[i].partialTiles();
    if (units[i].isConfigured()) {
      fprintf(stderr, "tile handler: error: a thread ends with configured tile registers\n");
      fflush(stderr);
      _exit(exitCode);
    }
  }
  char text[512];
  int length = snprintf(text, sizeof(text), "tile instructions:");
  auto add = [&](const char *name, uint64_t count) {
    length += snprintf(text + length, sizeof(text) - size_t(length), " %s %llu", name,
                       static_cast<unsigned long long>(count));
  };
  for (unsigned op = 0; op < numOps; ++op) {
    uint64_t count = 0;
    for (unsigned i = 0; i < used; ++i)
      count += units[i].count(Op(op));
    if (count > 0)
      add(nameOf(Op(op)), count);
  }
  add("partial", partial);
  if (numVectorDots > 0)
    length += snprintf(text + length, sizeof(text) - size_t(length), "\nvector instructions: vpdpbssd %llu",
                       static_cast<unsigned long long>(numVectorDots));
  fprintf(stderr, "%s\n", text); // in one piece: other processes write too
}

void tilehandler::install() {
  // SIGSEGV may be raised by the handler of SIGILL.
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  action.sa_sigaction = onUndefined;
  sigaction(SIGILL, &action, nullptr);
  action.sa_sigaction = onFault;
  sigaction(SIGSEGV, &action, nullptr);
  atexit(report);
}
