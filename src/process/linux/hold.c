/* Tracing the threads of a process with PTRACE_SEIZE: no signal is sent, and when strobe dies the kernel detaches and
 * lets the threads go (no PTRACE_O_EXITKILL). New threads are found by counting, not with PTRACE_O_TRACECLONE: that
 * would stop the program at each birth until strobe comes by. */
#include "process/linux/hold.h"

#include "base/array.h"
#include "process/linux/proc_files.h"
#include "process/linux/reaper.h"

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
    THREADS_MAX = 1 << 18,
    STAT_TEXT_BYTES = 1024,
    STATUS_LIMIT_BYTES = 1 << 21,
    SEIZE_TURNS = 3,
    YIELDS_BEFORE_SLEEP = 16,
    SLEEP_FIRST_NS = 20 * 1000,
    SLEEP_MAX_NS = 250 * 1000,
};

int64_t held_now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void held_wait_a_little(int turn) {
    if (turn < YIELDS_BEFORE_SLEEP) {
        (void)sched_yield();
        return;
    }
    int doublings = turn - YIELDS_BEFORE_SLEEP;
    long pause_ns = doublings < 4 ? (long)SLEEP_FIRST_NS << doublings : SLEEP_MAX_NS;
    (void)nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
}

static int compare_threads(const void *left, const void *right) {
    pid_t a = ((const struct held_thread *)left)->tid;
    pid_t b = ((const struct held_thread *)right)->tid;
    return (a > b) - (a < b);
}

/* Among the first `count`, which are sorted. */
static const struct held_thread *find_held(const struct process *process, size_t count, pid_t tid) {
    struct held_thread key = {.tid = tid};
    if (count == 0)
        return NULL;
    return bsearch(&key, process->held, count, sizeof key, compare_threads);
}

bool process_state_before_pause(const struct process *process, pid_t tid, enum thread_run_state *state) {
    const struct held_thread *thread = find_held(process, process->held_count, tid);
    if (thread == NULL || !thread->state_known)
        return false;
    *state = thread->state_before;
    return true;
}

static enum status remember(struct process *process, const struct held_thread *thread) {
    if (process->held_count == THREADS_MAX)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&process->held, &process->held_capacity, process->held_count + 1, sizeof *thread));
    process->held[process->held_count++] = *thread;
    return STATUS_OK;
}

char held_read_state(const struct process *process, pid_t tid) {
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

/* What to make of a thread that cannot be seized: none of our business when it has ended meanwhile. */
static enum status explain_refusal(const struct process *process, pid_t tid, pid_t tracer, int error_number,
                                   struct error *error) {
    if (error_number == ESRCH || proc_state_ended(held_read_state(process, tid)))
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

/* A seize waits for an exec that is going on, and then fails if the thread has ended by that. But the thread that made
 * the exec has taken over the main thread's id, so that another turn finds that one; and is traced already if it was
 * before. 0, or the error. */
static int try_to_seize(const struct process *process, pid_t tid, pid_t *tracer) {
    *tracer = 0;
    for (int turn = 0;; turn++) {
        if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) == 0)
            return 0;
        int error_number = errno;
        if (error_number != EPERM)
            return error_number;
        (void)read_status_pid(process, tid, "TracerPid", tracer);
        if (*tracer == gettid())
            return 0;
        if (*tracer != 0 || turn == SEIZE_TURNS)
            return error_number;
    }
}

/* The last on the list: whether it stands there twice. Happens only by an exec. */
static bool is_last_twice(const struct process *process) {
    const struct held_thread *last = &process->held[process->held_count - 1];
    for (const struct held_thread *thread = process->held; thread != last; thread++)
        if (thread->tid == last->tid)
            return true;
    return false;
}

static enum status seize(struct process *process, pid_t tid, struct error *error) {
    char state = held_read_state(process, tid);
    pid_t tracer = 0;
    if (proc_state_ended(state))
        return STATUS_OK;
    struct held_thread thread = {
        .tid = tid,
        .state_known = true,
        .state_before = state == 'R' ? THREAD_RUNNING : THREAD_IDLE,
    };
    enum status status = remember(process, &thread);
    if (status != STATUS_OK)
        return error_set(error, status, "cannot stop process %d: %s", (int)process->pid,
                         status == STATUS_LIMIT ? "too many threads" : "out of memory");
    int error_number = try_to_seize(process, tid, &tracer);
    if (error_number != 0 || (tracer != 0 && is_last_twice(process)))
        process->held_count--;
    return error_number == 0 ? STATUS_OK : explain_refusal(process, tid, tracer, error_number, error);
}

