#include "process/linux/hold.h"
#include "process/linux/proc_files.h"
#include "process/thread_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000u

enum {
    STAT_TEXT_BYTES = 1024,
    STATUS_LIMIT_BYTES = 1 << 21, /* "Groups" may name 65536 groups */
    COMMAND_LIMIT_BYTES = 1 << 24,
    ENVIRONMENT_LIMIT_BYTES = 1 << 24,
    LIST_TURNS = 100,
    EXEC_PATIENCE_NS = 20 * 1000 * 1000,
    SEEN_EXEC_PATIENCE_NS = 2000 * 1000 * 1000,
    EXEC_CPU_NS = 2 * 1000 * 1000,
};

static enum status no_process(pid_t pid, struct error *error) {
    return error_set(error, STATUS_NO_PROCESS, "no process %d", (int)pid);
}

static enum status open_directory(struct process *process, struct error *error) {
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d", (int)process->entry_tid);
    process->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (process->dir_fd >= 0)
        return STATUS_OK;
    if (errno != ENOENT)
        return error_set(error, status_from_errno(errno), "cannot open %s: %s", path, strerror(errno));
    if (access("/proc/self", F_OK) != 0)
        return error_set(error, STATUS_FAILED, "/proc is not mounted");
    /* The option hidepid of /proc hides processes that do exist. */
    if (kill(process->entry_tid, 0) == 0 || errno == EPERM)
        return error_set(error, STATUS_PERMISSION,
                         "cannot read process %d: permission denied (/proc is mounted with hidepid; run as root)",
                         (int)process->pid);
    return no_process(process->pid, error);
}

static enum status read_stat(const struct process *process, struct proc_stat *stat) {
    char text[STAT_TEXT_BYTES];
    ssize_t size = pread(process->stat_fd, text, sizeof text - 1, 0);
    if (size < 0)
        return status_from_errno(errno);
    text[size] = '\0';
    return proc_parse_stat(text, stat);
}

static void close_directory(struct process *process) {
    if (process->stat_fd >= 0)
        (void)close(process->stat_fd);
    if (process->dir_fd >= 0)
        (void)close(process->dir_fd);
    process->stat_fd = process->dir_fd = -1;
}

/* Opens /proc/ENTRY_TID and reads what its stat says. */
static enum status open_entry(struct process *process, struct proc_stat *stat, struct error *error) {
    TRY(open_directory(process, error));
    process->stat_fd = openat(process->dir_fd, "stat", O_RDONLY | O_CLOEXEC);
    if (process->stat_fd < 0 && status_from_errno(errno) == STATUS_NO_FILES)
        return error_set(error, STATUS_NO_FILES, "cannot open process %d: %s", (int)process->pid,
                         status_name(STATUS_NO_FILES));
    if (process->stat_fd < 0 || read_stat(process, stat) != STATUS_OK)
        return no_process(process->pid, error);
    return STATUS_OK;
}

