/* An exec that a thread makes while others are traced waits until the tracer has waited for all of these, which end by
 * it (de_thread, fs/exec.c, Linux 6.1), and holds cred_guard_mutex. PTRACE_SEIZE of one more thread takes the same lock
 * (ptrace_attach, kernel/ptrace.c). A tracer that is in there waits for the exec, the exec for the tracer, for ever.
 * But any thread of the tracer's process may wait for its tracees: the one here does. */
#include "process/linux/reaper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seizing thousands of threads takes about as long. */
enum { PERIOD_NS = 5 * 1000 * 1000 };

/* Stops of a traced thread are told whether asked for or not, and told once. They are for who stops it: so this looks
 * before it takes. */
static void wait_if_ended(pid_t tid) {
    siginfo_t info = {0};
    int result = waitid(P_PID, (id_t)tid, &info, WEXITED | __WALL | WNOHANG | WNOWAIT);
    if (result == 0 && (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED))
        (void)waitid(P_PID, (id_t)tid, &info, WEXITED | __WALL | WNOHANG);
}

/* The main thread's end is not awaited: it is the process's, and told to whoever started that. An exec does not need
 * it. */
static void wait_for_ended(const struct process *process) {
    int task_fd = openat(process->dir_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = task_fd >= 0 ? fdopendir(task_fd) : NULL;
    if (directory == NULL) {
        if (task_fd >= 0)
            (void)close(task_fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid > 0 && tid != process->pid)
            wait_if_ended(tid);
    }
    (void)closedir(directory);
}

static struct timespec next_time(void) {
    struct timespec time = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_nsec += PERIOD_NS;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void *reap(void *reaper_pointer) {
    struct reaper *reaper = reaper_pointer;
    (void)pthread_mutex_lock(&reaper->mutex);
    while (!reaper->done) {
        struct timespec until = next_time();
        if (pthread_cond_timedwait(&reaper->changed, &reaper->mutex, &until) == ETIMEDOUT && !reaper->done)
            wait_for_ended(reaper->process);
    }
    (void)pthread_mutex_unlock(&reaper->mutex);
    return NULL;
}

/* The program's signals are for threads that expect them. */
static int start_without_signals(struct reaper *reaper) {
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&reaper->thread, NULL, reap, reaper);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

enum status reaper_start(struct reaper *reaper, const struct process *process, struct error *error) {
    if (reaper->running)
        return STATUS_OK;
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&reaper->mutex, NULL);
    (void)pthread_cond_init(&reaper->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    reaper->process = process;
    int result = start_without_signals(reaper);
    reaper->running = result == 0;
    return result == 0 ? STATUS_OK
                       : error_set(error, STATUS_FAILED, "cannot start a thread to stop process %d: %s",
                                   (int)process->pid, strerror(result));
}

void reaper_stop(struct reaper *reaper) {
    if (!reaper->running)
        return;
    (void)pthread_mutex_lock(&reaper->mutex);
    reaper->done = true;
    (void)pthread_cond_signal(&reaper->changed);
    (void)pthread_mutex_unlock(&reaper->mutex);
    (void)pthread_join(reaper->thread, NULL);
    (void)pthread_cond_destroy(&reaper->changed);
    (void)pthread_mutex_destroy(&reaper->mutex);
    reaper->running = false;
}
