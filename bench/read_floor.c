/* read_floor PID: what a bare read costs of the bytes that a look at the process's first thread needs, while it runs:
 *
 *   bytes pread_ns process_vm_readv_ns
 *
 * The bytes are the chunks of its data stack, the newest up to its top (3.11+), where it was deepest in some looks: one
 * piece of process_vm_readv each, or one pread each. CPU time of this process, median of rounds, the two calls by
 * turns. */
#include "base/memory_pages.h"
#include "cpython/interp.h"
#include "process/process.h"
#include "sampler/attach_runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 101, READS = 500, MAX_BYTES = 1 << 20, SLACK_BYTES = 384, MAX_CHUNKS = 64, LOOKS = 50 };

struct chunks {
    struct iovec local[MAX_CHUNKS];
    struct iovec remote[MAX_CHUNKS];
    size_t count;
    size_t size_bytes;
};

static uint64_t cpu_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static enum status add_chunk(struct chunks *chunks, remote_addr address, size_t size_bytes) {
    if (chunks->count == MAX_CHUNKS || size_bytes > MAX_BYTES)
        return STATUS_LIMIT;
    chunks->remote[chunks->count].iov_base = (void *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
    chunks->remote[chunks->count++].iov_len = size_bytes;
    chunks->size_bytes += size_bytes;
    return STATUS_OK;
}

/* Of an older chunk, what was in use when the next was pushed. */
static enum status add_older(struct runtime *runtime, struct chunks *chunks, remote_addr *address) {
    const struct layout_stack_chunk *fields = &runtime->layout.stack_chunk;
    uint64_t top = 0;
    TRY(memory_read_u64(runtime->live, *address + fields->top, &top));
    TRY(add_chunk(chunks, *address, fields->data + (size_t)top * sizeof(uint64_t)));
    return memory_read_u64(runtime->live, *address + fields->previous, address);
}

static enum status look(struct runtime *runtime, remote_addr state, struct chunks *chunks) {
    struct thread_state thread;
    TRY(thread_state_read(runtime, state, &thread));
    remote_addr address = thread.datastack_chunk;
    TRY(add_chunk(chunks, address, (size_t)(thread.datastack_top - address) + SLACK_BYTES));
    TRY(memory_read_u64(runtime->live, address + runtime->layout.stack_chunk.previous, &address));
    while (address != 0)
        TRY(add_older(runtime, chunks, &address));
    return STATUS_OK;
}

static enum status find_chunks(struct process *process, struct chunks *deepest) {
    struct error error = {0};
    struct memory_pages pages;
    struct runtime runtime;
    struct interp interp;
    remote_addr address = 0;
    memory_pages_init(&pages, process_memory(process));
    TRY(attach_runtime(process, &pages.memory, &runtime, &error));
    TRY(interp_first(&runtime, &address));
    TRY(interp_read(&runtime, address, &interp));
    for (int i = 0; i < LOOKS; i++) {
        struct chunks chunks = {.count = 0};
        /* It runs: a look can meet it between two chunks. */
        if (look(&runtime, interp.threads_head, &chunks) == STATUS_OK && chunks.size_bytes > deepest->size_bytes)
            *deepest = chunks;
    }
    memory_pages_release(&pages);
    return deepest->count > 0 ? STATUS_OK : STATUS_NOT_FOUND;
}

/* Room for the copies. */
static enum status reserve(struct chunks *chunks) {
    for (size_t i = 0; i < chunks->count; i++) {
        chunks->local[i].iov_len = chunks->remote[i].iov_len;
        chunks->local[i].iov_base = malloc(chunks->local[i].iov_len);
        if (chunks->local[i].iov_base == NULL)
            return STATUS_FAILED;
    }
    return STATUS_OK;
}

/* A chunk that has been popped may not be there. */
static void read_pieces(int fd, const struct chunks *chunks) {
    for (size_t i = 0; i < chunks->count; i++)
        if (pread(fd, chunks->local[i].iov_base, chunks->local[i].iov_len,
                  (off_t)(uintptr_t)chunks->remote[i].iov_base) < 0 &&
            errno != EIO)
            exit(1);
}

static double read_round(int fd, pid_t pid, const struct chunks *chunks) {
    uint64_t start_ns = cpu_ns();
    for (int i = 0; i < READS; i++) {
        if (fd >= 0)
            read_pieces(fd, chunks);
        else if (process_vm_readv(pid, chunks->local, chunks->count, chunks->remote, chunks->count, 0) < 0 &&
                 errno != EFAULT)
            exit(1);
    }
    return (double)(cpu_ns() - start_ns) / READS;
}

int main(int argc, char **argv) {
    struct process *process = NULL;
    struct error error = {0};
    struct chunks chunks = {.count = 0};
    char path[64];
    if (argc != 2 || process_open((pid_t)strtol(argv[1], NULL, 10), &process, &error) != STATUS_OK)
        return 1;
    (void)snprintf(path, sizeof path, "/proc/%d/mem", (int)process_pid(process));
    bool ready = find_chunks(process, &chunks) == STATUS_OK && reserve(&chunks) == STATUS_OK;
    int fd = ready ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    double pread_ns[ROUNDS], vector_ns[ROUNDS];
    for (int i = 0; i < ROUNDS && fd >= 0; i++) {
        pread_ns[i] = read_round(fd, process_pid(process), &chunks);
        vector_ns[i] = read_round(-1, process_pid(process), &chunks);
    }
    if (fd >= 0) {
        qsort(pread_ns, ROUNDS, sizeof pread_ns[0], compare);
        qsort(vector_ns, ROUNDS, sizeof vector_ns[0], compare);
        printf("%zu %.1f %.1f\n", chunks.size_bytes, pread_ns[ROUNDS / 2], vector_ns[ROUNDS / 2]);
    }
    for (size_t i = 0; i < chunks.count; i++)
        free(chunks.local[i].iov_base);
    process_free(process);
    return fd >= 0 && close(fd) == 0 ? 0 : 1;
}
