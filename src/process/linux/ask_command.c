#include "process/machine.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Starts it with its output and its errors going to a pipe, in a process group of its own. */
static enum status start(const char *const *command, int output, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    bool ready = false;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return STATUS_FAILED;
    if (posix_spawnattr_init(&attributes) == 0) {
        (void)sigemptyset(&none);
        (void)sigemptyset(&defaults);
        (void)sigaddset(&defaults, SIGPIPE);
        ready = posix_spawnattr_setflags(&attributes,
                                         POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) == 0 &&
                posix_spawnattr_setpgroup(&attributes, 0) == 0 && posix_spawnattr_setsigmask(&attributes, &none) == 0 &&
                posix_spawnattr_setsigdefault(&attributes, &defaults) == 0 &&
                posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0 &&
                posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) == 0 &&
                posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO) == 0 &&
                /* posix_spawn takes the arguments as exec does, which does not write to them. */
                posix_spawn(pid, command[0], &actions, &attributes, (char *const *)(uintptr_t)command, environ) == 0;
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return ready ? STATUS_OK : STATUS_FAILED;
}

/* Reads until the other side is closed; what there is no room for is thrown away. False when it took too long. */
static bool take_output(int fd, uint64_t deadline_ns, char *text, size_t capacity) {
    size_t size_bytes = 0;
    for (;;) {
        char part[512];
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        uint64_t now_ns = clock_monotonic_ns();
        if (now_ns >= deadline_ns || poll(&ready, 1, (int)((deadline_ns - now_ns) / NS_PER_MS + 1)) < 0)
            return false;
        if (ready.revents == 0)
            continue;
        ssize_t got = read(fd, part, sizeof part);
        if (got <= 0)
            return got == 0;
        for (ssize_t i = 0; i < got && size_bytes + 1 < capacity; i++)
            text[size_bytes++] = part[i];
        text[size_bytes] = '\0';
    }
}

/* One that has closed its output has most likely ended. */
static bool await_end(pid_t pid, uint64_t deadline_ns, int *wait_status) {
    const struct timespec pause = {.tv_nsec = (long)NS_PER_MS};
    while (waitpid(pid, wait_status, WNOHANG) != pid) {
        if (clock_monotonic_ns() >= deadline_ns)
            return false;
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

static void end(pid_t pid) {
    (void)kill(-pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

enum status machine_ask_command(const char *const *command, unsigned patience_ms, char *text, size_t capacity) {
    int ends[2], wait_status = 0;
    pid_t pid = 0;
    if (capacity == 0 || pipe2(ends, O_CLOEXEC) != 0)
        return STATUS_FAILED;
    text[0] = '\0';
    enum status status = start(command, ends[1], &pid);
    (void)close(ends[1]);
    if (status == STATUS_OK) {
        uint64_t deadline_ns = clock_monotonic_ns() + patience_ms * NS_PER_MS;
        bool ended = take_output(ends[0], deadline_ns, text, capacity) && await_end(pid, deadline_ns, &wait_status);
        if (!ended)
            end(pid);
        status = ended && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0 ? STATUS_OK : STATUS_FAILED;
    }
    (void)close(ends[0]);
    return status;
}
