#include "process/thread_watch.h"

#include "base/clock.h"
#include "process/linux/linux_process.h"
#include "process/linux/proc_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    TEXT_BYTES = 1024,
    /* Threads are followed without, as well as can be; lists, captures and events are not. */
    SPARE_DESCRIPTORS = 64,
};

struct thread_watch {
    int schedstat_fd;
    int stat_fd;
    int syscall_fd; /* -1 where it may not be read */
};

/* -1 with EMFILE when it is one of the last that this process may have. */
static int leave_spare(int fd) {
    struct rlimit limit;
    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || (rlim_t)fd + SPARE_DESCRIPTORS < limit.rlim_cur)
        return fd;
    (void)close(fd);
    errno = EMFILE;
    return -1;
}

static int open_file(const struct process *process, pid_t tid, const char *file) {
    char name[64];
    (void)snprintf(name, sizeof name, "task/%d/%s", (int)tid, file);
    return leave_spare(openat(process->dir_fd, name, O_RDONLY | O_CLOEXEC));
}

static void close_file(int fd) {
    if (fd >= 0)
        (void)close(fd);
}

void thread_watch_free(struct thread_watch *watch) {
    if (watch == NULL)
        return;
    close_file(watch->schedstat_fd);
    close_file(watch->stat_fd);
    close_file(watch->syscall_fd);
    free(watch);
}

/* The others are done without where the kernel does not have them, not for want of descriptors: a watch is whole, or it
 * is to be opened again when there are some. */
static enum status open_files(const struct process *process, pid_t tid, struct thread_watch *watch) {
    const char *const names[] = {"stat", "schedstat", "syscall"};
    int *const fds[] = {&watch->stat_fd, &watch->schedstat_fd, &watch->syscall_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        *fds[i] = open_file(process, tid, names[i]);
        enum status status = *fds[i] < 0 ? status_from_errno(errno) : STATUS_OK;
        if (status == STATUS_NO_FILES || (i == 0 && status != STATUS_OK))
            return status;
    }
    return STATUS_OK;
}

enum status thread_watch_open(struct process *process, pid_t tid, struct thread_watch **result) {
    struct thread_watch *watch = malloc(sizeof *watch);
    if (watch == NULL)
        return STATUS_FAILED;
    *watch = (struct thread_watch){.schedstat_fd = -1, .stat_fd = -1, .syscall_fd = -1};
    enum status status = open_files(process, tid, watch);
    if (status != STATUS_OK) {
        thread_watch_free(watch);
        return status;
    }
    *result = watch;
    return STATUS_OK;
}

static enum status read_again(int fd, char *text) {
    ssize_t got = pread(fd, text, TEXT_BYTES - 1, 0);
    if (got <= 0)
        return got == 0 ? STATUS_NO_PROCESS : status_from_errno(errno);
    text[got] = '\0';
    return STATUS_OK;
}

/* "cpu_ns run_delay_ns timeslices" (Documentation/scheduler/sched-stats.rst) */
enum status thread_watch_activity(struct thread_watch *watch, struct thread_activity *activity) {
    char text[TEXT_BYTES];
    const char *next = text;
    if (watch->schedstat_fd < 0)
        return STATUS_NOT_FOUND;
    TRY(read_again(watch->schedstat_fd, text));
    activity->cpu_ns = proc_take_number(&next);
    activity->delay_ns = proc_take_number(&next);
    activity->switches = proc_take_number(&next);
    /* Kernels without CONFIG_SCHED_INFO give zeros. */
    return activity->switches == 0 ? STATUS_NOT_FOUND : STATUS_OK;
}

enum status thread_watch_state(struct thread_watch *watch, enum thread_run_state *state) {
    char text[TEXT_BYTES];
    struct proc_stat stat;
    TRY(read_again(watch->stat_fd, text));
    TRY(proc_parse_stat(text, &stat));
    if (proc_state_ended(stat.state))
        return STATUS_NO_PROCESS;
    *state = stat.state == 'R' ? THREAD_RUNNING : THREAD_IDLE;
    return STATUS_OK;
}

remote_addr thread_watch_futex(struct thread_watch *watch) {
    char text[TEXT_BYTES];
    bool is_vector = false;
    if (watch->syscall_fd < 0 || read_again(watch->syscall_fd, text) != STATUS_OK)
        return 0;
    remote_addr address = proc_parse_futex(text, &is_vector);
    return is_vector ? 0 : address;
}

enum status thread_watch_wait(struct thread_watch *watch, enum thread_run_state *state, remote_addr *futex) {
    char text[TEXT_BYTES];
    bool running = false, is_vector = false;
    *futex = 0;
    if (watch->syscall_fd < 0 || read_again(watch->syscall_fd, text) != STATUS_OK || !proc_parse_wait(text, &running))
        return thread_watch_state(watch, state);
    remote_addr address = proc_parse_futex(text, &is_vector);
    *state = running ? THREAD_RUNNING : THREAD_IDLE;
    *futex = is_vector ? 0 : address;
    return STATUS_OK;
}

/* As clock_getcpuclockid makes it, which would ask each time whether there is such a process. */
enum status process_cpu_clock(struct process *process, uint64_t *cpu_ns) {
    struct timespec time;
    const clockid_t clock = (clockid_t)((~(unsigned)process_pid(process) << 3) | 2);
    if (clock_gettime(clock, &time) != 0)
        return STATUS_NO_PROCESS;
    *cpu_ns = (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
    return STATUS_OK;
}

size_t process_thread_count(struct process *process) {
    struct stat info;
    /* A directory's links are its folders and itself twice. */
    if (fstatat(process->dir_fd, "task", &info, 0) != 0 || info.st_nlink < 2)
        return 0;
    return (size_t)info.st_nlink - 2;
}
