#include "process/linux/linux_process.h"

#include "base/array.h"
#include "process/linux/proc_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS_MAX = 1 << 18,
    STAT_TEXT_BYTES = 1024,
    SYSCALL_TEXT_BYTES = 256,
    STATUS_LIMIT_BYTES = 1 << 21,
};

/* struct futex_waitv (include/uapi/linux/futex.h): u64 val, u64 uaddr, u32 flags, u32 reserved */
enum { FUTEX_WAITV_UADDR = 8 };

/* All that is wanted of a thread's files, by a name relative to the task directory. */
static enum status read_task_text(int task_fd, const char *tid, const char *file, char *text, size_t capacity) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s/%s", tid, file);
    return proc_read_text(task_fd, name, text, capacity);
}

static pid_t read_own_tid(int task_fd, const char *tid, pid_t otherwise) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s/status", tid);
    struct buffer text;
    buffer_init(&text, STATUS_LIMIT_BYTES);
    pid_t own_tid = otherwise;
    size_t levels = 0;
    if (proc_read_whole(task_fd, name, &text) != STATUS_OK ||
        !proc_parse_last_pid(proc_status_field(buffer_text(&text), "NSpid"), &own_tid, &levels))
        own_tid = otherwise;
    buffer_release(&text);
    return own_tid;
}

static remote_addr read_futex_address(struct process *process, int task_fd, const char *tid) {
    char text[SYSCALL_TEXT_BYTES];
    if (read_task_text(task_fd, tid, "syscall", text, sizeof text) != STATUS_OK)
        return 0;
    bool is_vector = false;
    remote_addr address = proc_parse_futex(text, &is_vector);
    if (address != 0 && is_vector &&
        memory_read_u64(process_memory(process), address + FUTEX_WAITV_UADDR, &address) != STATUS_OK)
        return 0;
    return address;
}

/* STATUS_NO_PROCESS when the thread has ended. */
static enum status read_thread(struct process *process, int task_fd, const char *tid, bool with_futexes,
                               struct system_thread *thread) {
    char text[STAT_TEXT_BYTES];
    struct proc_stat stat = {0};
    TRY(read_task_text(task_fd, tid, "stat", text, sizeof text));
    TRY(proc_parse_stat(text, &stat));
    if (proc_state_ended(stat.state))
        return STATUS_NO_PROCESS;
    *thread = (struct system_thread){.tid = (pid_t)strtol(tid, NULL, 10)};
    memcpy(thread->comm, stat.comm, sizeof thread->comm);
    /* D, a wait for a disk or the like, uses no processor either. */
    thread->state = stat.state == 'R' ? THREAD_RUNNING : THREAD_IDLE;
    (void)process_state_before_pause(process, thread->tid, &thread->state);
    thread->own_tid = process->nested ? read_own_tid(task_fd, tid, thread->tid) : thread->tid;
    if (with_futexes && thread->state == THREAD_IDLE)
        thread->futex_address = read_futex_address(process, task_fd, tid);
    return STATUS_OK;
}

static enum status add_thread(struct system_threads *threads, size_t *capacity, const struct system_thread *thread) {
    if (threads->count == THREADS_MAX)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&threads->items, capacity, threads->count + 1, sizeof *thread));
    threads->items[threads->count++] = *thread;
    return STATUS_OK;
}

static enum status read_all(struct process *process, DIR *directory, bool with_futexes,
                            struct system_threads *threads) {
    size_t capacity = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || strlen(entry->d_name) > 10)
            continue;
        struct system_thread thread;
        enum status status = read_thread(process, dirfd(directory), entry->d_name, with_futexes, &thread);
        if (status == STATUS_NO_PROCESS)
            continue;
        TRY(status);
        TRY(add_thread(threads, &capacity, &thread));
    }
    return threads->count > 0 ? STATUS_OK : STATUS_NO_PROCESS;
}

enum status process_read_threads(struct process *process, bool with_futexes, struct system_threads *threads,
                                 struct error *error) {
    *threads = (struct system_threads){0};
    enum status status = STATUS_OK;
    int task_fd = openat(process->dir_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = task_fd >= 0 ? fdopendir(task_fd) : NULL;
    if (directory != NULL) {
        status = read_all(process, directory, with_futexes, threads);
        (void)closedir(directory);
    } else {
        status = status_from_errno(errno);
        if (task_fd >= 0)
            (void)close(task_fd);
    }
    if (status == STATUS_OK)
        return STATUS_OK;
    system_threads_release(threads);
    return error_set(error, status, "cannot list the threads of process %d: %s", (int)process->pid,
                     status_name(status));
}

void system_threads_release(struct system_threads *threads) {
    free(threads->items);
    *threads = (struct system_threads){0};
}
