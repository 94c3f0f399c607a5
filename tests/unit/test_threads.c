#include "child.h"
#include "process/thread_watch.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { THREADS = 100 };

/* Shared with the child. */
struct shared {
    pid_t sleeper, spinner, waiter;
    pid_t many[THREADS];
    uint32_t futex_word;
    volatile uint64_t counter;
};

static struct shared *shared;

static void *sleep_for_ever(void *tid) {
    (void)prctl(PR_SET_NAME, "a) R (\n");
    __atomic_store_n((pid_t *)tid, gettid(), __ATOMIC_RELEASE);
    for (;;)
        (void)pause();
    return NULL;
}

static void *spin(void *tid) {
    (void)prctl(PR_SET_NAME, "spinner");
    __atomic_store_n((pid_t *)tid, gettid(), __ATOMIC_RELEASE);
    for (;;)
        shared->counter++;
    return NULL;
}

static void *wait_on_futex(void *tid) {
    (void)prctl(PR_SET_NAME, "fifteen letters");
    __atomic_store_n((pid_t *)tid, gettid(), __ATOMIC_RELEASE);
    for (;;)
        (void)syscall(SYS_futex, &shared->futex_word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return NULL;
}

static void start(void *(*function)(void *), pid_t *tid) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, tid) != 0)
        _exit(98);
    while (__atomic_load_n(tid, __ATOMIC_ACQUIRE) == 0)
        (void)sched_yield();
}

static void start_three(void *unused) {
    start(sleep_for_ever, &shared->sleeper);
    start(spin, &shared->spinner);
    start(wait_on_futex, &shared->waiter);
    child_idle(unused);
}

static void start_many(void *unused) {
    for (size_t i = 0; i < THREADS; i++)
        start(sleep_for_ever, &shared->many[i]);
    child_idle(unused);
}

