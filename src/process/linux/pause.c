/* Stopping all threads of a process for a look, with PTRACE_INTERRUPT, which the program cannot see. */
#include "process/linux/hold.h"
#include "process/linux/proc_files.h"
#include "process/thread_watch.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

enum { ROUNDS_MAX = 64 };

/* A thread in state D stops only when its system call lets it; until then it runs no code of the program, so strobe
 * can look at it as it is. One that is only to be stopped once is given time to come out, so that it can be let go at
 * the end. The same goes for a first thread that has ended: that is told when the others have. A thread that is only
 * short of processor time gets longer. */
static const int64_t blocked_patience_ns = 100000000;
static const int64_t held_blocked_patience_ns = 1000000;
static const int64_t runnable_patience_ns = 5000000000;

static size_t collect_stops(struct process *process, bool look_for_ends) {
    size_t missing = 0;
    for (size_t i = 0; i < process->held_count; i++) {
        struct held_thread *thread = &process->held[i];
        if (!thread->stopped && !thread->gone)
            held_collect(process, thread, look_for_ends);
        if (!thread->stopped && !thread->gone)
            missing++;
    }
    return missing;
}

static bool only_blocked_missing(const struct process *process, pid_t *runnable) {
    for (size_t i = 0; i < process->held_count; i++) {
        const struct held_thread *thread = &process->held[i];
        if (thread->stopped || thread->gone)
            continue;
        char state = held_read_state(process, thread->tid);
        if (state == 'D' || proc_state_ended(state))
            continue;
        *runnable = thread->tid;
        return false;
    }
    return true;
}

static void interrupt_all(struct process *process) {
    for (size_t i = 0; i < process->held_count; i++) {
        struct held_thread *thread = &process->held[i];
        if (thread->stopped || thread->interrupted)
            continue;
        /* ESRCH: it is not traced. An exec gives the id of the main thread to another, which is seized if it was not;
         * that of the other is nobody's then. */
        if (ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL) != 0 && errno == ESRCH)
            thread->gone = true;
        thread->interrupted = true;
    }
}

/* What a long wait can be for: an exec of another thread ends the others, stopped or not, and waits until they have
 * been buried. Then the id of the main thread is that of the thread that made it, which was perhaps not told to stop.
 */
static void hasten(struct process *process, int64_t waited_ns, int64_t *reminded_ns) {
    held_bury_ended(process);
    if (waited_ns - *reminded_ns < blocked_patience_ns)
        return;
    *reminded_ns = waited_ns;
    for (size_t i = 0; i < process->held_count; i++)
        process->held[i].interrupted = false;
    interrupt_all(process);
}

/* waitid has no time limit of its own, and SIGCHLD belongs to the program that strobe's rooms are used in. */
static enum status wait_for_stops(struct process *process, struct error *error) {
    if (collect_stops(process, false) == 0)
        return STATUS_OK;
    int64_t patience_ns = process->hold ? held_blocked_patience_ns : blocked_patience_ns;
    int64_t started_ns = held_now_ns(), reminded_ns = 0;
    for (int turn = 0; collect_stops(process, turn > 1) > 0; turn++) {
        pid_t runnable = 0;
        int64_t waited_ns = held_now_ns() - started_ns;
        if (waited_ns > patience_ns)
            hasten(process, waited_ns, &reminded_ns);
        if (waited_ns > patience_ns && only_blocked_missing(process, &runnable))
            return STATUS_OK;
        if (waited_ns > runnable_patience_ns)
            return error_set(error, STATUS_FAILED, "thread %d of process %d does not stop", (int)runnable,
                             (int)process->pid);
        held_wait_a_little(turn);
    }
    return STATUS_OK;
}

static enum status stop_known(struct process *process, struct error *error) {
    interrupt_all(process);
    enum status status = wait_for_stops(process, error);
    held_forget_gone(process);
    return status;
}

/* Only a thread that is not stopped yet can start another. So there is no new one when a round finds none, or when
 * there are as many as are known: a traced thread that ends is counted by the kernel until strobe has waited for it, so
 * that no birth can hide behind a death. */
static enum status stop_all(struct process *process, struct error *error) {
    if (process->held_count > 0)
        TRY(stop_known(process, error));
    for (int round = 0; round < ROUNDS_MAX; round++) {
        size_t known = process->held_count;
        if (known > 0 && process_thread_count(process) == known)
            return STATUS_OK;
        enum status status = held_seize_new(process, error);
        if (process->held_count == known)
            return status;
        enum status stopped = stop_known(process, error);
        TRY(status);
        TRY(stopped);
    }
    return error_set(error, STATUS_FAILED, "process %d starts threads faster than they can be stopped",
                     (int)process->pid);
}

enum status process_pause(struct process *process, struct error *error) {
    enum status status = stop_all(process, error);
    process->paused = true;
    if (status == STATUS_OK && process->held_count == 0)
        status = error_set(error, STATUS_NO_PROCESS, "process %d has ended", (int)process->pid);
    if (status != STATUS_OK)
        process_resume(process);
    return status;
}

/* Detaching wants a stopped thread. One that is not, because it was blocked and still is, stays on the list. */
static void detach_all(struct process *process) {
    int64_t started_ns = held_now_ns(), reminded_ns = 0;
    for (int turn = 0; process->held_count > 0; turn++) {
        pid_t runnable = 0;
        for (size_t i = 0; i < process->held_count; i++)
            held_detach(process, &process->held[i]);
        held_forget_gone(process);
        int64_t waited_ns = held_now_ns() - started_ns;
        if (waited_ns > runnable_patience_ns ||
            (waited_ns > blocked_patience_ns && only_blocked_missing(process, &runnable)))
            break;
        if (waited_ns > held_blocked_patience_ns)
            hasten(process, waited_ns, &reminded_ns);
        held_wait_a_little(turn);
    }
}

void process_resume(struct process *process) {
    process->paused = false;
    if (!process->hold) {
        detach_all(process);
        return;
    }
    for (size_t i = 0; i < process->held_count; i++)
        if (process->held[i].stopped)
            held_continue(process, &process->held[i]);
}

enum status process_hold(struct process *process, struct error *error) {
    process->hold = true;
    enum status status = held_seize_new(process, error);
    if (status == STATUS_OK && process->held_count == 0)
        status = error_set(error, STATUS_NO_PROCESS, "process %d has ended", (int)process->pid);
    if (status != STATUS_OK)
        process_let_go(process);
    return status;
}

void process_let_go(struct process *process) {
    process->hold = false;
    interrupt_all(process);
    process_resume(process);
}

/* Whether any child or traced thread of strobe has news. */
static bool have_news(void) {
    siginfo_t info = {0};
    return waitid(P_ALL, 0, &info, WSTOPPED | WEXITED | __WALL | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

void process_serve(struct process *process) {
    if (!process->hold || process->paused || !have_news())
        return;
    for (size_t i = 0; i < process->held_count; i++) {
        struct held_thread *thread = &process->held[i];
        held_collect(process, thread, true);
        if (thread->stopped && !thread->gone)
            held_continue(process, thread);
    }
    held_forget_gone(process);
}
