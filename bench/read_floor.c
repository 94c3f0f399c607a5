/* read_floor PID: what a bare read costs of the bytes that a look at the process's first thread needs, while it runs:
 *
 *   bytes pread_ns process_vm_readv_ns
 *
 * The bytes are the newest chunk of its data stack, up to its top (3.11+). CPU time of this process, median of rounds,
 * the two calls by turns. */
#include "base/memory_pages.h"
#include "cpython/interp.h"
#include "process/process.h"
#include "sampler/attach_runtime.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 101, READS = 500, MAX_BYTES = 1 << 20, SLACK_BYTES = 384 };

static uint64_t cpu_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static enum status find_chunk(struct process *process, remote_addr *address, size_t *size_bytes) {
    struct error error = {0};
    struct memory_pages pages;
    struct runtime runtime;
    struct interp interp;
    struct thread_state thread;
    remote_addr first = 0;
    memory_pages_init(&pages, process_memory(process));
    TRY(attach_runtime(process, &pages.memory, &runtime, &error));
    TRY(interp_first(&runtime, &first));
    TRY(interp_read(&runtime, first, &interp));
    TRY(thread_state_read(&runtime, interp.threads_head, &thread));
    *address = thread.datastack_chunk;
    *size_bytes = (size_t)(thread.datastack_top - thread.datastack_chunk) + SLACK_BYTES;
    memory_pages_release(&pages);
    return *address == 0 || *size_bytes > MAX_BYTES ? STATUS_NOT_FOUND : STATUS_OK;
}

static double read_round(int fd, pid_t pid, remote_addr address, void *buffer, size_t size_bytes) {
    struct iovec local = {buffer, size_bytes}, remote = {(void *)(uintptr_t)address, size_bytes};
    uint64_t start_ns = cpu_ns();
    for (int i = 0; i < READS; i++) {
        ssize_t got =
            fd >= 0 ? pread(fd, buffer, size_bytes, (off_t)address) : process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (got < 0)
            exit(1);
    }
    return (double)(cpu_ns() - start_ns) / READS;
}

int main(int argc, char **argv) {
    struct process *process = NULL;
    struct error error = {0};
    remote_addr address = 0;
    size_t size_bytes = 0;
    char path[64];
    if (argc != 2 || process_open((pid_t)strtol(argv[1], NULL, 10), &process, &error) != STATUS_OK ||
        find_chunk(process, &address, &size_bytes) != STATUS_OK)
        return 1;
    (void)snprintf(path, sizeof path, "/proc/%d/mem", (int)process_pid(process));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *buffer = malloc(size_bytes);
    double pread_ns[ROUNDS], vector_ns[ROUNDS];
    bool ready = fd >= 0 && buffer != NULL;
    for (int i = 0; i < ROUNDS && ready; i++) {
        pread_ns[i] = read_round(fd, process_pid(process), address, buffer, size_bytes);
        vector_ns[i] = read_round(-1, process_pid(process), address, buffer, size_bytes);
    }
    if (ready) {
        qsort(pread_ns, ROUNDS, sizeof pread_ns[0], compare);
        qsort(vector_ns, ROUNDS, sizeof vector_ns[0], compare);
        printf("%zu %.1f %.1f\n", size_bytes, pread_ns[ROUNDS / 2], vector_ns[ROUNDS / 2]);
    }
    free(buffer);
    (void)close(fd);
    process_free(process);
    return ready ? 0 : 1;
}