static int set_up(void **state) {
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

static int tear_down(void **state) {
    (void)state;
    return munmap(shared, sizeof *shared);
}

static struct process *open_process(pid_t pid) {
    struct error error = {0};
    struct process *process = NULL;
    if (process_open(pid, &process, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return process;
}

static const struct system_thread *find(const struct system_threads *threads, pid_t tid) {
    for (size_t i = 0; i < threads->count; i++)
        if (threads->items[i].tid == tid)
            return &threads->items[i];
    fail_msg("no thread %d", (int)tid);
    return NULL;
}

static void check_three(struct process *process, pid_t pid, bool with_futexes) {
    struct system_threads threads;
    struct error error = {0};
    assert_int_equal(process_read_threads(process, with_futexes, &threads, &error), STATUS_OK);
    assert_int_equal(threads.count, 4);
    assert_int_equal(find(&threads, pid)->state, THREAD_IDLE);
    assert_int_equal(find(&threads, pid)->futex_address, 0);

    const struct system_thread *sleeper = find(&threads, shared->sleeper);
    assert_int_equal(sleeper->state, THREAD_IDLE);
    assert_int_equal(sleeper->own_tid, sleeper->tid);
    assert_string_equal(sleeper->comm, "a) R (\n");

    const struct system_thread *spinner = find(&threads, shared->spinner);
    assert_int_equal(spinner->state, THREAD_RUNNING);
    assert_int_equal(spinner->futex_address, 0);

    const struct system_thread *waiter = find(&threads, shared->waiter);
    assert_int_equal(waiter->state, THREAD_IDLE);
    assert_string_equal(waiter->comm, "fifteen letters");
    remote_addr word = (remote_addr)(uintptr_t)&shared->futex_word;
    assert_int_equal(waiter->futex_address, with_futexes ? word : 0);
    system_threads_release(&threads);
}

static void check_one(struct process *process) {
    struct system_thread thread = {0};
    assert_int_equal(process_read_thread(process, shared->spinner, &thread), STATUS_OK);
    assert_int_equal(thread.tid, shared->spinner);
    assert_int_equal(thread.state, THREAD_RUNNING);
    assert_int_equal(process_read_own_thread(process, (uint64_t)shared->sleeper, &thread), STATUS_OK);
    assert_int_equal(thread.own_tid, shared->sleeper);
    assert_int_equal(thread.state, THREAD_IDLE);
    /* A thread of another process, and none. */
    assert_int_equal(process_read_thread(process, getpid(), &thread), STATUS_NO_PROCESS);
    assert_int_equal(process_read_own_thread(process, UINT64_C(1) << 32 | (uint64_t)shared->sleeper, &thread),
                     STATUS_NOT_FOUND);
    assert_int_equal(process_read_own_thread(process, 0, &thread), STATUS_NOT_FOUND);
}

static void check_watch(struct process *process, pid_t tid, enum thread_run_state state, remote_addr futex) {
    struct thread_watch *watch = NULL;
    enum thread_run_state told = THREAD_RUNNING;
    remote_addr waited_on = 1;
    assert_int_equal(thread_watch_open(process, tid, &watch), STATUS_OK);
    assert_int_equal(thread_watch_state(watch, &told), STATUS_OK);
    assert_int_equal(told, state);
    assert_int_equal(thread_watch_futex(watch), futex);
    assert_int_equal(thread_watch_wait(watch, &told, &waited_on), STATUS_OK);
    assert_int_equal(told, state);
    assert_int_equal(waited_on, futex);
    thread_watch_free(watch);
}

static void test_watches(void **state) {
    (void)state;
    pid_t pid = child_start(start_three, NULL);
    child_await_state(pid, shared->sleeper, "S");
    child_await_state(pid, shared->waiter, "S");
    struct process *process = open_process(pid);
    struct thread_watch *watch = NULL;
    enum thread_run_state told = THREAD_IDLE;
    remote_addr futex = 0;
    check_watch(process, shared->sleeper, THREAD_IDLE, 0);
    check_watch(process, shared->spinner, THREAD_RUNNING, 0);
    check_watch(process, shared->waiter, THREAD_IDLE, (remote_addr)(uintptr_t)&shared->futex_word);
    assert_int_equal(thread_watch_open(process, shared->sleeper, &watch), STATUS_OK);
    child_end(pid);
    assert_int_equal(thread_watch_wait(watch, &told, &futex), STATUS_NO_PROCESS);
    thread_watch_free(watch);
    process_free(process);
}

static void test_states_names_and_futexes(void **state) {
    (void)state;
    pid_t pid = child_start(start_three, NULL);
    child_await_state(pid, pid, "S");
    child_await_state(pid, shared->sleeper, "S");
    child_await_state(pid, shared->waiter, "S");
    struct process *process = open_process(pid);
    check_three(process, pid, false);
    check_three(process, pid, true);
    check_one(process);
    /* While all are stopped the states are those from before. */
    struct error error = {0};
    assert_int_equal(process_pause(process, &error), STATUS_OK);
    assert_int_equal(child_thread_state(pid, shared->spinner), 't');
    check_three(process, pid, true);
    process_resume(process);
    child_await_state(pid, shared->spinner, "R");
    process_free(process);
    child_end(pid);
}

static void test_a_hundred_threads(void **state) {
    (void)state;
    pid_t pid = child_start(start_many, NULL);
    struct process *process = open_process(pid);
    struct system_threads threads;
    struct error error = {0};
    assert_int_equal(process_read_threads(process, false, &threads, &error), STATUS_OK);
    assert_int_equal(threads.count, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        (void)find(&threads, shared->many[i]);
    system_threads_release(&threads);
    assert_int_equal(process_list_threads(process, &threads, &error), STATUS_OK);
    assert_int_equal(threads.count, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(find(&threads, shared->many[i])->own_tid, shared->many[i]);
    system_threads_release(&threads);
    process_free(process);
    child_end(pid);
}

/* The ids inside a PID namespace are those that the process itself would name. */
static void test_nested_pid_namespace(void **state) {
    (void)state;
    if (geteuid() != 0)
        skip();
    const char *const command[] = {
        "unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "echo $$; while :; do read x; done", NULL};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int input = dup(STDIN_FILENO);
    (void)dup2(ends[0], STDIN_FILENO);
    pid_t outer = child_run_until_output(command);
    (void)dup2(input, STDIN_FILENO);
    char path[64], text[64] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)outer, (int)outer);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    (void)fclose(file);
    pid_t inner = (pid_t)strtol(text, NULL, 10);
    assert_true(inner > 0);

    struct process *process = open_process(inner);
    assert_int_equal(process_pid(process), inner);
    assert_int_equal(process_own_pid(process), 1);
    struct system_threads threads;
    struct error error = {0};
    assert_int_equal(process_read_threads(process, false, &threads, &error), STATUS_OK);
    assert_int_equal(threads.count, 1);
    assert_int_equal(threads.items[0].tid, inner);
    assert_int_equal(threads.items[0].own_tid, 1);
    system_threads_release(&threads);
    assert_int_equal(process_list_threads(process, &threads, &error), STATUS_OK);
    assert_int_equal(threads.count, 1);
    assert_int_equal(threads.items[0].own_tid, 0);
    assert_int_equal(process_read_thread(process, inner, &threads.items[0]), STATUS_OK);
    assert_int_equal(threads.items[0].own_tid, 1);
    assert_int_equal(process_read_own_thread(process, 1, &threads.items[0]), STATUS_NOT_FOUND);
    system_threads_release(&threads);
    process_free(process);
    (void)close(input);
    (void)close(ends[0]);
    (void)close(ends[1]);
    child_end(outer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_states_names_and_futexes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_watches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_hundred_threads, set_up, tear_down),
        cmocka_unit_test(test_nested_pid_namespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
