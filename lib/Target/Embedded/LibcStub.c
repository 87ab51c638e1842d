/*===- LibcStub.c - Stub of libc.so.6 -------------------------------------------===
 *
 * Linked at build time into a stub libc.so.6, against which the compiler links shared libraries on machines without the
 * development files of the C library. A symbol missing here fails that link; test/Architecture reports unused symbols.
 *
 * The symbols are unversioned, so a library loads with any glibc, which binds them to the base version (GLIBC_2.2.5, on
 * AArch64 GLIBC_2.17) if it exists, else to the default version. Symbols whose base version behaves differently, such
 * as pthread_cond_*, must not be listed.
 *
 *===----------------------------------------------------------------------===*/
#define FUNCTION(name) __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n");

__asm__(".bss\n.globl stderr\n.type stderr, @object\n.size stderr, 8\nstderr:\n.zero 8\n");
__asm__(".text");

/* Functions to which compilers lower copies, fills, comparisons and simple prints. */
FUNCTION(memcpy)
FUNCTION(memmove)
FUNCTION(memset)
FUNCTION(memcmp)
FUNCTION(bcmp)
FUNCTION(fputs)
FUNCTION(fwrite)

/* Functions that the runtime calls. */
FUNCTION(free)
FUNCTION(aligned_alloc)
FUNCTION(madvise)
FUNCTION(strlen)
FUNCTION(strchr)
FUNCTION(strcmp)
FUNCTION(strrchr)
FUNCTION(strstr)
FUNCTION(strtoul)
FUNCTION(fprintf)
FUNCTION(snprintf)
FUNCTION(vsnprintf)
#if defined(__aarch64__)
FUNCTION(getauxval)
FUNCTION(prctl)
#else
FUNCTION(__tls_get_addr)
#endif
FUNCTION(clock_gettime)
FUNCTION(open)
FUNCTION(read)
FUNCTION(close)
FUNCTION(getpid)
FUNCTION(syscall)
FUNCTION(sysconf)
FUNCTION(sched_getaffinity)
FUNCTION(sched_getcpu)
FUNCTION(sched_setaffinity)
FUNCTION(__sched_cpucount)
FUNCTION(sigfillset)
FUNCTION(sigdelset)
FUNCTION(pthread_create)
FUNCTION(pthread_detach)
FUNCTION(pthread_mutex_lock)
FUNCTION(pthread_mutex_unlock)
FUNCTION(pthread_once)
FUNCTION(pthread_sigmask)
FUNCTION(pthread_key_create)
FUNCTION(pthread_setspecific)
FUNCTION(dlopen)
FUNCTION(dlclose)
FUNCTION(dlerror)
FUNCTION(dlsym)
FUNCTION(dladdr)
FUNCTION(dl_iterate_phdr)
