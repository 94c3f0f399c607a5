#include "process/linux/linux_process.h"
#include "process/linux/proc_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

/* Two ways to read, measured on Linux 6: pread on a kept-open /proc/PID/mem costs less per call up to about 2 KiB (it
 * copies twice), but takes one piece; process_vm_readv takes many. The descriptor also stays with the process it was
 * opened for, while a process id can be reused. */
enum { PREAD_MAX_BYTES = 2 * 1024, PIECES_PER_CALL = 1024 /* IOV_MAX */ };

static bool ended(const struct live_memory *live) {
    char text[512];
    ssize_t size = pread(live->stat_fd, text, sizeof text - 1, 0);
    if (size <= 0)
        return true;
    text[size] = '\0';
    struct proc_stat stat = {0};
    return proc_parse_stat(text, &stat) != STATUS_OK || proc_stat_ended(&stat);
}

/* After an exec the descriptor still belongs to the program before, which is gone: reads give 0 bytes. */
static bool reopen_after_exec(struct live_memory *live) {
    int fd = openat(live->dir_fd, "mem", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    (void)close(live->mem_fd);
    live->mem_fd = fd;
    live->exec_count++;
    return true;
}

static enum status read_descriptor(struct live_memory *live, remote_addr address, void *buffer, size_t size_bytes) {
    if (live->mem_fd < 0)
        return STATUS_PERMISSION;
    if (address > INT64_MAX)
        return STATUS_UNREADABLE;
    ssize_t size = pread(live->mem_fd, buffer, size_bytes, (off_t)address);
    if (size == 0 && !ended(live) && reopen_after_exec(live))
        size = pread(live->mem_fd, buffer, size_bytes, (off_t)address);
    if (size == (ssize_t)size_bytes)
        return STATUS_OK;
    if (size < 0 && errno != EIO && errno != EFAULT)
        return status_from_errno(errno);
    /* Less than asked: the rest is not mapped, or the process ended. */
    return ended(live) ? STATUS_NO_PROCESS : STATUS_UNREADABLE;
}

/* *refused says that the call itself is not to be had, so that the other way should be tried. So it should where there
 * is no process: a first thread that has ended before the others has no memory any more, which they and the descriptor
 * do.
 */
static enum status read_vector(struct live_memory *live, const struct iovec *local, size_t local_count,
                               const struct iovec *remote, size_t count, size_t *size_bytes, bool *refused) {
    *refused = false;
    ssize_t size = process_vm_readv(live->pid, local, local_count, remote, count, 0);
    if (size == (ssize_t)*size_bytes)
        return STATUS_OK;
    *size_bytes = size > 0 ? (size_t)size : 0;
    if (size >= 0 || errno == EFAULT || errno == EINVAL)
        return STATUS_UNREADABLE;
    if (errno == ESRCH)
        return STATUS_NO_PROCESS;
    *refused = errno == EPERM || errno == ENOSYS;
    return *refused ? STATUS_PERMISSION : STATUS_FAILED;
}

static enum status read_one(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct live_memory *live = (struct live_memory *)memory;
    if (size_bytes == 0)
        return STATUS_OK;
    if (live->no_vector || (live->mem_fd >= 0 && size_bytes <= PREAD_MAX_BYTES))
        return read_descriptor(live, address, buffer, size_bytes);
    struct iovec local = {.iov_base = buffer, .iov_len = size_bytes};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = size_bytes};
    bool refused = false;
    size_t read_bytes = size_bytes;
    enum status status = read_vector(live, &local, 1, &remote, 1, &read_bytes, &refused);
    if ((!refused && status != STATUS_NO_PROCESS) || live->mem_fd < 0)
        return status;
    live->no_vector |= refused;
    return read_descriptor(live, address, buffer, size_bytes);
}

/* Pieces that land one behind the other land in one. */
static size_t add_local(struct iovec *local, size_t count, const struct memory_piece *piece) {
    if (count > 0 && (uint8_t *)local[count - 1].iov_base + local[count - 1].iov_len == piece->buffer) {
        local[count - 1].iov_len += piece->size_bytes;
        return count;
    }
    local[count] = (struct iovec){.iov_base = piece->buffer, .iov_len = piece->size_bytes};
    return count + 1;
}

static enum status read_some_pieces(struct live_memory *live, const struct memory_piece *pieces, size_t count,
                                    size_t *done) {
    struct iovec local[PIECES_PER_CALL], remote[PIECES_PER_CALL];
    size_t total_bytes = 0, local_count = 0;
    for (size_t i = 0; i < count; i++) {
        local_count = add_local(local, local_count, &pieces[i]);
        remote[i] = (struct iovec){.iov_base = (void *)(uintptr_t)pieces[i].address, .iov_len = pieces[i].size_bytes};
        total_bytes += pieces[i].size_bytes;
    }
    bool refused = false;
    enum status status = read_vector(live, local, local_count, remote, count, &total_bytes, &refused);
    if (refused && live->mem_fd >= 0)
        live->no_vector = true;
    for (; *done < count && pieces[*done].size_bytes <= total_bytes; ++*done)
        total_bytes -= pieces[*done].size_bytes;
    return status;
}

static enum status read_pieces(struct memory *memory, const struct memory_piece *pieces, size_t count, size_t *done) {
    struct live_memory *live = (struct live_memory *)memory;
    *done = 0;
    while (*done < count && !live->no_vector) {
        size_t now = count - *done < PIECES_PER_CALL ? count - *done : PIECES_PER_CALL, read = 0;
        enum status status = read_some_pieces(live, pieces + *done, now, &read);
        *done += read;
        if (status == STATUS_NO_PROCESS && live->mem_fd >= 0)
            break;
        if (!live->no_vector)
            TRY(status);
    }
    for (; *done < count; ++*done)
        TRY(read_one(memory, pieces[*done].address, pieces[*done].buffer, pieces[*done].size_bytes));
    return STATUS_OK;
}

/* The permission is checked before the address: reading address 0 says which of the two is missing. */
static bool vector_allowed(pid_t pid) {
    char byte;
    struct iovec local = {.iov_base = &byte, .iov_len = 1};
    struct iovec remote = {.iov_base = NULL, .iov_len = 1};
    return process_vm_readv(pid, &local, 1, &remote, 1, 0) >= 0 || errno == EFAULT;
}

enum status live_memory_open(struct live_memory *live, const struct process *process) {
    *live = (struct live_memory){
        .memory = {.read = read_one, .read_pieces = read_pieces},
        .pid = process->entry_tid,
        .dir_fd = process->dir_fd,
        .stat_fd = process->stat_fd,
    };
    live->mem_fd = openat(process->dir_fd, "mem", O_RDONLY | O_CLOEXEC);
    int error_number = errno;
    live->no_vector = !vector_allowed(live->pid);
    if (live->mem_fd >= 0 || !live->no_vector)
        return STATUS_OK;
    return status_from_errno(error_number);
}

void live_memory_close(struct live_memory *live) {
    if (live->mem_fd >= 0)
        (void)close(live->mem_fd);
    live->mem_fd = -1;
}
