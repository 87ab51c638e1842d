/*===- LibcStub.c - The names of libc.so.6 that an artifact may need ------------===
 *
 * Linked at build time into an empty libc.so.6, against which the compiler links artifacts on machines without the C
 * library's development files. What is missing here is an error of that link, so nothing else is ever needed; what the
 * runtime no longer uses is found by test/Architecture.
 *
 * The names have no versions: an artifact then loads with any glibc, which gives it the version of its first release
 * (GLIBC_2.2.5) where it still has one, else today's. So nothing may stand here whose first version means something
 * else than today's; pthread_cond_* is such a case.
 *
 *===----------------------------------------------------------------------===*/
#define FUNCTION(name) __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n");

__asm__(".bss\n.globl stderr\n.type stderr, @object\n.size stderr, 8\nstderr:\n.zero 8\n");
__asm__(".text");

/* What compilers make of copies, fills, comparisons and simple prints, whether the runtime has such calls or not. */
FUNCTION(memcpy)
FUNCTION(memmove)
FUNCTION(memset)
FUNCTION(memcmp)
FUNCTION(bcmp)
FUNCTION(fputs)
FUNCTION(fwrite)

/* The runtime: memory, text, threads, other libraries of the process. */
FUNCTION(free)
FUNCTION(aligned_alloc)
FUNCTION(madvise)
FUNCTION(strlen)
FUNCTION(strchr)
FUNCTION(strrchr)
FUNCTION(strtoul)
FUNCTION(fprintf)
FUNCTION(snprintf)
FUNCTION(vsnprintf)
FUNCTION(__tls_get_addr)
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
