#include "spinners.h"

#include "child.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

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
