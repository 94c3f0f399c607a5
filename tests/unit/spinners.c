#include "spinners.h"

#include "child.h"
#include "process/process.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

struct shared *shared;

int spinners_set_up(void **state) {
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

int spinners_tear_down(void **state) {
    (void)state;
    return munmap(shared, sizeof *shared);
}

void *spinners_spin(void *counter) {
    for (;;)
        (*(volatile uint64_t *)counter)++;
    return NULL;
}

void spinners_spin_in_threads(void *unused) {
    for (size_t i = 0; i < SPINNERS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, spinners_spin, (void *)(uintptr_t)&shared->counters[i]) != 0)
            _exit(98);
    }
    child_idle(unused);
}

static void *end_at_once(void *unused) {
    return unused;
}

void spinners_start_threads_for_ever(void *unused) {
    (void)unused;
    child_ready();
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, end_at_once, NULL) == 0)
            (void)pthread_join(thread, NULL);
        shared->threads_started++;
    }
}

static void count_signal(int number, siginfo_t *info, void *unused) {
    (void)unused;
    if (number == SIGALRM)
        shared->signals[0]++;
    else if (info->si_code == SI_QUEUE && info->si_value.sival_int == SPINNERS_VALUE)
        shared->signals[1]++;
    else
        shared->signals[2]++;
}

void spinners_take_signals(void *timer) {
    const struct timeval period = {.tv_usec = ((const struct spinners_timer *)timer)->period_us};
    struct sigaction action = {.sa_sigaction = count_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    (void)sigaction(SIGALRM, &action, NULL);
    (void)sigaction(SIGRTMIN, &action, NULL);
    (void)setitimer(ITIMER_REAL, &(struct itimerval){.it_interval = period, .it_value = period}, NULL);
    child_ready();
    for (;;)
        shared->counters[0]++;
}

void spinners_pause(struct process *process) {
    struct error error = {0};
    if (process_pause(process, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

size_t spinners_expect_stopped(struct process *process, pid_t pid) {
    struct system_threads threads;
    struct error error = {0};
    assert_int_equal(process_read_threads(process, false, &threads, &error), STATUS_OK);
    for (size_t i = 0; i < threads.count; i++)
        assert_true(child_thread_state(pid, threads.items[i].tid) == 't');
    const size_t count = threads.count;
    system_threads_release(&threads);
    return count;
}
