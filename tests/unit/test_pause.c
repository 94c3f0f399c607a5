#include "child.h"
#include "process/process.h"
#include "spinners.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Returns when all have moved on from `from`. Fails after 20 s. */
static void await_progress(const uint64_t from[SPINNERS]) {
    for (int i = 0; i < 20000; i++) {
        size_t moved = 0;
        for (size_t k = 0; k < SPINNERS; k++)
            moved += shared->counters[k] != from[k];
        if (moved == SPINNERS)
            return;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail_msg("the threads do not go on");
}

static void copy_counters(uint64_t to[SPINNERS]) {
    for (size_t i = 0; i < SPINNERS; i++)
        to[i] = shared->counters[i];
}

/* A stopped thread cannot count however long one waits; a running one would in far less than this. */
static void expect_standstill(void) {
    uint64_t before[SPINNERS], after[SPINNERS];
    copy_counters(before);
    (void)nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    copy_counters(after);
    assert_memory_equal(before, after, sizeof before);
}

static void test_all_threads_stand_still_and_go_on(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_spin_in_threads, NULL);
    struct process *process = child_open(pid);
    uint64_t from[SPINNERS] = {0};
    for (int i = 0; i < 3; i++) {
        await_progress(from);
        spinners_pause(process);
        expect_standstill();
        copy_counters(from);
        process_resume(process);
        process_resume(process);
    }
    await_progress(from);
    spinners_pause(process);
    copy_counters(from);
    /* Closing resumes too. */
    process_free(process);
    await_progress(from);
    child_end(pid);
}

static void test_threads_born_meanwhile_are_stopped(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_start_threads_for_ever, NULL);
    struct process *process = child_open(pid);
    for (int i = 0; i < 50; i++) {
        spinners_pause(process);
        uint64_t before = shared->threads_started;
        (void)spinners_expect_stopped(process, pid);
        assert_int_equal(shared->threads_started, before);
        process_resume(process);
    }
    uint64_t before = shared->threads_started;
    while (shared->threads_started == before)
        (void)sched_yield();
    process_free(process);
    child_end(pid);
}

static pid_t pausers_target;

static void pause_and_idle(void *unused) {
    struct error error = {0};
    struct process *process = NULL;
    if (process_open(pausers_target, &process, &error) != STATUS_OK || process_pause(process, &error) != STATUS_OK)
        _exit(97);
    child_idle(unused);
}

static void test_a_killed_pauser_lets_go(void **state) {
    (void)state;
    pausers_target = child_start(spinners_spin_in_threads, NULL);
    pid_t pauser = child_start(pause_and_idle, NULL);
    expect_standstill();
    uint64_t from[SPINNERS];
    copy_counters(from);
    child_end(pauser);
    await_progress(from);
    child_end(pausers_target);
}

static struct spinners_timer quick_timer = {.period_us = 300};

/* Queued signals (real-time, with a value) are counted one by one: none is lost, doubled or changed, whether it comes
 * before, in or after the stop. */
static void test_signals_are_neither_lost_nor_changed(void **state) {
    (void)state;
    const uint64_t rounds = 300;
    pid_t pid = child_start(spinners_take_signals, &quick_timer);
    struct process *process = child_open(pid);
    union sigval value = {.sival_int = SPINNERS_VALUE};
    for (int i = 0; i < (int)rounds; i++) {
        assert_int_equal(sigqueue(pid, SIGRTMIN, value), 0);
        spinners_pause(process);
        assert_int_equal(sigqueue(pid, SIGRTMIN, value), 0);
        process_resume(process);
        assert_int_equal(sigqueue(pid, SIGRTMIN, value), 0);
    }
    for (int i = 0; i < 20000 && shared->signals[1] < 3 * rounds; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(shared->signals[1], 3 * rounds);
    assert_int_equal(shared->signals[2], 0);
    assert_true(shared->signals[0] > 0);
    process_free(process);
    child_end(pid);
}

static void test_a_stopped_program_stays_stopped(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_spin_in_threads, NULL);
    struct process *process = child_open(pid);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    child_await_state(pid, pid, "T");
    spinners_pause(process);
    expect_standstill();
    process_resume(process);
    child_await_state(pid, pid, "T");
    expect_standstill();
    uint64_t from[SPINNERS];
    copy_counters(from);
    assert_int_equal(kill(pid, SIGCONT), 0);
    await_progress(from);
    process_free(process);
    child_end(pid);
}

