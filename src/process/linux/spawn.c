#include "process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* As shells say it. */
enum { EXIT_CANNOT_EXECUTE = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNAL = 128 };

struct spawn {
    pid_t pid;
    int signal_fd;
    int go_fd;     /* written to: the child may exec */
    int failed_fd; /* read from: the errno of an exec that failed; nothing when it did not */
    bool started;
    bool ended;
    int wait_status;
    sigset_t mask_before;
    struct sigaction child_action_before;
    bool signals_taken;
};

static void close_fd(int *fd) {
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* Blocked signals go to the descriptor, also those that were ignored; the child has them as they were. An ignored
 * SIGCHLD would bury the child unseen. */
static enum status take_signals(struct spawn *spawn, struct error *error) {
    static const int taken[] = {SIGINT,  SIGQUIT,   SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGABRT,  SIGALRM, SIGVTALRM,
                                SIGPROF, SIGSTKFLT, SIGIO,   SIGPWR, SIGTTIN, SIGTTOU, SIGWINCH, SIGCHLD};
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigset_t mask;
    (void)sigemptyset(&mask);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        (void)sigaddset(&mask, taken[i]);
    for (int signal = SIGRTMIN; signal <= SIGRTMAX; signal++)
        (void)sigaddset(&mask, signal);
    (void)sigaction(SIGCHLD, &by_default, &spawn->child_action_before);
    (void)sigprocmask(SIG_BLOCK, &mask, &spawn->mask_before);
    spawn->signals_taken = true;
    spawn->signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    if (spawn->signal_fd < 0)
        return error_set(error, STATUS_FAILED, "cannot wait for signals: %s", strerror(errno));
    return STATUS_OK;
}

static void give_signals_back(const struct spawn *spawn) {
    (void)sigaction(SIGCHLD, &spawn->child_action_before, NULL);
    (void)sigprocmask(SIG_SETMASK, &spawn->mask_before, NULL);
}

static ssize_t read_all(int fd, void *buffer, size_t size_bytes) {
    ssize_t size = 0;
    do
        size = read(fd, buffer, size_bytes);
    while (size < 0 && errno == EINTR);
    return size;
}

/* The child. All descriptors of strobe are close-on-exec. */
static _Noreturn void become(const struct spawn *spawn, char *const *command, int go_fd, int failed_fd) {
    char go = 0;
    if (read_all(go_fd, &go, 1) != 1)
        _exit(EXIT_CANNOT_EXECUTE);
    give_signals_back(spawn);
    (void)execvp(command[0], command);
    int error_number = errno;
    (void)!write(failed_fd, &error_number, sizeof error_number);
    _exit(error_number == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE);
}

static enum status start_child(struct spawn *spawn, char *const *command, struct error *error) {
    int go[2] = {-1, -1}, failed[2] = {-1, -1};
    if (pipe2(go, O_CLOEXEC) == 0 && pipe2(failed, O_CLOEXEC) == 0)
        spawn->pid = fork();
    if (spawn->pid == 0) {
        close_fd(&go[1]);
        close_fd(&failed[0]);
        become(spawn, command, go[0], failed[1]);
    }
    int error_number = errno;
    close_fd(&go[0]);
    close_fd(&failed[1]);
    spawn->go_fd = go[1];
    spawn->failed_fd = failed[0];
    if (spawn->pid > 0)
        return STATUS_OK;
    return error_set(error, STATUS_FAILED, "cannot start a process: %s", strerror(error_number));
}

enum status spawn_open(char *const *command, struct spawn **result, struct error *error) {
    *result = NULL;
    struct spawn *spawn = calloc(1, sizeof *spawn);
    if (spawn == NULL)
        return error_set(error, STATUS_FAILED, "out of memory");
    spawn->pid = -1;
    spawn->signal_fd = spawn->go_fd = spawn->failed_fd = -1;
    enum status status = take_signals(spawn, error);
    if (status == STATUS_OK)
        status = start_child(spawn, command, error);
    if (status != STATUS_OK) {
        spawn_close(spawn);
        return status;
    }
    *result = spawn;
    return STATUS_OK;
}

enum status spawn_start(struct spawn *spawn, struct error *error) {
    int error_number = 0;
    bool told = write(spawn->go_fd, "", 1) == 1;
    close_fd(&spawn->go_fd);
    bool failed = read_all(spawn->failed_fd, &error_number, sizeof error_number) == (ssize_t)sizeof error_number;
    close_fd(&spawn->failed_fd);
    spawn->started = told && !failed;
    if (spawn->started)
        return STATUS_OK;
    (void)waitpid(spawn->pid, &spawn->wait_status, 0);
    spawn->ended = true;
    enum status status = error_number == ENOENT                              ? STATUS_NOT_FOUND
                         : error_number == EACCES || error_number == ENOEXEC ? STATUS_PERMISSION
                                                                             : STATUS_FAILED;
    return error_set(error, status, "cannot start the command: %s",
                     error_number != 0 ? strerror(error_number) : "its process has ended");
}

bool spawn_started(const struct spawn *spawn) {
    return spawn->started;
}

pid_t spawn_pid(const struct spawn *spawn) {
    return spawn->pid;
}

int spawn_fd(const struct spawn *spawn) {
    return spawn->signal_fd;
}

/* Where strobe traces the child, a plain waitpid would take its stops from the tracer. */
static void collect_end(struct spawn *spawn) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)spawn->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
        return;
    if (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED)
        spawn->ended = waitpid(spawn->pid, &spawn->wait_status, WNOHANG) == spawn->pid;
}

