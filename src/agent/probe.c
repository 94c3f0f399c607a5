#include "agent/probe.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KERNEL_SIGSET_BYTES = 8, INVALID_HOW = 0x7fff };

/* rt_sigprocmask reads the set that it is given before it looks at what is to be done with it, so that an invalid
 * `how` makes it a question: EFAULT when the eight bytes cannot be read, EINVAL when they can. */
static bool eight_bytes_readable(uint64_t address) {
    (void)syscall(SYS_rt_sigprocmask, INVALID_HOW, address, NULL, KERNEL_SIGSET_BYTES);
    return errno == EINVAL;
}

bool probe_readable(uint64_t address, size_t size_bytes) {
    int saved = errno;
    uint64_t last = address + size_bytes - 1;
    bool readable = size_bytes > 0 && last >= address;
    /* Eight bytes that begin at a multiple of eight lie in one page. */
    for (uint64_t at = address & ~(uint64_t)7; readable && at <= last;
         at = (at & ~(uint64_t)(PROBE_PAGE_BYTES - 1)) + PROBE_PAGE_BYTES)
        readable = eight_bytes_readable(at);
    errno = saved;
    return readable;
}

bool probe_copy(uint64_t address, void *to, size_t size_bytes) {
    int saved = errno;
    struct iovec local = {to, size_bytes};
    struct iovec remote = {(void *)(uintptr_t)address, size_bytes};
    ssize_t result = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    /* Containers may forbid the call itself. */
    bool forbidden = result < 0 && errno != EFAULT;
    errno = saved;
    if (!forbidden)
        return result == (ssize_t)size_bytes;
    if (!probe_readable(address, size_bytes))
        return false;
    memcpy(to, (const void *)(uintptr_t)address, size_bytes);
    return true;
}

bool probe_writable(uint64_t address, size_t size_bytes) {
    int saved = errno;
    struct iovec same = {(void *)(uintptr_t)address, size_bytes};
    ssize_t result = process_vm_writev(getpid(), &same, 1, &same, 1, 0);
    bool writable = result == (ssize_t)size_bytes || (result < 0 && errno != EFAULT);
    errno = saved;
    return writable;
}
