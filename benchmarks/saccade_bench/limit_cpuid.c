// Hides CPU features from a process, to measure all contenders on the instructions of an older processor.
//
// Preloaded (LD_PRELOAD), it makes CPUID fault (arch_prctl(ARCH_CPUID_SET), Linux on processors with CPUID faulting)
// and executes the instruction in a signal handler without the bits of SACCADE_HIDDEN_CPUID: comma-separated
// LEAF.SUBLEAF.REGISTER.MASK, numbers in hexadecimal, registers a to d. Threads inherit the setting. Code that reads
// other sources, such as /proc/cpuinfo, is not affected. A handler of SIGSEGV that the process installs, as GCC does to
// report internal errors, gets the other faults only. Exit code 77: CPUID cannot be intercepted here.

#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_CPUID_SET = 0x1012, MAX_HIDDEN = 32 };

struct Hidden {
  unsigned leaf, subleaf, mask;
  char reg;
};

static struct Hidden hidden[MAX_HIDDEN];
static int numHidden;
static struct sigaction other; // what the process has set for SIGSEGV
static int isLimited;

/// sigaction of the C library.
static int setAction(int number, const struct sigaction *action, struct sigaction *before) {
  static int (*function)(int, const struct sigaction *, struct sigaction *);
  if (!function)
    function = dlsym(RTLD_NEXT, "sigaction");
  return function(number, action, before);
}

int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
  if (number != SIGSEGV || !isLimited)
    return setAction(number, action, before);
  struct sigaction last = other;
  if (action)
    other = *action;
  if (before)
    *before = last;
  return 0;
}

void (*signal(int number, void (*handler)(int)))(int) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
  sigemptyset(&action.sa_mask);
  return sigaction(number, &action, &before) ? SIG_ERR : before.sa_handler;
}

/// Handles a fault as without the limit.
static void forward(int number, siginfo_t *info, void *context) {
  if (other.sa_flags & SA_SIGINFO)
    other.sa_sigaction(number, info, context);
  else if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN)
    other.sa_handler(number);
  else
    setAction(number, &other, 0); // the instruction faults again
}

static void emulate(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *code = (const unsigned char *)registers[REG_RIP];
  // CPUID faults with a general protection fault, which has no address.
  if (info->si_code != SI_KERNEL || code[0] != 0x0f || code[1] != 0xa2)
    return forward(number, info, context);
  unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX], value[4];
  syscall(SYS_arch_prctl, ARCH_CPUID_SET, 1L);
  __cpuid_count(leaf, subleaf, value[0], value[1], value[2], value[3]);
  syscall(SYS_arch_prctl, ARCH_CPUID_SET, 0L);
  for (int i = 0; i < numHidden; ++i)
    if (hidden[i].leaf == leaf && hidden[i].subleaf == subleaf)
      value[hidden[i].reg - 'a'] &= ~hidden[i].mask;
  registers[REG_RAX] = value[0];
  registers[REG_RBX] = value[1];
  registers[REG_RCX] = value[2];
  registers[REG_RDX] = value[3];
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void limit(void) {
  const char *text = getenv("SACCADE_HIDDEN_CPUID");
  for (int length; text && numHidden < MAX_HIDDEN; text += length + (text[length] == ',')) {
    struct Hidden *one = &hidden[numHidden];
    if (sscanf(text, "%x.%x.%c.%x%n", &one->leaf, &one->subleaf, &one->reg, &one->mask, &length) != 4)
      break;
    ++numHidden;
  }
  struct sigaction action = {.sa_sigaction = emulate, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigemptyset(&action.sa_mask);
  if (numHidden == 0 || setAction(SIGSEGV, &action, &other) || syscall(SYS_arch_prctl, ARCH_CPUID_SET, 0L)) {
    fprintf(stderr, "limit_cpuid: CPUID cannot be intercepted on this machine\n");
    _exit(77);
  }
  isLimited = 1;
}
