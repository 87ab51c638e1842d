/*===- LibcStub.c - The names of libc.so.6 that an artifact may need ------------===
 *
 * Linked at build time into an empty libc.so.6, against which the compiler links artifacts on machines without the C
 * library's development files. What is missing here is an error of that link, so nothing else is ever needed.
 *
 * The names have no versions: an artifact then loads with any glibc, which gives it the version of its first release
 * (GLIBC_2.2.5) where it still has one, else today's. So nothing may stand here whose first version means something
 * else than today's; pthread_cond_* is such a case.
 *
 *===----------------------------------------------------------------------===*/
#define FUNCTION(name) __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n");

__asm__(".bss\n.globl stderr\n.type stderr, @object\n.size stderr, 8\nstderr:\n.zero 8\n");
__asm__(".text");

/* Code generation turns copies and fills into these. */
FUNCTION(memcpy)
FUNCTION(memmove)
FUNCTION(memset)
FUNCTION(memcmp)
FUNCTION(bcmp)

/* The runtime: memory, text, threads, other libraries of the process. */
FUNCTION(malloc)
FUNCTION(calloc)
FUNCTION(realloc)
FUNCTION(free)
FUNCTION(aligned_alloc)
FUNCTION(posix_memalign)
FUNCTION(abort)
FUNCTION(memchr)
FUNCTION(strlen)
FUNCTION(strcmp)
FUNCTION(strncmp)
FUNCTION(strchr)
FUNCTION(strrchr)
FUNCTION(strstr)
FUNCTION(fprintf)
FUNCTION(fputs)
FUNCTION(fwrite)
FUNCTION(snprintf)
FUNCTION(vsnprintf)
FUNCTION(strtol)
FUNCTION(strtoul)
FUNCTION(__errno_location)
FUNCTION(__tls_get_addr)
FUNCTION(__cxa_atexit)
FUNCTION(__cxa_finalize)
FUNCTION(__cxa_thread_atexit_impl)
FUNCTION(__register_atfork)
FUNCTION(clock_gettime)
FUNCTION(nanosleep)
FUNCTION(open)
FUNCTION(read)
FUNCTION(close)
FUNCTION(getpid)
FUNCTION(syscall)
FUNCTION(sysconf)
FUNCTION(sched_yield)
FUNCTION(sched_getaffinity)
FUNCTION(__sched_cpucount)
FUNCTION(sigemptyset)
FUNCTION(sigfillset)
FUNCTION(sigdelset)
FUNCTION(pthread_create)
FUNCTION(pthread_join)
FUNCTION(pthread_detach)
FUNCTION(pthread_self)
FUNCTION(pthread_once)
FUNCTION(pthread_sigmask)
FUNCTION(pthread_key_create)
FUNCTION(pthread_getspecific)
FUNCTION(pthread_setspecific)
FUNCTION(pthread_attr_init)
FUNCTION(pthread_attr_destroy)
FUNCTION(pthread_attr_setdetachstate)
FUNCTION(pthread_attr_setstacksize)
FUNCTION(pthread_mutex_lock)
FUNCTION(pthread_mutex_unlock)
FUNCTION(dlopen)
FUNCTION(dlclose)
FUNCTION(dlsym)
FUNCTION(dladdr)
FUNCTION(dlerror)
FUNCTION(dl_iterate_phdr)
