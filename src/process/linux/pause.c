/* Stopping all threads of a process for a look, with PTRACE_SEIZE and PTRACE_INTERRUPT: no signal is sent, and when
 * strobe dies the kernel detaches and lets the threads go (no PTRACE_O_EXITKILL). */
#include "process/linux/linux_process.h"
#include "process/linux/proc_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    ROUNDS_MAX = 64,
    THREADS_MAX = 1 << 18,
    FIRST_CAPACITY = 32,
    STAT_TEXT_BYTES = 1024,
    STATUS_LIMIT_BYTES = 1 << 21,
    YIELDS_BEFORE_SLEEP = 8,
    SLEEP_FIRST_NS = 20 * 1000,
    SLEEP_MAX_NS = 1000 * 1000,
};

/* A thread in state D stops only when its system call lets it; until then it runs no code of the program, so strobe
 * can look at it as it is. A thread that is only short of processor time gets longer. */
static const int64_t blocked_patience_ns = 100000000;
static const int64_t runnable_patience_ns = 5000000000;

struct paused_thread {
    pid_t tid;
    enum thread_run_state state_before;
    bool stopped;
    bool gone;
    int signal; /* was about to be delivered when the thread stopped, and is delivered when it goes on */
};

static int64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int compare_threads(const void *left, const void *right) {
    pid_t a = ((const struct paused_thread *)left)->tid;
    pid_t b = ((const struct paused_thread *)right)->tid;
    return (a > b) - (a < b);
}

/* Among the first `count`, which are sorted. */
static const struct paused_thread *find_paused(const struct process *process, size_t count, pid_t tid) {
    struct paused_thread key = {.tid = tid};
    if (count == 0)
        return NULL;
    return bsearch(&key, process->paused, count, sizeof key, compare_threads);
}

bool process_state_before_pause(const struct process *process, pid_t tid, enum thread_run_state *state) {
    const struct paused_thread *thread = find_paused(process, process->paused_count, tid);
    if (thread == NULL)
        return false;
    *state = thread->state_before;
    return true;
}

static enum status remember(struct process *process, pid_t tid, enum thread_run_state state_before) {
    if (process->paused_count == process->paused_capacity) {
        size_t capacity = process->paused_capacity > 0 ? process->paused_capacity * 2 : FIRST_CAPACITY;
        if (capacity > THREADS_MAX)
            return STATUS_LIMIT;
        struct paused_thread *grown = realloc(process->paused, capacity * sizeof *grown);
        if (grown == NULL)
            return STATUS_FAILED;
        process->paused = grown;
        process->paused_capacity = capacity;
    }
    process->paused[process->paused_count++] = (struct paused_thread){.tid = tid, .state_before = state_before};
    return STATUS_OK;
}

static char read_state(const struct process *process, pid_t tid) {
    char name[64], text[STAT_TEXT_BYTES];
    struct proc_stat stat = {0};
    (void)snprintf(name, sizeof name, "task/%d/stat", (int)tid);
    if (proc_read_text(process->dir_fd, name, text, sizeof text) != STATUS_OK ||
        proc_parse_stat(text, &stat) != STATUS_OK)
        return 'X';
    return stat.state;
}

/* A process id in the status of a thread, such as TracerPid. */
static bool read_status_pid(const struct process *process, pid_t tid, const char *field, pid_t *pid) {
    char name[64];
    (void)snprintf(name, sizeof name, "task/%d/status", (int)tid);
    struct buffer text;
    buffer_init(&text, STATUS_LIMIT_BYTES);
    size_t count = 0;
    bool found = proc_read_whole(process->dir_fd, name, &text) == STATUS_OK &&
                 proc_parse_last_pid(proc_status_field(buffer_text(&text), field), pid, &count);
    buffer_release(&text);
    return found;
}

