/* Finding descendants in /proc: through the lists of children of each watched process's threads where the kernel has
 * them (CONFIG_PROC_CHILDREN), else by the parent of every process. */
#include "base/buffer.h"
#include "base/clock.h"
#include "process/linux/events.h"
#include "process/linux/proc_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { CHILDREN_LIMIT_BYTES = 1 << 24, GENERATIONS_MAX = 64 };

static enum status begin_child(struct process_events *events, pid_t pid, pid_t parent_pid) {
    struct process_stat stat;
    if (pid <= 0 || events_find(events, pid) != NULL || !events_read_stat(pid, &stat) || events_stat_ended(&stat))
        return STATUS_OK;
    return events_begin(events, pid, parent_pid, clock_monotonic_ns(), true);
}

static enum status add_children_of_thread(struct process_events *events, pid_t pid, int task_fd, const char *tid) {
    char name[300];
    struct buffer text;
    (void)snprintf(name, sizeof name, "%s/children", tid);
    buffer_init(&text, CHILDREN_LIMIT_BYTES);
    enum status status = STATUS_OK;
    if (proc_read_whole(task_fd, name, &text) == STATUS_OK && text.size_bytes > 0) {
        char *rest = NULL;
        for (char *word = strtok_r((char *)(uintptr_t)buffer_text(&text), " ", &rest);
             word != NULL && status == STATUS_OK; word = strtok_r(NULL, " ", &rest))
            status = begin_child(events, (pid_t)strtol(word, NULL, 10), pid);
    }
    buffer_release(&text);
    return status;
}

static DIR *open_tasks(pid_t pid) {
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    return opendir(path);
}

static enum status add_children(struct process_events *events, pid_t pid) {
    DIR *directory = open_tasks(pid);
    enum status status = STATUS_OK;
    if (directory == NULL)
        return STATUS_OK;
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] != '.')
            status = add_children_of_thread(events, pid, dirfd(directory), entry->d_name);
    (void)closedir(directory);
    return status;
}

static enum status scan_children(struct process_events *events) {
    /* New ones go anywhere into the sorted list, so look for the next pid, not the next place. */
    pid_t pid = 0;
    for (size_t place = 0; place < events->watched_count; place++) {
        if (events->watched[place].pid <= pid)
            continue;
        pid = events->watched[place].pid;
        TRY(add_children(events, pid));
        place = (size_t)(events_find(events, pid) - events->watched);
    }
    return STATUS_OK;
}

static enum status scan_parents(struct process_events *events) {
    DIR *directory = opendir("/proc");
    enum status status = STATUS_OK;
    if (directory == NULL)
        return status_from_errno(errno);
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(directory)) != NULL;) {
        struct process_stat stat;
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0 && events_find(events, pid) == NULL && events_read_stat(pid, &stat) &&
            events_find(events, stat.parent_pid) != NULL)
            status = begin_child(events, pid, stat.parent_pid);
    }
    (void)closedir(directory);
    return status;
}

/* A child can have a lower number than its parent, or a grandchild be found first: until nothing new is found. */
static enum status scan_births(struct process_events *events) {
    bool have_lists = access("/proc/thread-self/children", F_OK) == 0;
    for (int generation = 0; generation < GENERATIONS_MAX; generation++) {
        size_t before = events->watched_count;
        TRY(have_lists ? scan_children(events) : scan_parents(events));
        if (events->watched_count == before)
            break;
    }
    return STATUS_OK;
}

static enum status tell_exec(struct process_events *events, struct watched *watched, uint64_t start_code,
                             uint64_t now_ns) {
    bool execed = start_code > 1 && watched->start_code > 1 && start_code != watched->start_code;
    watched->start_code = start_code;
    if (!execed)
        return STATUS_OK;
    struct process_event event = {
        .kind = PROCESS_EXECED,
        .pid = watched->pid,
        .parent_pid = watched->parent_pid,
        .start_ticks = watched->start_ticks,
        .time_ns = now_ns,
    };
    return events_push(events, &event);
}

static enum status scan_watched(struct process_events *events) {
    uint64_t now_ns = clock_monotonic_ns();
    for (size_t i = events->watched_count; i-- > 0;) {
        struct watched *watched = &events->watched[i];
        struct process_stat stat;
        bool other = false, there = events_read_stat(watched->pid, &stat);
        if (there && watched->start_ticks == 0)
            watched->start_ticks = stat.start_ticks;
        other = there && stat.start_ticks != watched->start_ticks;
        if (!there || other || events_stat_ended(&stat))
            TRY(events_end(events, watched, watched->leader_ended ? &watched->wait_status : NULL, now_ns));
        else
            TRY(tell_exec(events, watched, stat.start_code, now_ns));
    }
    return STATUS_OK;
}

enum status events_scan(struct process_events *events) {
    TRY(scan_births(events));
    return scan_watched(events);
}

enum status events_open_timer(struct process_events *events, uint64_t period_ns, struct error *error) {
    if (period_ns == 0)
        return error_set(error, STATUS_USAGE, "the search for child processes needs a period");
    struct timespec period = {
        .tv_sec = (time_t)(period_ns / NS_PER_S),
        .tv_nsec = (long)(period_ns % NS_PER_S),
    };
    struct itimerspec every = {.it_interval = period, .it_value = period};
    events->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (events->fd < 0 || timerfd_settime(events->fd, 0, &every, NULL) != 0)
        return error_set(error, STATUS_FAILED, "cannot make a timer: %s", strerror(errno));
    return STATUS_OK;
}

enum status events_poll_timer(struct process_events *events) {
    uint64_t expirations = 0;
    if (read(events->fd, &expirations, sizeof expirations) != (ssize_t)sizeof expirations)
        return STATUS_OK;
    return events_scan(events);
}