/* Positive codes are the kernel's: a key at the terminal, or its hanging up. That it tells the first process of the
 * session alone, and the others when that has ended: strobe's command would never hear of it. */
static bool is_to_be_sent(const struct signalfd_siginfo *info) {
    return info->ssi_code <= 0 || (info->ssi_signo == SIGHUP && getsid(0) == getpid());
}

static void send_on(pid_t pid, const struct signalfd_siginfo *info) {
    const union sigval value = {.sival_ptr = (void *)(uintptr_t)info->ssi_ptr};
    if (info->ssi_code == SI_QUEUE)
        (void)sigqueue(pid, (int)info->ssi_signo, value);
    else
        (void)kill(pid, (int)info->ssi_signo);
}

static void take_signal(const struct spawn *spawn, const struct signalfd_siginfo *info, struct spawn_news *news) {
    int signal = (int)info->ssi_signo;
    if (signal == SIGCHLD) {
        news->child_signal = true;
        return;
    }
    if (signal == SIGINT || signal == SIGQUIT)
        news->interrupted = true;
    if (is_to_be_sent(info) && !spawn->ended)
        send_on(spawn->pid, info);
    /* In the background, the whole process group stops when one of it wants the terminal. */
    else if (signal == SIGTTIN || signal == SIGTTOU)
        (void)raise(SIGSTOP);
}

void spawn_poll(struct spawn *spawn, struct spawn_news *news) {
    *news = (struct spawn_news){0};
    if (!spawn->ended)
        collect_end(spawn);
    struct signalfd_siginfo info;
    while (read(spawn->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        take_signal(spawn, &info, news);
    if (!spawn->ended && news->child_signal)
        collect_end(spawn);
    news->ended = spawn->ended;
    news->wait_status = spawn->wait_status;
}

void spawn_close(struct spawn *spawn) {
    if (spawn == NULL)
        return;
    close_fd(&spawn->go_fd);
    close_fd(&spawn->failed_fd);
    close_fd(&spawn->signal_fd);
    if (spawn->signals_taken)
        give_signals_back(spawn);
    free(spawn);
}

int spawn_exit_code(int wait_status) {
    return WIFSIGNALED(wait_status) ? EXIT_SIGNAL + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}