/* What to make of a thread that cannot be seized: none of our business when it ended meanwhile or is ours already. */
static enum status explain_refusal(const struct process *process, pid_t tid, int error_number, struct error *error) {
    if (error_number == ESRCH || proc_state_ended(read_state(process, tid)))
        return STATUS_OK;
    pid_t tracer = 0;
    (void)read_status_pid(process, tid, "TracerPid", &tracer);
    if (tracer == gettid())
        return STATUS_OK;
    if (tracer != 0)
        return error_set(error, STATUS_PERMISSION,
                         "cannot stop process %d: process %d traces it already (a debugger or strace?)",
                         (int)process->pid, (int)tracer);
    if (error_number == EPERM)
        return process_explain_denial(process, error);
    return error_set(error, STATUS_FAILED, "cannot stop thread %d of process %d: %s", (int)tid, (int)process->pid,
                     strerror(error_number));
}

static enum status seize(struct process *process, pid_t tid, struct error *error) {
    char state = read_state(process, tid);
    if (proc_state_ended(state))
        return STATUS_OK;
    enum status status = remember(process, tid, state == 'R' ? THREAD_RUNNING : THREAD_IDLE);
    if (status != STATUS_OK)
        return error_set(error, status, "cannot stop process %d: %s", (int)process->pid,
                         status == STATUS_LIMIT ? "too many threads" : "out of memory");
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0) {
        process->paused_count--;
        return explain_refusal(process, tid, errno, error);
    }
    /* Fails only for a thread that has ended; waiting for it finds that. */
    (void)ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
    return STATUS_OK;
}

/* Seizes the threads that are not among the first `known` of the list, which are sorted. */
static enum status seize_listed(struct process *process, DIR *directory, size_t known, struct error *error) {
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid > 0 && find_paused(process, known, tid) == NULL)
            TRY(seize(process, tid, error));
    }
    return STATUS_OK;
}

