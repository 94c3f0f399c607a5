/* What Python programs cannot do themselves: threads that Python knows nothing of, with every way to end, and calls
 * that say when a signal interrupted them. Loaded with ctypes. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

struct told {
    int64_t tid;
    int64_t cpu_ns; /* shortly before its end */
};

enum { MAX_THREADS = 64 };

static struct order {
    char how; /* r: returns, e: pthread_exit, c: is cancelled at a cancellation point, a: is cancelled anywhere */
    int64_t cpu_ns;
    struct told *told;
} orders[MAX_THREADS];

static atomic_int ready;

static int64_t cpu_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void burn(int64_t cpu_ns) {
    int64_t end = cpu_now() + cpu_ns;
    while (cpu_now() < end)
        for (volatile int i = 0; i < 1000; i++)
            ;
}

static timer_t start_own_timer(void) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMAX};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0)
        abort();
    timer_settime(timer, 0, &(struct itimerspec){.it_value = {.tv_nsec = 1}}, NULL);
    return timer;
}

/* Until the kernel looks at this thread's CPU clock, which it does when it ticks: a timer of our own has struck then,
 * and the agent's, too. */
void burn_until_tick(void) {
    sigset_t own, before, pending;
    sigemptyset(&own);
    sigaddset(&own, SIGRTMAX);
    pthread_sigmask(SIG_BLOCK, &own, &before);
    timer_t timer = start_own_timer();
    do {
        burn(100000);
        sigpending(&pending);
    } while (!sigismember(&pending, SIGRTMAX));
    timer_delete(timer);
    sigtimedwait(&own, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void *run(void *argument) {
    struct order *order = argument;
    if (order->how == 'a')
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL); /* NOLINT(cert-pos47-c): programs do so */
    order->told->tid = syscall(SYS_gettid);
    burn(order->cpu_ns);
    burn_until_tick();
    order->told->cpu_ns = cpu_now();
    atomic_fetch_add(&ready, 1);
    if (order->how == 'e')
        pthread_exit(NULL);
    while (order->how == 'c')
        pause();
    while (order->how == 'a')
        ;
    return NULL;
}

/* Runs `count` threads at once until all of them have ended. */
int run_threads(int count, char how, int64_t cpu_ns, struct told *told) {
    pthread_t threads[MAX_THREADS];
    atomic_store(&ready, 0);
    for (int i = 0; i < count; i++) {
        orders[i] = (struct order){how, cpu_ns, &told[i]};
        if (pthread_create(&threads[i], NULL, run, &orders[i]) != 0)
            return -1;
    }
    int cancelled = 0;
    while (atomic_load(&ready) < count)
        sched_yield();
    for (int i = 0; i < count && (how == 'c' || how == 'a'); i++)
        pthread_cancel(threads[i]);
    for (int i = 0; i < count; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    return cancelled;
}

static void burn_deep(size_t more_bytes, struct order *order) {
    volatile char here[512];
    here[0] = here[sizeof here - 1] = 1;
    if (more_bytes > sizeof here)
        burn_deep(more_bytes - sizeof here, order);
    else
        run(order);
    here[1] = 1;
}

enum { SMALL_STACK_BYTES = 16 << 10 };

static void *run_deep(void *argument) {
    /* libc has some of the stack's upper end; what is left then is enough for this, but for little else. */
    burn_deep(SMALL_STACK_BYTES - 8 * 1024, argument);
    return NULL;
}

/* A thread that has as little stack as can be had, and uses most of it. */
int run_small_stack(int64_t cpu_ns, struct told *told) {
    pthread_t thread;
    pthread_attr_t attributes;
    orders[0] = (struct order){'r', cpu_ns, told};
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, SMALL_STACK_BYTES) != 0 ||
        pthread_create(&thread, &attributes, run_deep, &orders[0]) != 0 || pthread_join(thread, NULL) != 0)
        return -1;
    return pthread_attr_destroy(&attributes);
}

static int run_c11(void *argument) {
    run(argument);
    return 7;
}

int run_c11_thread(int64_t cpu_ns, struct told *told) {
    thrd_t thread;
    int result = -1;
    orders[0] = (struct order){'r', cpu_ns, told};
    if (thrd_create(&thread, run_c11, &orders[0]) != thrd_success || thrd_join(thread, &result) != thrd_success)
        return -1;
    return result;
}

/* How many of the calls that wait were cut short, in a thread that has just used its CPU clock's period. */
int count_interruptions(int rounds) {
    int interrupted = 0, pipes[2];
    char byte;
    if (pipe(pipes) != 0)
        return -1;
    for (int i = 0; i < rounds; i++) {
        /* Ends at another place between two ticks of the kernel's each time. */
        burn(4000000 + i * INT64_C(10007) % 1000000);
        struct timespec pause = {.tv_nsec = 100000}, left;
        struct timeval timeout = {.tv_usec = 100};
        sigset_t all;
        sigfillset(&all);
        switch (i % 4) {
        case 0:
            interrupted += nanosleep(&pause, &left) != 0;
            break;
        case 1:
            interrupted += poll(&(struct pollfd){.fd = pipes[0], .events = POLLIN}, 1, 1) < 0;
            break;
        case 2:
            interrupted += select(0, NULL, NULL, NULL, &timeout) < 0;
            break;
        default:
            interrupted += sigtimedwait(&all, NULL, &pause) < 0 && errno != EAGAIN;
        }
        if (write(pipes[1], "x", 1) != 1 || read(pipes[0], &byte, 1) != 1)
            interrupted++;
    }
    close(pipes[0]);
    close(pipes[1]);
    /* Ticks miss a thread that shares its processor; so many there are at the least. */
    for (int i = 0; i < 60; i++)
        burn_until_tick();
    return interrupted;
}

/* Starts a program as vfork's callers do; its pid. */
int vfork_exec(const char *path, char *const arguments[]) {
    pid_t pid = vfork();
    if (pid == 0) {
        execv(path, arguments);
        _exit(127);
    }
    return pid;
}
