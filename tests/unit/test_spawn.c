#include "process/process.h"
#include "process/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000 };

static struct spawn *open_spawn(const char *const *command) {
    struct error error = {0};
    struct spawn *spawn = NULL;
    if (spawn_open((char *const *)(uintptr_t)command, &spawn, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return spawn;
}

static struct spawn *start_shell(const char *script) {
    const char *const command[] = {"sh", "-c", script, NULL};
    struct error error = {0};
    struct spawn *spawn = open_spawn(command);
    if (spawn_start(spawn, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return spawn;
}

static struct spawn_news await_news(struct spawn *spawn) {
    struct spawn_news news;
    struct pollfd poll_fd = {.fd = spawn_fd(spawn), .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, PATIENCE_MS), 1);
    spawn_poll(spawn, &news);
    return news;
}

static int await_end(struct spawn *spawn) {
    for (;;) {
        struct spawn_news news = await_news(spawn);
        if (news.ended)
            return spawn_exit_code(news.wait_status);
    }
}

/* A line from a command that writes to the test's pipe, descriptor 9. */
static void expect_line(int fd, const char *line) {
    char text[64] = "";
    assert_int_equal(read(fd, text, strlen(line)), strlen(line));
    assert_string_equal(text, line);
}

static void test_exit_codes(void **state) {
    (void)state;
    static const struct {
        const char *script;
        int code;
    } cases[] = {{"exit 0", 0}, {"exit 42", 42}, {"kill -TERM $$", 128 + SIGTERM}, {"kill -SEGV $$", 128 + SIGSEGV}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spawn *spawn = start_shell(cases[i].script);
        assert_int_equal(await_end(spawn), cases[i].code);
        spawn_close(spawn);
    }
}

static void test_commands_that_are_none(void **state) {
    (void)state;
    static const char *const absent[] = {"/nonexistent/command", NULL}, *const folder[] = {"/tmp", NULL};
    struct error error = {0};
    struct spawn *spawn = open_spawn(absent);
    assert_int_equal(spawn_start(spawn, &error), STATUS_NOT_FOUND);
    spawn_close(spawn);
    spawn = open_spawn(folder);
    assert_int_equal(spawn_start(spawn, &error), STATUS_PERMISSION);
    spawn_close(spawn);
    assert_int_equal(waitpid(-1, NULL, 0), -1);
}

static void test_a_child_that_was_never_started_ends(void **state) {
    (void)state;
    static const char *const command[] = {"sleep", "1000", NULL};
    struct spawn *spawn = open_spawn(command);
    pid_t pid = spawn_pid(spawn);
    spawn_close(spawn);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
}

/* Its end of the pipe is inherited: standard streams and other descriptors pass. */
static void test_sent_signals_are_passed_on(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], 9), 9);
    struct spawn *spawn = start_shell("trap 'echo usr1 >&9' USR1; trap 'echo term >&9; exit 7' TERM; echo up >&9; "
                                      "while :; do sleep 0.01; done");
    expect_line(ends[0], "up\n");
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    struct spawn_news news = await_news(spawn);
    assert_false(news.interrupted);
    expect_line(ends[0], "usr1\n");
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    assert_int_equal(await_end(spawn), 7);
    expect_line(ends[0], "term\n");
    spawn_close(spawn);
    for (int i = 0; i < 2; i++)
        (void)close(ends[i]);
    (void)close(9);
}

/* Those that would end or stop strobe, and leave the command alone. */
static void test_all_sent_signals_are_passed_on(void **state) {
    (void)state;
    const int signals[] = {SIGABRT, SIGALRM, SIGVTALRM, SIGPROF,  SIGIO,    SIGPWR,
                           SIGTTIN, SIGTTOU, SIGWINCH,  SIGRTMIN, SIGRTMAX, SIGUSR2};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        char script[128];
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(dup2(ends[1], 9), 9);
        (void)snprintf(script, sizeof script, "trap 'exit 7' %d; echo up >&9; while :; do sleep 0.01; done",
                       signals[i]);
        struct spawn *spawn = start_shell(script);
        expect_line(ends[0], "up\n");
        assert_int_equal(kill(getpid(), signals[i]), 0);
        assert_int_equal(await_end(spawn), 7);
        spawn_close(spawn);
        for (int end = 0; end < 2; end++)
            (void)close(ends[end]);
        (void)close(9);
    }
}

