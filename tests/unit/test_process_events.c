#include "child.h"
#include "process/linux/events.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STORM = 200, PERIOD_NS = 20 * 1000 * 1000, PATIENCE_MS = 20000 };

struct shared {
    volatile pid_t children[STORM];
    volatile pid_t grandchildren[STORM];
    volatile int go;
};

static struct shared *shared;

static int set_up(void **state) {
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

static int tear_down(void **state) {
    (void)state;
    return munmap(shared, sizeof *shared);
}

/* The next event; fails the test when there is none for 20 s. */
static struct process_event await_event(struct process_events *events) {
    struct process_event event;
    for (;;) {
        enum status status = process_events_next(events, &event);
        if (status == STATUS_OK)
            return event;
        assert_int_equal(status, STATUS_NOT_FOUND);
        struct pollfd poll_fd = {.fd = process_events_fd(events), .events = POLLIN};
        assert_int_equal(poll(&poll_fd, 1, PATIENCE_MS), 1);
    }
}

static struct process_events *open_events(pid_t root) {
    struct error error = {0};
    struct process_events *events = NULL;
    if (process_events_open(&root, 1, PERIOD_NS, &events, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return events;
}

/* As where the kernel does not tell. */
static struct process_events *open_scan(pid_t root) {
    struct error error = {0};
    struct process_events *events = calloc(1, sizeof *events);
    assert_int_equal(events_open_timer(events, PERIOD_NS, &error), STATUS_OK);
    assert_int_equal(events_begin(events, root, 0, 0, false), STATUS_OK);
    assert_int_equal(events_scan(events), STATUS_OK);
    return events;
}

static void storm(void *unused) {
    (void)unused;
    child_ready();
    while (!shared->go)
        (void)usleep(1000);
    for (int i = 0; i < STORM; i++) {
        pid_t child = fork();
        if (child == 0) {
            pid_t grandchild = fork();
            if (grandchild == 0)
                _exit(0);
            shared->grandchildren[i] = grandchild;
            (void)waitpid(grandchild, NULL, 0);
            _exit(i % 100);
        }
        shared->children[i] = child;
        (void)waitpid(child, NULL, 0);
    }
}

static int index_of(const volatile pid_t *list, pid_t pid) {
    for (int i = 0; i < STORM; i++)
        if (list[i] == pid)
            return i;
    return -1;
}

/* Two hundred children and as many grandchildren, none of which lives a millisecond: each is told of once. */
static void test_a_storm_of_forks(void **state) {
    (void)state;
    pid_t pid = child_start(storm, NULL);
    struct process_events *events = open_events(pid);
    if (!process_events_complete(events)) {
        process_events_free(events);
        child_end(pid);
        skip();
    }
    struct process_event ends[2 * STORM];
    int forks = 0, exits = 0, known[2][STORM] = {0};
    shared->go = 1;
    for (;;) {
        struct process_event event = await_event(events);
        if (event.kind == PROCESS_EXITED && event.pid == pid)
            break;
        if (event.kind == PROCESS_FORKED) {
            forks++;
            continue;
        }
        assert_int_equal(event.kind, PROCESS_EXITED);
        assert_true(exits < 2 * STORM);
        ends[exits++] = event;
    }
    assert_int_equal(forks, 2 * STORM);
    assert_int_equal(exits, 2 * STORM);
    for (int i = 0; i < exits; i++) {
        int child = index_of(shared->children, ends[i].pid), grandchild = index_of(shared->grandchildren, ends[i].pid);
        assert_true(ends[i].status_known);
        assert_true(child >= 0 || grandchild >= 0);
        if (child >= 0)
            assert_int_equal(WEXITSTATUS(ends[i].wait_status), child % 100);
        known[child >= 0 ? 0 : 1][child >= 0 ? child : grandchild]++;
    }
    for (int i = 0; i < STORM; i++)
        assert_true(known[0][i] == 1 && known[1][i] == 1);
    process_events_free(events);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void run_a_command(void *unused) {
    (void)unused;
    child_ready();
    while (!shared->go)
        (void)usleep(1000);
    pid_t between = fork();
    if (between == 0) {
        pid_t command = fork();
        if (command == 0) {
            while (shared->go < 2)
                (void)usleep(1000);
            (void)execlp("sleep", "sleep", "1000", (char *)NULL);
        }
        shared->children[0] = command;
        (void)pause();
    }
    shared->grandchildren[0] = between;
    for (;;)
        (void)pause();
}

/* The birth of a child and of its child, its exec, its death after that of its parent. */
static void follow_a_command(struct process_events *events) {
    struct process_event first = await_event(events), second = await_event(events);
    assert_int_equal(first.kind, PROCESS_FORKED);
    assert_int_equal(second.kind, PROCESS_FORKED);
    /* They are told of before fork(2) has returned to who writes this down. */
    while (shared->grandchildren[0] == 0 || shared->children[0] == 0)
        (void)usleep(1000);
    pid_t between = shared->grandchildren[0], command = shared->children[0];
    assert_int_equal(first.pid, between);
    assert_int_equal(second.pid, command);
    assert_int_equal(second.parent_pid, between);
    assert_true(first.start_ticks > 0);
    shared->go = 2;
    struct process_event event = await_event(events);
    assert_int_equal(event.kind, PROCESS_EXECED);
    assert_int_equal(event.pid, command);
    /* As when messages were lost: it finds nothing that was not told. */
    assert_int_equal(events_scan(events), STATUS_OK);
    assert_int_equal(kill(between, SIGKILL), 0);
    event = await_event(events);
    assert_int_equal(event.kind, PROCESS_EXITED);
    assert_int_equal(event.pid, between);
    assert_int_equal(kill(command, SIGKILL), 0);
    event = await_event(events);
    assert_int_equal(event.kind, PROCESS_EXITED);
    assert_int_equal(event.pid, command);
    if (process_events_complete(events))
        assert_true(event.status_known && WTERMSIG(event.wait_status) == SIGKILL);
}

static void fork_for_ever(void *unused) {
    (void)unused;
    child_ready();
    for (;;) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        (void)waitpid(pid, NULL, 0);
        (void)usleep(20000);
    }
}

/* In a PID namespace of its own the kernel does not answer, and tells it all the same what it tells another. */
static void open_in_a_namespace(void *unused) {
    struct process_events *events = NULL;
    int status = 0;
    (void)unused;
    child_ready();
    pid_t pid = unshare(CLONE_NEWPID) == 0 ? fork() : -1;
    if (pid == 0) {
        pid_t own = getpid();
        (void)alarm(5);
        enum status opened = process_events_open(&own, 1, PERIOD_NS, &events, NULL);
        _exit(opened == STATUS_OK && !process_events_complete(events) ? 0 : 97);
    }
    (void)waitpid(pid, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 96);
}

/* What the kernel answers others is no answer to this one. */
static void ask_for_ever(void *unused) {
    (void)unused;
    pid_t own = getpid();
    child_ready();
    for (;;) {
        struct process_events *events = NULL;
        if (process_events_open(&own, 1, PERIOD_NS, &events, NULL) == STATUS_OK)
            process_events_free(events);
        (void)usleep(10000);
    }
}

static void test_a_busy_machine_is_not_waited_for(void **state) {
    (void)state;
    pid_t own = getpid();
    struct process_events *events = NULL;
    struct error error = {0};
    int status = 0;
    assert_int_equal(process_events_open(&own, 1, PERIOD_NS, &events, &error), STATUS_OK);
    if (!process_events_complete(events)) {
        process_events_free(events);
        skip();
    }
    pid_t storm = child_start(fork_for_ever, NULL), asking = child_start(ask_for_ever, NULL);
    pid_t inside = child_start(open_in_a_namespace, NULL);
    assert_int_equal(waitpid(inside, &status, 0), inside);
    child_end(asking);
    child_end(storm);
    process_events_free(events);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_a_command(void **state) {
    (void)state;
    pid_t pid = child_start(run_a_command, NULL);
    struct process_events *events = open_events(pid);
    shared->go = 1;
    follow_a_command(events);
    process_events_free(events);
    child_end(pid);
}

static void test_a_command_by_scan(void **state) {
    (void)state;
    pid_t pid = child_start(run_a_command, NULL);
    struct process_events *events = open_scan(pid);
    shared->go = 1;
    follow_a_command(events);
    process_events_free(events);
    child_end(pid);
}

static void test_those_that_live_already(void **state) {
    (void)state;
    pid_t pid = child_start(run_a_command, NULL);
    shared->go = 1;
    while (shared->children[0] == 0)
        (void)usleep(1000);
    struct process_events *events = open_events(pid);
    follow_a_command(events);
    process_events_free(events);
    child_end(pid);
}

/* The first thread waits for the other, or ends before it does. */
static void *become_a_command(void *unused) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it is each thread's own */
    while (!shared->go)
        (void)usleep(1000);
    (void)execlp("sleep", "sleep", "1000", (char *)NULL);
    return unused;
}

static void *outlive_the_first(void *unused) {
    while (shared->go < 2)
        (void)usleep(1000);
    return unused;
}

static void wait_for_the_other(void *unused) {
    pthread_t thread;
    (void)pthread_create(&thread, NULL, become_a_command, unused);
    child_ready();
    (void)pthread_join(thread, NULL);
}

static void leave_the_other(void *unused) {
    pthread_t thread;
    (void)pthread_create(&thread, NULL, outlive_the_first, unused);
    child_ready();
    while (!shared->go)
        (void)usleep(1000);
    pthread_exit(NULL);
}

static void await_command(pid_t pid, const char *command) {
    char path[32], text[32] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    while (strcmp(text, command) != 0) {
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_non_null(fgets(text, sizeof text, file));
        (void)fclose(file);
    }
}

/* It ends the first thread, whose number the other has from then on. Looked at when all that is over. */
static void follow_an_exec_of_another_thread(struct process_events *events, pid_t pid) {
    shared->go = 1;
    await_command(pid, "sleep\n");
    struct process_event event = await_event(events);
    assert_int_equal(event.kind, PROCESS_EXECED);
    assert_int_equal(event.pid, pid);
    assert_int_equal(kill(pid, SIGKILL), 0);
    event = await_event(events);
    assert_int_equal(event.kind, PROCESS_EXITED);
    assert_int_equal(event.pid, pid);
    if (process_events_complete(events))
        assert_true(event.status_known && WTERMSIG(event.wait_status) == SIGKILL);
    process_events_free(events);
    child_end(pid);
}

static void test_an_exec_of_another_thread(void **state) {
    (void)state;
    pid_t pid = child_start(wait_for_the_other, NULL);
    follow_an_exec_of_another_thread(open_events(pid), pid);
}

static void test_an_exec_of_another_thread_by_scan(void **state) {
    (void)state;
    pid_t pid = child_start(wait_for_the_other, NULL);
    follow_an_exec_of_another_thread(open_scan(pid), pid);
}

/* A first thread that has ended is not the end; the last one's is. */
static void test_a_first_thread_that_ends_first(void **state) {
    (void)state;
    pid_t pid = child_start(leave_the_other, NULL);
    struct process_events *events = open_events(pid);
    struct process_event event;
    shared->go = 1;
    child_await_state(pid, pid, "Z");
    assert_int_equal(process_events_next(events, &event), STATUS_NOT_FOUND);
    shared->go = 2;
    /* What looks for leaks at its end (LeakSanitizer) has a child for that. */
    do
        event = await_event(events);
    while (event.pid != pid || event.kind != PROCESS_EXITED);
    process_events_free(events);
    child_end(pid);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_storm_of_forks, set_up, tear_down),
        cmocka_unit_test(test_a_busy_machine_is_not_waited_for),
        cmocka_unit_test_setup_teardown(test_a_command, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_command_by_scan, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_those_that_live_already, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_exec_of_another_thread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_exec_of_another_thread_by_scan, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_first_thread_that_ends_first, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
