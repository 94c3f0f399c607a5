/* Who waits for threads that end while others are seized takes no more than their ends. */
#include "process/linux/reaper.h"

#include "child.h"
#include "spinners.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void *spin_until_told(void *told) {
    while (*(volatile uint64_t *)told == 0)
        continue;
    return NULL;
}

/* Besides the main thread one for each of the first two counters, which it ends by. */
static void spin_two(void *unused) {
    for (size_t i = 0; i < 2; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, spin_until_told, (void *)(uintptr_t)&shared->counters[i]) != 0)
            _exit(98);
    }
    child_idle(unused);
}

/* Fails after 20 s. */
static void await_burial(pid_t pid, pid_t tid) {
    for (int i = 0; i < 20000 && syscall(SYS_tgkill, pid, tid, 0) == 0; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_not_equal(syscall(SYS_tgkill, pid, tid, 0), 0);
}

static void test_a_stop_is_left_to_who_waits_for_it(void **state) {
    (void)state;
    pid_t pid = child_start(spin_two, NULL);
    struct error error = {0};
    struct process *process = NULL;
    struct system_threads threads;
    struct reaper reaper = {0};
    siginfo_t info = {0};
    assert_int_equal(process_open(pid, &process, &error), STATUS_OK);
    assert_int_equal(process_read_threads(process, false, &threads, &error), STATUS_OK);
    assert_int_equal(threads.count, 3);
    pid_t stops = threads.items[1].tid, ends = threads.items[2].tid;
    assert_int_equal(ptrace(PTRACE_SEIZE, stops, NULL, NULL), 0);
    assert_int_equal(ptrace(PTRACE_SEIZE, ends, NULL, NULL), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, stops, NULL, NULL), 0);
    child_await_state(pid, stops, "t");
    shared->counters[1] = 1;

    /* It goes through the threads oldest first, so it has come by the one that stands. */
    assert_int_equal(reaper_start(&reaper, process, &error), STATUS_OK);
    await_burial(pid, ends);
    reaper_stop(&reaper);
    assert_int_equal(waitid(P_PID, (id_t)stops, &info, WSTOPPED | __WALL | WNOHANG), 0);
    assert_int_equal(info.si_pid, stops);
    assert_int_equal(ptrace(PTRACE_DETACH, stops, NULL, NULL), 0);
    system_threads_release(&threads);
    process_free(process);
    child_end(pid);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_stop_is_left_to_who_waits_for_it, spinners_set_up, spinners_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
