/* Many pauses of a process whose threads are seized once. */
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAUSES = 300 };

static struct process *hold_process(pid_t pid) {
    struct error error = {0};
    struct process *process = child_open(pid);
    if (process_hold(process, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return process;
}

static void sleep_1ms(void) {
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Returns when a counter has moved on from `from`, serving the process (if any) meanwhile. Fails after 20 s. */
static void await_progress(struct process *process, volatile const uint64_t *counter, uint64_t from) {
    for (int i = 0; i < 20000 && *counter == from; i++) {
        if (process != NULL)
            process_serve(process);
        sleep_1ms();
    }
    assert_true(*counter != from);
}

static void test_many_pauses(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_spin_in_threads, NULL);
    struct process *process = hold_process(pid);
    for (int i = 0; i < PAUSES; i++) {
        spinners_pause(process);
        assert_int_equal(spinners_expect_stopped(process, pid), SPINNERS + 1);
        process_resume(process);
    }
    for (size_t i = 0; i < SPINNERS; i++)
        await_progress(process, &shared->counters[i], shared->counters[i]);
    /* A pause without a resume: letting go resumes, and the next pauser is welcome. */
    spinners_pause(process);
    process_let_go(process);
    for (size_t i = 0; i < SPINNERS; i++)
        await_progress(NULL, &shared->counters[i], shared->counters[i]);
    assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
    process_free(process);
    child_end(pid);
}

static void test_threads_come_and_go(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_start_threads_for_ever, NULL);
    struct process *process = hold_process(pid);
    for (int i = 0; i < PAUSES; i++) {
        uint64_t before = shared->threads_started;
        spinners_pause(process);
        (void)spinners_expect_stopped(process, pid);
        process_resume(process);
        await_progress(process, &shared->threads_started, before);
    }
    process_free(process);
    child_end(pid);
}

/* Each delivery waits for process_serve, and the kernel delivers SIGALRM before SIGRTMIN: a timer faster than the
 * serving would keep the others back. */
static struct spinners_timer slow_timer = {.period_us = 20000};

static void test_signals_are_passed_on(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_take_signals, &slow_timer);
    struct process *process = hold_process(pid);
    union sigval value = {.sival_int = SPINNERS_VALUE};
    for (int i = 0; i < PAUSES; i++) {
        assert_int_equal(sigqueue(pid, SIGRTMIN, value), 0);
        spinners_pause(process);
        assert_int_equal(sigqueue(pid, SIGRTMIN, value), 0);
        process_resume(process);
        process_serve(process);
    }
    for (int i = 0; i < 20000 && shared->signals[1] < 2 * (uint64_t)PAUSES; i++) {
        process_serve(process);
        sleep_1ms();
    }
    assert_int_equal(shared->signals[1], 2 * (uint64_t)PAUSES);
    await_progress(process, &shared->signals[0], shared->signals[0]);
    process_free(process);
    child_end(pid);
}

static void test_job_control(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_spin_in_threads, NULL);
    struct process *process = hold_process(pid);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    for (int i = 0; i < 50; i++) {
        process_serve(process);
        sleep_1ms();
    }
    for (int i = 0; i < 10; i++) {
        spinners_pause(process);
        process_resume(process);
    }
    uint64_t before = shared->counters[0];
    for (int i = 0; i < 30; i++) {
        process_serve(process);
        sleep_1ms();
    }
    assert_int_equal(shared->counters[0], before);
    assert_int_equal(kill(pid, SIGCONT), 0);
    await_progress(process, &shared->counters[0], before);
    process_free(process);
    child_end(pid);
}

static pid_t holders_target;

static void hold_and_idle(void *unused) {
    struct process *process = hold_process(holders_target);
    spinners_pause(process);
    child_idle(unused);
}

static void test_a_killed_holder_lets_go(void **state) {
    (void)state;
    holders_target = child_start(spinners_spin_in_threads, NULL);
    pid_t holder = child_start(hold_and_idle, NULL);
    uint64_t before = shared->counters[0];
    child_end(holder);
    await_progress(NULL, &shared->counters[0], before);
    child_end(holders_target);
}

enum { EXECS = 40, BESIDE_EXEC = 60 };

static void *exec_now(void *delay_us) {
    (void)usleep((useconds_t)(uintptr_t)delay_us);
    (void)execlp("sleep", "sleep", "1000", (char *)NULL);
    return NULL;
}

