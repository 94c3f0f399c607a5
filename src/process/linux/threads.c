#include "process/linux/linux_process.h"

#include "base/array.h"
#include "process/linux/proc_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS_MAX = 1 << 18,
    TASK_NAME_BYTES = 64,
    STAT_TEXT_BYTES = 1024,
    SYSCALL_TEXT_BYTES = 256,
    STATUS_LIMIT_BYTES = 1 << 21,
};

/* struct futex_waitv (include/uapi/linux/futex.h): u64 val, u64 uaddr, u32 flags, u32 reserved */
enum { FUTEX_WAITV_UADDR = 8 };

/* Where a thread's files are: in the process's directory. */
static void name_task_file(char name[TASK_NAME_BYTES], pid_t tid, const char *file) {
    (void)snprintf(name, TASK_NAME_BYTES, "task/%d/%s", (int)tid, file);
}

static enum status read_task_text(const struct process *process, pid_t tid, const char *file, char *text,
                                  size_t capacity) {
    char name[TASK_NAME_BYTES];
    name_task_file(name, tid, file);
    return proc_read_text(process->dir_fd, name, text, capacity);
}

static pid_t read_own_tid(const struct process *process, pid_t tid) {
    char name[TASK_NAME_BYTES];
    name_task_file(name, tid, "status");
    struct buffer text;
    buffer_init(&text, STATUS_LIMIT_BYTES);
    pid_t own_tid = tid;
    size_t levels = 0;
    if (proc_read_whole(process->dir_fd, name, &text) != STATUS_OK ||
        !proc_parse_last_pid(proc_status_field(buffer_text(&text), "NSpid"), &own_tid, &levels))
        own_tid = tid;
    buffer_release(&text);
    return own_tid;
}

static remote_addr read_futex_address(struct process *process, pid_t tid) {
    char text[SYSCALL_TEXT_BYTES];
    if (read_task_text(process, tid, "syscall", text, sizeof text) != STATUS_OK)
        return 0;
    bool is_vector = false;
    remote_addr address = proc_parse_futex(text, &is_vector);
    if (address != 0 && is_vector &&
        memory_read_u64(process_memory(process), address + FUTEX_WAITV_UADDR, &address) != STATUS_OK)
        return 0;
    return address;
}

/* STATUS_NO_PROCESS when the thread has ended. */
static enum status read_thread(struct process *process, pid_t tid, bool with_futexes, struct system_thread *thread) {
    char text[STAT_TEXT_BYTES];
    struct proc_stat stat = {0};
    TRY(read_task_text(process, tid, "stat", text, sizeof text));
    TRY(proc_parse_stat(text, &stat));
    if (proc_state_ended(stat.state))
        return STATUS_NO_PROCESS;
    *thread = (struct system_thread){.tid = tid};
    memcpy(thread->comm, stat.comm, sizeof thread->comm);
    /* D, a wait for a disk or the like, uses no processor either. */
    thread->state = stat.state == 'R' ? THREAD_RUNNING : THREAD_IDLE;
    (void)process_state_before_pause(process, thread->tid, &thread->state);
    thread->own_tid = process->nested ? read_own_tid(process, tid) : tid;
    if (with_futexes && thread->state == THREAD_IDLE)
        thread->futex_address = read_futex_address(process, tid);
    return STATUS_OK;
}

static enum status add_thread(struct system_threads *threads, size_t *capacity, const struct system_thread *thread) {
    if (threads->count == THREADS_MAX)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&threads->items, capacity, threads->count + 1, sizeof *thread));
    threads->items[threads->count++] = *thread;
    return STATUS_OK;
}

/* How much is to be read of each. */
enum thread_detail { DETAIL_ID, DETAIL_STATE, DETAIL_FUTEX };

static enum status take_entry(struct process *process, pid_t tid, enum thread_detail detail,
                              struct system_threads *threads, size_t *capacity) {
    struct system_thread thread = {.tid = tid, .own_tid = process->nested ? 0 : tid};
    enum status status = detail == DETAIL_ID ? STATUS_OK : read_thread(process, tid, detail == DETAIL_FUTEX, &thread);
    if (status == STATUS_NO_PROCESS)
        return STATUS_OK;
    TRY(status);
    return add_thread(threads, capacity, &thread);
}

static enum status read_all(struct process *process, DIR *directory, enum thread_detail detail,
                            struct system_threads *threads) {
    size_t capacity = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || strlen(entry->d_name) > 10)
            continue;
        TRY(take_entry(process, (pid_t)strtol(entry->d_name, NULL, 10), detail, threads, &capacity));
    }
    return threads->count > 0 ? STATUS_OK : STATUS_NO_PROCESS;
}

static enum status list_threads(struct process *process, enum thread_detail detail, struct system_threads *threads,
                                struct error *error) {
    *threads = (struct system_threads){0};
    enum status status = STATUS_OK;
    int task_fd = openat(process->dir_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = task_fd >= 0 ? fdopendir(task_fd) : NULL;
    if (directory != NULL) {
        status = read_all(process, directory, detail, threads);
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

enum status process_read_threads(struct process *process, bool with_futexes, struct system_threads *threads,
                                 struct error *error) {
    return list_threads(process, with_futexes ? DETAIL_FUTEX : DETAIL_STATE, threads, error);
}

enum status process_list_threads(struct process *process, struct system_threads *threads, struct error *error) {
    return list_threads(process, DETAIL_ID, threads, error);
}

enum status process_read_thread(struct process *process, pid_t tid, struct system_thread *thread) {
    return read_thread(process, tid, false, thread);
}

enum status process_read_own_thread(struct process *process, uint64_t own_tid, struct system_thread *thread) {
    if (process->nested || own_tid == 0 || own_tid > INT_MAX)
        return STATUS_NOT_FOUND;
    return read_thread(process, (pid_t)own_tid, false, thread);
}

void system_threads_release(struct system_threads *threads) {
    free(threads->items);
    *threads = (struct system_threads){0};
}
