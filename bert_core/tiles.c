/* Whether there are tiles to work on. */

int tiles_interface(void) { return 4; } /* INTERFACE of `tiles.py` */

#if defined(__x86_64__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

#include "tiles.h"

int tiles_work(void) {
    unsigned a = 7, b, c = 0, d;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq")) return 0;
    if (!__builtin_cpu_supports("avx512bf16")) return 0;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    if (!(d >> 22 & 1) || !(d >> 24 & 1)) return 0;  /* amx-bf16, amx-tile */
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0; /* ARCH_REQ_XCOMP_PERM for what is in the tiles */
}

#else

int tiles_work(void) { return 0; }

#endif