/* Seizes the threads that are not among the first `known` of the list, which are sorted. */
static enum status seize_listed(struct process *process, DIR *directory, size_t known, struct error *error) {
    struct reaper reaper = {0};
    enum status status = STATUS_OK;
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(directory)) != NULL;) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid <= 0 || find_held(process, known, tid) != NULL)
            continue;
        if (process->held_count > 0)
            status = reaper_start(&reaper, process, error);
        if (status == STATUS_OK)
            status = seize(process, tid, error);
    }
    reaper_stop(&reaper);
    return status;
}

static enum status seize_all(struct process *process, size_t known, struct error *error) {
    int task_fd = openat(process->dir_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = task_fd >= 0 ? fdopendir(task_fd) : NULL;
    if (directory == NULL) {
        enum status status = status_from_errno(errno);
        if (task_fd >= 0)
            (void)close(task_fd);
        return error_set(error, status, "cannot list the threads of process %d: %s", (int)process->pid,
                         status_name(status));
    }
    enum status status = seize_listed(process, directory, known, error);
    (void)closedir(directory);
    return status;
}

enum status held_seize_new(struct process *process, struct error *error) {
    size_t known = process->held_count;
    enum status status = STATUS_OK;
    /* An exec leaves one thread, under another id than it was listed with. */
    for (int turn = 0; turn < SEIZE_TURNS && status == STATUS_OK && (turn == 0 || process->held_count == 0); turn++)
        status = seize_all(process, known, error);
    if (process->held_count > known)
        qsort(process->held, process->held_count, sizeof *process->held, compare_threads);
    return status;
}

void held_forget_gone(struct process *process) {
    size_t kept = 0;
    for (size_t i = 0; i < process->held_count; i++)
        if (!process->held[i].gone)
            process->held[kept++] = process->held[i];
    process->held_count = kept;
}

static bool is_own_child(const struct process *process) {
    pid_t parent = 0;
    return read_status_pid(process, process->pid, "PPid", &parent) && parent == getpid();
}

static void collect_end(const struct process *process, struct held_thread *thread) {
    siginfo_t info = {0};
    int result = waitid(P_PID, (id_t)thread->tid, &info, WEXITED | __WALL | WNOHANG | WNOWAIT);
    /* Stops of a traced thread are told whether asked for or not; this one came just now. */
    bool ended = info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
    if ((result == 0 && !ended) || (result != 0 && errno == EINTR))
        return;
    thread->gone = true;
    /* The kernel buries a traced thread, and tells a traced process's parent, only when the tracer has waited for it.
     * But where strobe is the parent, the exit status is for whoever in strobe started the process. */
    if (result == 0 && (thread->tid != process->pid || !is_own_child(process)))
        (void)waitpid(thread->tid, NULL, __WALL | WNOHANG);
}

void held_collect(const struct process *process, struct held_thread *thread, bool look_for_end) {
    siginfo_t info = {0};
    int result = waitid(P_PID, (id_t)thread->tid, &info, WSTOPPED | __WALL | WNOHANG);
    if (result == 0 && info.si_pid != 0) {
        /* The event in the upper bits. PTRACE_EVENT_STOP: our interrupt (SIGTRAP) or the program's own stop. Without an
         * event it is a signal on its way to the program. Any stop takes the interrupt with it. */
        int event = info.si_status >> 8, signal = info.si_status & 0xff;
        thread->stopped = true;
        thread->interrupted = false;
        thread->group_stopped = event == PTRACE_EVENT_STOP && signal != SIGTRAP;
        thread->signal = event == 0 ? signal : 0;
    } else if (look_for_end || result != 0) {
        collect_end(process, thread);
    }
}

void held_bury_ended(const struct process *process) {
    for (size_t i = 0; i < process->held_count; i++)
        if (!process->held[i].gone)
            collect_end(process, &process->held[i]);
}

/* A ptrace call on a stopped thread fails when it was killed meanwhile: waiting for it lets the kernel bury it. */
static void settle(const struct process *process, struct held_thread *thread, long result) {
    thread->stopped = false;
    thread->state_known = false;
    if (result != 0)
        collect_end(process, thread);
}

void held_continue(const struct process *process, struct held_thread *thread) {
    /* PTRACE_LISTEN keeps the thread stopped as the program's stop wants it, and hears of the end of that stop. */
    long result = thread->group_stopped ? ptrace(PTRACE_LISTEN, thread->tid, NULL, NULL)
                                        : ptrace(PTRACE_CONT, thread->tid, NULL, (void *)(intptr_t)thread->signal);
    settle(process, thread, result);
}

void held_detach(const struct process *process, struct held_thread *thread) {
    if (!thread->stopped)
        held_collect(process, thread, true);
    if (!thread->stopped || thread->gone)
        return;
    long result = ptrace(PTRACE_DETACH, thread->tid, NULL, (void *)(intptr_t)thread->signal);
    settle(process, thread, result);
    if (result == 0)
        thread->gone = true;
}
