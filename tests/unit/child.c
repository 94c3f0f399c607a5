#include "child.h"

#include "process/process.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static int ready_fd = -1;

void child_ready(void) {
    if (write(ready_fd, "", 1) != 1)
        _exit(99);
}

void child_idle(void *unused) {
    (void)unused;
    child_ready();
    for (;;)
        (void)pause();
}

pid_t child_start(void (*function)(void *), void *argument) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(ends[0]);
        ready_fd = ends[1];
        function(argument);
        _exit(0);
    }
    (void)close(ends[1]);
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), 1);
    (void)close(ends[0]);
    return pid;
}

static pid_t run(const char *const *command, int *output_fd) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)execvp(command[0], (char *const *)(uintptr_t)command);
        _exit(127);
    }
    (void)close(ends[1]);
    *output_fd = ends[0];
    return pid;
}

pid_t child_run_until_output(const char *const *command) {
    int output_fd = -1;
    pid_t pid = run(command, &output_fd);
    char byte;
    ssize_t size = read(output_fd, &byte, 1);
    (void)close(output_fd);
    if (size != 1)
        fail_msg("%s printed nothing", command[0]);
    return pid;
}

void child_copy_file(const char *from, const char *to) {
    char bytes[1 << 16];
    int from_fd = open(from, O_RDONLY | O_CLOEXEC);
    int to_fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    assert_true(from_fd >= 0 && to_fd >= 0);
    ssize_t size = 0;
    while ((size = read(from_fd, bytes, sizeof bytes)) > 0)
        assert_int_equal(write(to_fd, bytes, (size_t)size), size);
    assert_int_equal(size, 0);
    (void)close(from_fd);
    (void)close(to_fd);
}

void child_end(pid_t pid) {
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

char child_thread_state(pid_t pid, pid_t tid) {
    char path[64], text[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    (void)fclose(file);
    const char *close = strrchr(text, ')');
    return close != NULL && strlen(close) > 2 ? close[2] : 0;
}

void child_await_state(pid_t pid, pid_t tid, const char *states) {
    for (int i = 0; i < 10000; i++) {
        char state = child_thread_state(pid, tid);
        if (state != 0 && strchr(states, state) != NULL)
            return;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail_msg("thread %d of %d did not reach state %s", (int)tid, (int)pid, states);
}

struct process *child_open(pid_t pid) {
    struct error error = {0};
    struct process *process = NULL;
    if (process_open(pid, &process, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_non_null(process);
    return process;
}
