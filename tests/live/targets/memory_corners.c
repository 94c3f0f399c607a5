/* Allocations where a profiler's hooks may trip: in a signal handler, in a constructor, in what runs at a thread's end
 * and around fork. Each of them gives back what it takes, but for what it says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { CONSTRUCTED_BYTES = 5000011, SLOTS = 64 };

static pthread_key_t key;
static void *constructed;
static volatile long handled, destroyed, forked;
/* What handlers have taken and not given back: blocks that others free, or nobody. */
static void *kept[SLOTS];

/* malloc must not interrupt itself, but may be called by a handler that has not interrupted it. mmap may interrupt
 * anything. */
static volatile bool may_allocate;

static void on_signal(int number) {
    (void)number;
    long slot = handled++ % SLOTS;
    void *map = mmap(NULL, 600011, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map != MAP_FAILED)
        munmap(map, 600011);
    if (!may_allocate)
        return;
    void *block = malloc(1009 + (size_t)slot * 4099);
    free(kept[slot]);
    kept[slot] = block;
}

static void at_end(void *value) {
    free(value);
    void *block = malloc(70001);
    memset(block, 1, 70001);
    free(block);
    destroyed++;
}

static void around_fork(void) {
    free(malloc(600011));
    forked++;
}

__attribute__((constructor)) static void construct(void) {
    constructed = malloc(CONSTRUCTED_BYTES);
    memset(constructed, 1, CONSTRUCTED_BYTES);
    pthread_key_create(&key, at_end);
    pthread_atfork(around_fork, around_fork, around_fork);
}

__attribute__((destructor)) static void destruct(void) {
    free(constructed);
    free(malloc(300007));
}

/* Takes blocks and gives them back while signals come as fast as they can. */
long corners_churn(long rounds) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, 50}, {0, 50}}, never = {0};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (long i = 0; i < rounds; i++) {
        char *block = malloc(4001 + (size_t)(i % 7) * 10007);
        atomic_signal_fence(memory_order_seq_cst);
        may_allocate = true;
        for (int spin = 0; spin < 2000; spin++)
            ((volatile char *)block)[spin] = (char)spin;
        may_allocate = false;
        atomic_signal_fence(memory_order_seq_cst);
        free(block);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    signal(SIGALRM, SIG_IGN);
    return handled;
}

/* PyMemAllocatorEx (Include/cpython/pymem.h) */
struct allocator {
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t count, size_t size);
    void *(*realloc)(void *context, void *block, size_t size);
    void (*free)(void *context, void *block);
};

enum { DOMAINS = 3 };

static struct allocator wrapped[DOMAINS];
static volatile long asked;

static void *wrap_malloc(void *context, size_t size) {
    struct allocator *inner = context;
    asked++;
    return inner->malloc(inner->context, size);
}

static void *wrap_calloc(void *context, size_t count, size_t size) {
    struct allocator *inner = context;
    asked++;
    return inner->calloc(inner->context, count, size);
}

static void *wrap_realloc(void *context, void *block, size_t size) {
    struct allocator *inner = context;
    asked++;
    return inner->realloc(inner->context, block, size);
}

static void wrap_free(void *context, void *block) {
    struct allocator *inner = context;
    inner->free(inner->context, block);
}

/* Puts allocators of its own before Python's, or takes them away; with the GIL. Says how often they were asked. */
long corners_wrap(int on) {
    void (*get)(int, struct allocator *), (*set)(int, struct allocator *);
    *(void **)&get = dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
    *(void **)&set = dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    for (int domain = 0; domain < DOMAINS; domain++) {
        struct allocator own = {&wrapped[domain], wrap_malloc, wrap_calloc, wrap_realloc, wrap_free};
        if (on)
            get(domain, &wrapped[domain]);
        set(domain, on ? &own : &wrapped[domain]);
    }
    return asked;
}

/* In a thread that Python does not know: leaves 3000017 bytes, and a key's value to be destroyed. */
static void *work(void *argument) {
    pthread_setspecific(key, malloc(50021));
    *(void **)argument = malloc(3000017);
    return NULL;
}

void *corners_thread(void) {
    pthread_t thread;
    void *block = NULL;
    if (pthread_create(&thread, NULL, work, &block) == 0)
        pthread_join(thread, NULL);
    return block;
}

void corners_mark_thread(void) {
    pthread_setspecific(key, malloc(50021));
}

long corners_destroyed(void) {
    return destroyed;
}

long corners_forked(void) {
    return forked;
}