static void *wait_for_ever(void *unused) {
    for (;;)
        (void)pause();
    return unused;
}

static void exec_from_a_thread(void *delay_us) {
    pthread_t thread;
    for (size_t i = 0; i < BESIDE_EXEC; i++)
        if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0)
            _exit(98);
    child_ready();
    (void)pthread_create(&thread, NULL, exec_now, delay_us);
    (void)wait_for_ever(NULL);
}

static void serve(struct process *process) {
    process_serve(process);
    sleep_1ms();
}

/* Some of the threads have stopped when the exec of another ends them: they are not waited for. */
static void pause_and_resume(struct process *process) {
    struct timespec start, end;
    struct error ignored = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    if (process_pause(process, &ignored) == STATUS_OK)
        process_resume(process);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - start.tv_sec < 4);
}

static void ask_whether_alive(struct process *process) {
    assert_true(process_alive(process));
}

/* An exec waits until the tracer has waited for the other threads, and seizing one more waits for the exec. */
static void assert_exec_goes_on(void (*meanwhile)(struct process *process)) {
    for (uintptr_t i = 0; i < EXECS; i++) {
        /* Before, while and after the threads are seized. */
        pid_t pid = child_start(exec_from_a_thread, (void *)(i * 20));
        struct process *process = hold_process(pid);
        char path[64] = "";
        while (process_read_executable(process, path, sizeof path) != STATUS_OK || strstr(path, "test_hold") != NULL)
            meanwhile(process);
        spinners_pause(process);
        assert_true(child_thread_state(pid, pid) == 't');
        process_resume(process);
        process_free(process);
        child_end(pid);
    }
}

static void test_an_exec_is_not_held_up(void **state) {
    (void)state;
    assert_exec_goes_on(serve);
}

static void test_an_exec_goes_on_between_pauses(void **state) {
    (void)state;
    assert_exec_goes_on(pause_and_resume);
}

/* The first thread has ended then, and the one that takes its place is not there yet. */
static void test_what_execs_is_alive(void **state) {
    (void)state;
    assert_exec_goes_on(ask_whether_alive);
}

static void spin_and_leave(void *unused) {
    pthread_t threads[SPINNERS];
    for (size_t i = 0; i < SPINNERS; i++)
        (void)pthread_create(&threads[i], NULL, spinners_spin, (void *)(uintptr_t)&shared->counters[i]);
    child_ready();
    while (shared->signals[0] == 0)
        (void)usleep(1000);
    pthread_exit(unused);
}

/* The others do not stand still for as long as it takes to see that it does not stop. */
static void test_a_first_thread_that_has_ended(void **state) {
    (void)state;
    pid_t pid = child_start(spin_and_leave, NULL);
    struct process *process = hold_process(pid);
    shared->signals[0] = 1;
    child_await_state(pid, pid, "Z");
    for (int i = 0; i < 3; i++) {
        pause_and_resume(process);
        await_progress(process, &shared->counters[0], shared->counters[0]);
    }
    process_free(process);
    child_end(pid);
}

/* The exit status stays for who started the process, here this program. */
static void test_the_end(void **state) {
    (void)state;
    pid_t pid = child_start(spinners_spin_in_threads, NULL);
    struct process *process = hold_process(pid);
    assert_int_equal(kill(pid, SIGTERM), 0);
    int status = 0;
    pid_t buried = 0;
    for (int i = 0; i < 20000 && buried == 0; i++) {
        process_serve(process);
        siginfo_t info = {0};
        /* Not by waitpid, which would take the stops from process_serve. */
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_code == CLD_KILLED)
            buried = waitpid(pid, &status, 0);
        else
            sleep_1ms();
    }
    assert_int_equal(buried, pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    struct error error = {0};
    assert_int_equal(process_pause(process, &error), STATUS_NO_PROCESS);
    process_free(process);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_pauses, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_threads_come_and_go, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_signals_are_passed_on, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_job_control, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_a_killed_holder_lets_go, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_an_exec_is_not_held_up, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_an_exec_goes_on_between_pauses, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_what_execs_is_alive, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_a_first_thread_that_has_ended, spinners_set_up, spinners_tear_down),
        cmocka_unit_test_setup_teardown(test_the_end, spinners_set_up, spinners_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