static enum status seize_new_threads(struct process *process, struct error *error) {
    int task_fd = openat(process->dir_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = task_fd >= 0 ? fdopendir(task_fd) : NULL;
    if (directory == NULL) {
        enum status status = status_from_errno(errno);
        if (task_fd >= 0)
            (void)close(task_fd);
        return error_set(error, status, "cannot list the threads of process %d: %s", (int)process->pid,
                         status_name(status));
    }
    enum status status = seize_listed(process, directory, process->paused_count, error);
    (void)closedir(directory);
    return status;
}

static bool is_own_child(const struct process *process) {
    pid_t parent = 0;
    return read_status_pid(process, process->pid, "PPid", &parent) && parent == getpid();
}

/* Looks whether the thread has stopped or ended. */
static void collect_stop(const struct process *process, struct paused_thread *thread) {
    siginfo_t info = {0};
    int result = waitid(P_PID, (id_t)thread->tid, &info, WEXITED | WSTOPPED | __WALL | WNOHANG | WNOWAIT);
    if ((result == 0 && info.si_pid == 0) || (result != 0 && errno == EINTR))
        return;
    bool ended = result != 0 || info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
    if (ended) {
        thread->gone = true;
        /* The kernel buries a traced thread, and tells a traced process's parent, only when the tracer has waited for
         * it. But where strobe is the parent, the exit status is for whoever in strobe started the process. */
        if (result == 0 && (thread->tid != process->pid || !is_own_child(process)))
            (void)waitpid(thread->tid, NULL, __WALL | WNOHANG);
        return;
    }
    int wait_status = 0;
    if (waitpid(thread->tid, &wait_status, __WALL | WNOHANG) != thread->tid || !WIFSTOPPED(wait_status))
        return;
    thread->stopped = true;
    /* PTRACE_EVENT_STOP: our interrupt, or the program's own stop (SIGSTOP …), which goes on after the detach. Anything
     * else is a signal on its way to the program. */
    thread->signal = wait_status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(wait_status);
}

static size_t collect_stops(struct process *process) {
    size_t missing = 0;
    for (size_t i = 0; i < process->paused_count; i++) {
        struct paused_thread *thread = &process->paused[i];
        if (!thread->stopped && !thread->gone)
            collect_stop(process, thread);
        if (!thread->stopped && !thread->gone)
            missing++;
    }
    return missing;
}

static bool only_blocked_missing(const struct process *process, pid_t *runnable) {
    for (size_t i = 0; i < process->paused_count; i++) {
        const struct paused_thread *thread = &process->paused[i];
        if (thread->stopped || thread->gone || read_state(process, thread->tid) == 'D')
            continue;
        *runnable = thread->tid;
        return false;
    }
    return true;
}

static void wait_a_little(int turn) {
    if (turn < YIELDS_BEFORE_SLEEP) {
        (void)sched_yield();
        return;
    }
    int doublings = turn - YIELDS_BEFORE_SLEEP;
    long pause_ns = doublings < 6 ? (long)SLEEP_FIRST_NS << doublings : SLEEP_MAX_NS;
    (void)nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
}

/* waitpid has no time limit of its own, and SIGCHLD belongs to the program that strobe's rooms are used in. */
static enum status wait_for_stops(struct process *process, struct error *error) {
    int64_t started_ns = now_ns();
    for (int turn = 0; collect_stops(process) > 0; turn++) {
        pid_t runnable = 0;
        int64_t waited_ns = now_ns() - started_ns;
        if (waited_ns > blocked_patience_ns && only_blocked_missing(process, &runnable))
            return STATUS_OK;
        if (waited_ns > runnable_patience_ns)
            return error_set(error, STATUS_FAILED, "thread %d of process %d does not stop", (int)runnable,
                             (int)process->pid);
        wait_a_little(turn);
    }
    return STATUS_OK;
}

static void forget_gone(struct process *process) {
    size_t kept = 0;
    for (size_t i = 0; i < process->paused_count; i++)
        if (!process->paused[i].gone)
            process->paused[kept++] = process->paused[i];
    process->paused_count = kept;
    if (kept > 0)
        qsort(process->paused, kept, sizeof *process->paused, compare_threads);
}

static enum status stop_all(struct process *process, struct error *error) {
    /* Only a thread that is not stopped yet can start another, so a round that finds no new one is the last. */
    for (int round = 0; round < ROUNDS_MAX; round++) {
        size_t count_before = process->paused_count;
        enum status status = seize_new_threads(process, error);
        bool found_new = process->paused_count > count_before;
        if (status == STATUS_OK)
            status = wait_for_stops(process, error);
        forget_gone(process);
        if (status != STATUS_OK || !found_new)
            return status;
    }
    return error_set(error, STATUS_FAILED, "process %d starts threads faster than they can be stopped",
                     (int)process->pid);
}

enum status process_pause(struct process *process, struct error *error) {
    enum status status = stop_all(process, error);
    if (status == STATUS_OK && process->paused_count == 0)
        status = error_set(error, STATUS_NO_PROCESS, "process %d has ended", (int)process->pid);
    if (status != STATUS_OK)
        process_resume(process);
    return status;
}

/* Detaching wants a stopped thread. One that is not, because it was blocked and still is, stays on the list. */
static void let_go(const struct process *process, struct paused_thread *thread) {
    if (!thread->stopped)
        collect_stop(process, thread);
    if (!thread->stopped || thread->gone)
        return;
    if (ptrace(PTRACE_DETACH, thread->tid, NULL, (void *)(intptr_t)thread->signal) == 0) {
        thread->gone = true;
        return;
    }
    /* Killed while it was stopped: waiting for it lets the kernel bury it. */
    thread->stopped = false;
    collect_stop(process, thread);
}

void process_resume(struct process *process) {
    int64_t started_ns = now_ns();
    for (int turn = 0; process->paused_count > 0; turn++) {
        for (size_t i = 0; i < process->paused_count; i++)
            let_go(process, &process->paused[i]);
        forget_gone(process);
        if (process->paused_count == 0 || now_ns() - started_ns > blocked_patience_ns)
            break;
        wait_a_little(turn);
    }
    /* What is left is let go by the next pause and resume, or by the kernel when strobe ends. */
}
