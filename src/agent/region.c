#include "agent/region.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum {
    PAGE_BYTES = 4096, /* or a divisor of what it is */
    MAX_FILES = 1 << 16,
    PATH_BYTES = 4096,
};

/* An extending ftruncate beyond RLIMIT_FSIZE does not just fail, it sends SIGXFSZ. */
static bool file_may_be_as_large(uint64_t size_bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && (uint64_t)limit.rlim_cur >= size_bytes;
}

/* Where the region is, with those of other processes. */
static const char *shared_folder;

/* The program wants shared memory, too, and in a container there is little of it (Docker: 64 MiB): half of it is left
 * to others, or this much. */
static const uint64_t PLENTY_BYTES = 256 << 20;

static bool leaves_enough(size_t more_bytes) {
    struct statfs info;
    if (shared_folder == NULL || statfs(shared_folder, &info) != 0 || info.f_blocks == 0)
        return true;
    uint64_t free_bytes = (uint64_t)info.f_bavail * (uint64_t)info.f_bsize,
             half_bytes = (uint64_t)info.f_blocks * (uint64_t)info.f_bsize / 2;
    uint64_t left_bytes = free_bytes > more_bytes ? free_bytes - more_bytes : 0;
    return left_bytes >= (half_bytes < PLENTY_BYTES ? half_bytes : PLENTY_BYTES);
}

/* A system call that writes into a page, here the signal mask, says that there is no memory for it; writing there
 * oneself is SIGBUS. */
static enum status populate(uint8_t *bytes, size_t size_bytes) {
    if (madvise(bytes, size_bytes, MADV_POPULATE_WRITE) == 0)
        return STATUS_OK;
    for (size_t at = 0; at < size_bytes; at += PAGE_BYTES) {
        if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, bytes + at, sizeof(uint64_t)) != 0)
            return STATUS_FAILED;
        memset(bytes + at, 0, sizeof(uint64_t));
    }
    return STATUS_OK;
}

static enum status allocate_pages(uint8_t *bytes, size_t size_bytes) {
    if (!leaves_enough(size_bytes)) {
        errno = ENOSPC;
        return STATUS_FAILED;
    }
    if (populate(bytes, size_bytes) == STATUS_OK)
        return STATUS_OK;
    int error = errno;
    (void)madvise(bytes, size_bytes, MADV_REMOVE);
    errno = error;
    return STATUS_FAILED;
}

/* The file with the lowest number that is not taken; -1 when there is none. */
static int make_file(const char *folder, char path[PATH_BYTES]) {
    for (int number = 0; number < MAX_FILES; number++) {
        int length = snprintf(path, PATH_BYTES, "%s/%d-%d.region", folder, (int)getpid(), number);
        if (length < 0 || length >= PATH_BYTES)
            return -1;
        int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file >= 0 || errno != EEXIST)
            return file;
    }
    return -1;
}

static enum status map_file(int file, uint32_t ring_bytes, struct wire_region **region) {
    uint64_t size_bytes = wire_large_ring_offset(WIRE_SLOTS, ring_bytes);
    size_t first_bytes = (size_t)wire_large_ring_offset(1, ring_bytes);
    if (!file_may_be_as_large(size_bytes)) {
        errno = EFBIG;
        return STATUS_FAILED;
    }
    if (ftruncate(file, (off_t)size_bytes) != 0)
        return STATUS_FAILED;
    uint8_t *mapped = mmap(NULL, first_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        return STATUS_FAILED;
    if (madvise(mapped + WIRE_RINGS_OFFSET, first_bytes - WIRE_RINGS_OFFSET, MADV_DONTFORK) != 0 ||
        allocate_pages(mapped, first_bytes) != STATUS_OK) {
        int error = errno;
        munmap(mapped, first_bytes);
        errno = error;
        return STATUS_FAILED;
    }
    *region = (struct wire_region *)(void *)mapped;
    (*region)->ring_bytes = ring_bytes;
    return STATUS_OK;
}

/* write says that there is no room; a mapping would not. */
static void write_header(int file, const char *path, const char *reason) {
    struct wire_region header = {.magic = WIRE_MAGIC, .version = WIRE_VERSION, .state = WIRE_OFF};
    header.pid = getpid();
    header.parent_pid = getppid();
    snprintf(header.reason, sizeof header.reason, "%s", reason);
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < sizeof header ||
        write(file, &header, sizeof header) != (ssize_t)sizeof header)
        unlink(path);
}

static const char *describe_error(int error) {
    switch (error) {
    case EFBIG:
        return "the limit on the size of files (ulimit -f) is too low";
    case ENOSPC:
    case EFAULT: /* madvise and others, of a page that cannot be had */
    case ENOMEM:
        return "too little memory is left to share (is /dev/shm half full?)";
    default:
        return "memory cannot be shared";
    }
}

enum status region_make(const char *folder, uint32_t ring_bytes, struct wire_region **region) {
    char path[PATH_BYTES];
    int file = make_file(folder, path);
    if (file < 0)
        return STATUS_FAILED;
    shared_folder = folder;
    enum status status = map_file(file, ring_bytes, region);
    const char *reason = describe_error(errno);
    if (status != STATUS_OK && ftruncate(file, 0) == 0)
        write_header(file, path, reason);
    close(file);
    return status;
}

void region_forget(struct wire_region *region) {
    munmap(region, WIRE_RINGS_OFFSET);
}

void region_leave_reason(const char *folder, const char *reason) {
    char path[PATH_BYTES];
    int file = make_file(folder, path);
    if (file < 0)
        return;
    write_header(file, path, reason);
    close(file);
}

/* mremap with an old size of 0 is a second mapping of what is mapped shared, and from there on in the file. */
static uint8_t *map_above(uint8_t *below, uint32_t distance, size_t ring_bytes) {
    size_t skipped = (size_t)distance * ring_bytes;
    uint8_t *mapped = mremap(below, 0, skipped + ring_bytes, MREMAP_MAYMOVE);
    if (mapped == MAP_FAILED)
        return NULL;
    munmap(mapped, skipped);
    return mapped + skipped;
}

enum status region_map_ring(uint8_t *below, uint32_t distance, uint32_t told_bytes, uint8_t **bytes) {
    size_t ring_bytes = wire_ring_bytes(told_bytes);
    if (*bytes == NULL)
        *bytes = map_above(below, distance, ring_bytes);
    return *bytes == NULL ? STATUS_FAILED : allocate_pages(*bytes, ring_bytes);
}
