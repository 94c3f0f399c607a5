/* measure COMMAND [ARGUMENT...]: runs the command with its output thrown away and prints one line:
 *
 *   wall_ns cpu_ns peak_bytes exit_status
 *
 * A program of its own because the kernel charges a new process with the memory of the one that spawned it: the peak
 * that wait4(2) reports is never below the size of the parent at exec, and a Python is larger than what is measured. */
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t timeval_ns(struct timeval time) {
    return (int64_t)time.tv_sec * 1000000000 + (int64_t)time.tv_usec * 1000;
}

int main(int argc, char **argv) {
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;
    int wait_status = 0;
    struct rusage usage;
    if (argc < 2) {
        fputs("usage: measure COMMAND [ARGUMENT...]\n", stderr);
        return 2;
    }
    if (posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) != 0 ||
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) != 0)
        return 1;
    int64_t start_ns = now_ns();
    int error_number = posix_spawnp(&pid, argv[1], &actions, NULL, argv + 1, environ);
    if (error_number != 0) {
        fprintf(stderr, "measure: cannot run %s: %s\n", argv[1], strerror(error_number));
        return 1;
    }
    if (wait4(pid, &wait_status, 0, &usage) != pid)
        return 1;
    int64_t wall_ns = now_ns() - start_ns;
    (void)posix_spawn_file_actions_destroy(&actions);
    int status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    printf("%" PRId64 " %" PRId64 " %" PRId64 " %d\n", wall_ns, timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime),
           (int64_t)usage.ru_maxrss * 1024, status);
    return 0;
}