/* The first thread that `is_it` says yes of, given its folder's name, or 0. */
static pid_t find_thread(const struct process *process, bool (*is_it)(int task_fd, const char *tid)) {
    int task_fd = openat(process->dir_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = task_fd >= 0 ? fdopendir(task_fd) : NULL;
    if (directory == NULL) {
        if (task_fd >= 0)
            (void)close(task_fd);
        return 0;
    }
    pid_t found = 0;
    for (struct dirent *entry; found == 0 && (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] != '.' && is_it(dirfd(directory), entry->d_name))
            found = (pid_t)strtol(entry->d_name, NULL, 10);
    (void)closedir(directory);
    return found;
}

static bool is_not_ended(int task_fd, const char *tid) {
    char name[300], text[STAT_TEXT_BYTES];
    struct proc_stat stat = {0};
    (void)snprintf(name, sizeof name, "%s/stat", tid);
    return proc_read_text(task_fd, name, text, sizeof text) == STATUS_OK && proc_parse_stat(text, &stat) == STATUS_OK &&
           !proc_stat_ended(&stat);
}

/* A thread that still runs although the leader has ended, or 0. */
static pid_t surviving_thread(const struct process *process) {
    return find_thread(process, is_not_ended);
}

static bool read_system_call(int task_fd, const char *tid, char text[STAT_TEXT_BYTES]) {
    char name[300];
    (void)snprintf(name, sizeof name, "%s/syscall", tid);
    return proc_read_text(task_fd, name, text, STAT_TEXT_BYTES) == STATUS_OK;
}

/* Waiting in an exec, which it does for the end of the other threads. */
static bool is_in_exec(int task_fd, const char *tid) {
    char text[STAT_TEXT_BYTES], *end = NULL;
    if (!read_system_call(task_fd, tid, text))
        return false;
    long number = strtol(text, &end, 10);
    return end != text && *end == ' ' && (number == SYS_execve || number == SYS_execveat);
}

/* Or ready to: what it does is not told then. */
static bool is_running(int task_fd, const char *tid) {
    char text[STAT_TEXT_BYTES];
    return read_system_call(task_fd, tid, text) && strncmp(text, "running", strlen("running")) == 0;
}

/* The others have ended, but it gets no processor: one that goes on with something else uses CPU time soon. */
static bool may_be_in_exec(struct process *process, uint64_t cpu_before_ns) {
    uint64_t cpu_ns = 0;
    if (find_thread(process, is_in_exec) != 0)
        return true;
    return process_cpu_clock(process, &cpu_ns) == STATUS_OK && cpu_ns - cpu_before_ns < EXEC_CPU_NS &&
           find_thread(process, is_running) != 0;
}

/* Whether the leader lives, or has ended before other threads. They are looked at one after the other: while an exec
 * ends them, the list can be cut short, and the one that execs becomes the leader meanwhile. No threads at all: the
 * leader was buried while it was read (fs/proc/array.c, do_task_stat); whether another has its place the next look
 * says. */
static bool is_alive(const struct process *process, bool *leader_lives) {
    struct proc_stat stat = {0};
    bool survived = false;
    for (int turn = 0; turn < LIST_TURNS && !survived; turn++) {
        bool there = read_stat(process, &stat) == STATUS_OK;
        *leader_lives = there && !proc_stat_ended(&stat);
        if (*leader_lives || !there || stat.thread_count == 1)
            return *leader_lives;
        if (stat.thread_count == 0)
            continue;
        /* An exec waits until those have been buried that were seized. */
        held_bury_ended(process);
        survived = surviving_thread(process) > 0;
    }
    return survived;
}

/* Whether the leader, which has ended, did so only for another thread's exec, which then took its place. An exec takes
 * long where there are many threads to end and few processors. */
static bool leader_is_replaced(struct process *process) {
    bool leader_lives = false;
    int64_t started_ns = held_now_ns();
    uint64_t cpu_before_ns = 0;
    (void)!process_cpu_clock(process, &cpu_before_ns);
    for (int turn = 0; is_alive(process, &leader_lives); turn++) {
        int64_t waited_ns = held_now_ns() - started_ns;
        if (leader_lives)
            return true;
        if (waited_ns > SEEN_EXEC_PATIENCE_NS ||
            (waited_ns > EXEC_PATIENCE_NS && !may_be_in_exec(process, cpu_before_ns)))
            return false;
        held_wait_a_little(turn);
    }
    return false;
}

/* A zombie is either a process that has ended or one whose first thread has; the others have the memory still. */
static enum status open_past_leader(struct process *process, struct error *error) {
    process->entry_tid = surviving_thread(process);
    close_directory(process);
    struct proc_stat stat = {0};
    if (process->entry_tid == 0 || open_entry(process, &stat, NULL) != STATUS_OK || proc_state_ended(stat.state))
        return error_set(error, STATUS_NO_PROCESS, "process %d has ended (it is a zombie)", (int)process->pid);
    return STATUS_OK;
}

/* Fills in the ids. *is_thread says that pid is no process but a thread, and pid is then its process. */
static enum status read_ids(struct process *process, bool *is_thread, struct error *error) {
    struct buffer text;
    buffer_init(&text, STATUS_LIMIT_BYTES);
    enum status status = proc_read_whole(process->dir_fd, "status", &text);
    if (status != STATUS_OK) {
        buffer_release(&text);
        return error_set(error, status, "cannot read the status of process %d: %s", (int)process->pid,
                         status_name(status));
    }
    size_t levels = 0;
    pid_t group = 0;
    *is_thread = proc_parse_last_pid(proc_status_field(buffer_text(&text), "Tgid"), &group, &levels) &&
                 group != process->pid && group > 0;
    if (*is_thread)
        process->pid = group;
    process->own_pid = process->pid;
    /* Before Linux 4.1 there is no NStgid, and no way to know. */
    if (!proc_parse_last_pid(proc_status_field(buffer_text(&text), "NStgid"), &process->own_pid, &levels))
        levels = 1;
    process->nested = levels > 1;
    buffer_release(&text);
    return STATUS_OK;
}

static enum status open_parts(struct process *process, struct error *error) {
    struct proc_stat stat = {0};
    TRY(open_entry(process, &stat, error));
    if (stat.flags & PF_KTHREAD)
        return error_set(error, STATUS_NOT_PYTHON, "process %d is a kernel thread (%s)", (int)process->pid, stat.comm);
    bool is_thread = false;
    TRY(read_ids(process, &is_thread, error));
    if (is_thread) {
        close_directory(process);
        process->entry_tid = process->pid;
        TRY(open_entry(process, &stat, error));
    }
    if (proc_state_ended(stat.state) && !leader_is_replaced(process))
        TRY(open_past_leader(process, error));

    enum status status = live_memory_open(&process->memory, process);
    if (status != STATUS_OK && status != STATUS_PERMISSION && leader_is_replaced(process))
        status = live_memory_open(&process->memory, process);
    if (status == STATUS_PERMISSION)
        return process_explain_denial(process, error);
    if (status != STATUS_OK)
        return no_process(process->pid, error);
    return STATUS_OK;
}

enum status process_open(pid_t pid, struct process **result, struct error *error) {
    *result = NULL;
    if (pid <= 0)
        return no_process(pid, error);
    struct process *process = calloc(1, sizeof *process);
    if (process == NULL)
        return error_set(error, STATUS_FAILED, "out of memory");
    process->pid = process->own_pid = process->entry_tid = pid;
    process->dir_fd = process->stat_fd = process->memory.mem_fd = -1;
    enum status status = open_parts(process, error);
    if (status != STATUS_OK) {
        process_free(process);
        return status;
    }
    *result = process;
    return STATUS_OK;
}

void process_free(struct process *process) {
    if (process == NULL)
        return;
    process_let_go(process);
    free(process->held);
    live_memory_close(&process->memory);
    close_directory(process);
    free(process->command);
    free(process->command_text);
    free(process);
}

pid_t process_pid(const struct process *process) {
    return process->pid;
}

pid_t process_own_pid(const struct process *process) {
    return process->own_pid;
}

bool process_alive(const struct process *process) {
    bool leader_lives = false;
    return is_alive(process, &leader_lives);
}

/* In a PID namespace within strobe's, threads have other numbers here. */
bool process_has_thread(const struct process *process, pid_t own_tid) {
    pid_t pid = process_pid(process);
    return process_own_pid(process) != pid || syscall(SYS_tgkill, pid, own_tid, 0) == 0 || errno != ESRCH;
}

unsigned process_exec_count(const struct process *process) {
    return process->memory.exec_count;
}

struct memory *process_memory(struct process *process) {
    return &process->memory.memory;
}

bool process_shares_memory(const struct process *process, pid_t other) {
    return other > 0 && syscall(SYS_kcmp, process->entry_tid, other, KCMP_VM, 0, 0) == 0;
}

void process_forget_command(struct process *process) {
    free(process->command);
    free(process->command_text);
    process->command = NULL;
    process->command_text = NULL;
}

/* Cuts the NUL-separated arguments into an array. */
static char **split_arguments(char *text, size_t size_bytes) {
    size_t count = 0;
    for (size_t i = 0; i < size_bytes; i++)
        if (text[i] == '\0')
            count++;
    /* One more where the last argument has no NUL behind it (a title written over it), and the NULL. */
    char **arguments = calloc(count + 2, sizeof *arguments);
    if (arguments == NULL)
        return NULL;
    size_t index = 0;
    for (char *at = text; at != NULL && at < text + size_bytes; at += strlen(at) + 1)
        arguments[index++] = at;
    return arguments;
}

char **process_command(struct process *process) {
    static char *nothing[] = {NULL};
    if (process->command != NULL)
        return process->command;
    struct buffer text;
    buffer_init(&text, COMMAND_LIMIT_BYTES);
    enum status status = proc_read_whole(process->dir_fd, "cmdline", &text);
    if (status == STATUS_OK || status == STATUS_LIMIT)
        process->command = split_arguments(text.data, text.size_bytes);
    process->command_text = text.data;
    return process->command != NULL ? process->command : nothing;
}

enum status process_read_variable(struct process *process, const char *name, char **value) {
    struct buffer text;
    size_t length = strlen(name);
    buffer_init(&text, ENVIRONMENT_LIMIT_BYTES);
    *value = NULL;
    enum status status = proc_read_whole(process->dir_fd, "environ", &text);
    const char *at = buffer_text(&text), *end = at + text.size_bytes;
    for (; status == STATUS_OK && *value == NULL && at < end; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            *value = strdup(at + length + 1);
            status = *value != NULL ? STATUS_OK : STATUS_FAILED;
        }
    buffer_release(&text);
    return status == STATUS_OK && *value == NULL ? STATUS_NOT_FOUND : status;
}

enum status process_read_resident(const struct process *process, uint64_t *resident_bytes) {
    char text[STAT_TEXT_BYTES];
    char *end = NULL;
    TRY(proc_read_text(process->dir_fd, "statm", text, sizeof text));
    (void)strtoull(text, &end, 10);
    const char *rest = end;
    uint64_t all_pages = strtoull(rest, &end, 10);
    if (end == rest)
        return STATUS_DAMAGED;
    uint64_t file_pages = strtoull(end, NULL, 10);
    *resident_bytes = all_pages > file_pages ? (all_pages - file_pages) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    return STATUS_OK;
}