/* The kernel tells only the first process of a session that its terminal is gone. */
static int run_in_session_of(int terminal, int hung_up) {
    char go = 0;
    struct error error = {0};
    struct spawn *spawn = NULL;
    const char *const command[] = {"sleep", "1000", NULL};
    /* Who starts the tests may have it ignored (nohup). */
    (void)signal(SIGHUP, SIG_DFL);
    if (setsid() < 0 || ioctl(terminal, TIOCSCTTY, 0) != 0)
        return 100;
    if (spawn_open((char *const *)(uintptr_t)command, &spawn, &error) != STATUS_OK ||
        spawn_start(spawn, &error) != STATUS_OK || write(hung_up, &go, 1) != 1)
        return 101;
    struct spawn_news news = {0};
    for (struct pollfd poll_fd = {.fd = spawn_fd(spawn), .events = POLLIN}; !news.ended;) {
        if (poll(&poll_fd, 1, PATIENCE_MS) != 1) {
            (void)kill(spawn_pid(spawn), SIGKILL);
            return 102;
        }
        spawn_poll(spawn, &news);
    }
    return spawn_exit_code(news.wait_status);
}

static void test_a_terminal_that_hangs_up(void **state) {
    (void)state;
    int ends[2], status = 0;
    char ready = 0;
    int keyboard = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(keyboard >= 0 && grantpt(keyboard) == 0 && unlockpt(keyboard) == 0);
    int terminal = open(ptsname(keyboard), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(terminal >= 0);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(keyboard);
        _exit(run_in_session_of(terminal, ends[1]));
    }
    assert_int_equal(read(ends[0], &ready, 1), 1);
    (void)close(keyboard);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(spawn_exit_code(status), 128 + SIGHUP);
    (void)close(terminal);
    for (int end = 0; end < 2; end++)
        (void)close(ends[end]);
}

static void test_an_interrupt_is_told(void **state) {
    (void)state;
    struct spawn *spawn = start_shell("exec sleep 1000");
    assert_int_equal(kill(getpid(), SIGINT), 0);
    bool interrupted = false;
    struct spawn_news news = {0};
    while (!news.ended) {
        news = await_news(spawn);
        interrupted |= news.interrupted;
    }
    assert_true(interrupted);
    assert_int_equal(spawn_exit_code(news.wait_status), 128 + SIGINT);
    spawn_close(spawn);
}

static void read_status_line(const char *name, char *line, int capacity) {
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, capacity, file) != NULL && strncmp(line, name, strlen(name)) != 0)
        ;
    (void)fclose(file);
    line[strcspn(line, "\n")] = '\0';
}

/* Mask and dispositions, of the command and of strobe afterwards. */
static void test_signals_are_as_without_strobe(void **state) {
    (void)state;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    (void)sigaction(SIGCHLD, &ignore, &before);
    static const char *const names[] = {"SigBlk", "SigIgn"};
    for (int i = 0; i < 2; i++) {
        char line[64], line_after[64];
        read_status_line(names[i], line, sizeof line);
        const char *const command[] = {"grep", "-q", line, "/proc/self/status", NULL};
        struct error error = {0};
        struct spawn *spawn = open_spawn(command);
        assert_int_equal(spawn_start(spawn, &error), STATUS_OK);
        assert_int_equal(await_end(spawn), 0);
        spawn_close(spawn);
        read_status_line(names[i], line_after, sizeof line_after);
        assert_string_equal(line, line_after);
    }
    (void)sigaction(SIGCHLD, &before, NULL);
}

/* Tracing it must not take its exit status away. */
static void test_a_held_command(void **state) {
    (void)state;
    struct spawn *spawn = start_shell("sleep 0.1; kill -USR2 $$; exit 5");
    struct process *process = NULL;
    struct error error = {0};
    assert_int_equal(process_open(spawn_pid(spawn), &process, &error), STATUS_OK);
    assert_int_equal(process_hold(process, &error), STATUS_OK);
    struct spawn_news news = {0};
    while (!news.ended) {
        news = await_news(spawn);
        process_serve(process);
    }
    assert_int_equal(spawn_exit_code(news.wait_status), 128 + SIGUSR2);
    process_free(process);
    spawn_close(spawn);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_commands_that_are_none),
        cmocka_unit_test(test_a_child_that_was_never_started_ends),
        cmocka_unit_test(test_sent_signals_are_passed_on),
        cmocka_unit_test(test_all_sent_signals_are_passed_on),
        cmocka_unit_test(test_a_terminal_that_hangs_up),
        cmocka_unit_test(test_an_interrupt_is_told),
        cmocka_unit_test(test_signals_are_as_without_strobe),
        cmocka_unit_test(test_a_held_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