/* The other way round: the program's own stop and continuation while it is paused. */
static void test_stop_and_continue_while_paused(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_spin_in_threads, NULL);
    struct process *process = child_open(pid);
    uint64_t from[SPINNERS] = {0};
    await_progress(from);
    spinners_pause(process);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    process_resume(process);
    child_await_state(pid, pid, "T");
    expect_standstill();
    spinners_pause(process);
    copy_counters(from);
    assert_int_equal(kill(pid, SIGCONT), 0);
    expect_standstill();
    process_resume(process);
    await_progress(from);
    process_free(process);
    child_end(pid);
}

static void test_a_kill_while_paused_goes_through(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_spin_in_threads, NULL);
    struct process *process = child_open(pid);
    spinners_pause(process);
    assert_int_equal(kill(pid, SIGKILL), 0);
    process_resume(process);
    /* The resume must not have taken the exit status away from the parent. */
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    process_free(process);
}

static void trace_and_idle(void *target) {
    if (ptrace(PTRACE_SEIZE, *(pid_t *)target, NULL, NULL) != 0)
        _exit(97);
    child_idle(NULL);
}

static void test_refuses_a_process_under_a_debugger(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_spin_in_threads, NULL);
    pid_t debugger = child_start(trace_and_idle, &pid);
    struct process *process = child_open(pid);
    struct error error = {0};
    assert_int_equal(process_pause(process, &error), STATUS_PERMISSION);
    assert_non_null(strstr(error.text, "traces it already"));
    uint64_t from[SPINNERS];
    copy_counters(from);
    await_progress(from);
    process_free(process);
    child_end(debugger);
    child_end(pid);
}

/* What vfork does (on its own stack, so that the child may do as it likes): the parent is in uninterruptible sleep
 * until its child is gone. */
static void block_in_vfork(void *unused) {
    (void)unused;
    child_ready();
    if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, NULL) == 0) {
        while (shared->counters[1] == 0)
            shared->counters[0]++;
        _exit(0);
    }
    for (;;)
        shared->counters[2]++;
}

static void test_a_blocked_thread_does_not_hold_up(void **state) {
    (void)state;
    pid_t pid = child_start(block_in_vfork, NULL);
    child_await_state(pid, pid, "D");
    struct process *process = child_open(pid);
    spinners_pause(process);
    struct system_threads threads;
    struct error error = {0};
    assert_int_equal(process_read_threads(process, true, &threads, &error), STATUS_OK);
    assert_int_equal(threads.count, 1);
    system_threads_release(&threads);
    process_resume(process);
    /* It traps as soon as it can; the next resume, or the end of strobe, lets it go. */
    shared->counters[1] = 1;
    child_await_state(pid, pid, "t");
    spinners_pause(process);
    assert_int_equal(shared->counters[2], 0);
    process_resume(process);
    while (shared->counters[2] == 0)
        (void)sched_yield();
    process_free(process);
    child_end(pid);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_threads_stand_still_and_go_on, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_threads_born_meanwhile_are_stopped, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_a_killed_pauser_lets_go, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_signals_are_neither_lost_nor_changed, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_a_stopped_program_stays_stopped, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_stop_and_continue_while_paused, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_a_kill_while_paused_goes_through, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_refuses_a_process_under_a_debugger, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_a_blocked_thread_does_not_hold_up, spinners_set_up, spinners_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
