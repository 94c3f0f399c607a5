/* A library that lets a Python process look at its own stack, as the agent does, after every single instruction: with
 * the processor's trap flag set, each instruction ends in a SIGTRAP, whose handler walks.
 *
 * For programs that load it with ctypes (walk_open, walk_begin), or for LD_PRELOAD, with everything in the environment
 * variable AGENT_WALK: "FOLDER STEPS WINDOW PERIOD_US" (see walk_begin).
 *
 * Each stack is written once, the first time that it is seen, as the agent would write it: FOLDER/THREAD.ring is a
 * thread's records one after the other. sample.time_ns is the stack's number. FOLDER/counts has how often each was
 * seen. */
#include "agent/walk.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __x86_64__

#define EXPORT __attribute__((visibility("default")))

const char *walk_open(void);
void walk_close(void);
void walk_begin(const char *into, int64_t steps, int64_t window, int64_t period_us);
void walk_pause(void);
void walk_resume(void);
double walk_measure(int64_t looks, int64_t flush_bytes);
extern _Atomic uint64_t walk_marker;

/* Whatever the program says of itself: goes into sample.cpu_ns. When it is not zero, every look is written. */
EXPORT _Atomic uint64_t walk_marker;

enum { MAX_STACKS = 1 << 18, TRAP_FLAG = 0x100 };

static struct agent_python python;
static char reason[WIRE_REASON_BYTES];

static char folder[200];
static _Atomic int64_t steps_left;
static int64_t window_steps, period_between_us;
static _Atomic bool counting;

/* What was seen, by hash. */
static struct {
    _Atomic uint64_t hash;
    _Atomic uint64_t count;
} * stacks;
static _Atomic uint64_t stack_count;

/* One thread. */
struct stepper {
    struct wire_slot slot;
    struct wire_ring ring;
    int file;
    int64_t window_left;
    volatile sig_atomic_t untouchable; /* in what cannot be stepped through */
    struct walk walk;
};

static __thread struct stepper *own __attribute__((tls_model("initial-exec")));

static void set_trap(void) {
    __asm__ volatile("pushfq\n\torq %0, (%%rsp)\n\tpopfq" ::"i"(TRAP_FLAG) : "memory", "cc");
}

/* Whether it was set. */
static bool clear_trap(void) {
    uint64_t flags = 0;
    __asm__ volatile("pushfq\n\tpopq %0\n\tpushq %0\n\tandq %1, (%%rsp)\n\tpopfq"
                     : "=&r"(flags)
                     : "i"(~TRAP_FLAG)
                     : "memory", "cc");
    return (flags & TRAP_FLAG) != 0;
}

/* The C library blocks all signals in what comes now, and a trap that is blocked kills. */
static bool begin_untouchable(void) {
    if (own != NULL)
        own->untouchable = 1;
    return clear_trap();
}

static void end_untouchable(bool stepped) {
    if (own != NULL)
        own->untouchable = 0;
    if (stepped)
        set_trap();
}

static void *map(size_t size_bytes) {
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint64_t c_stack_end(void) {
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size_bytes = 0;
    /* Reads /proc in the main thread, so not in a handler. */
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return 0;
    (void)pthread_attr_getstack(&attributes, &low, &size_bytes);
    (void)pthread_attr_destroy(&attributes);
    return (uint64_t)(uintptr_t)low + size_bytes;
}

static struct stepper *stepper_of_thread(void) {
    if (own != NULL)
        return own;
    struct stepper *stepper = map(sizeof *stepper);
    char path[300];
    if (stepper == NULL)
        return NULL;
    (void)snprintf(path, sizeof path, "%s/%ld.ring", folder, syscall(SYS_gettid));
    stepper->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    stepper->ring = (struct wire_ring){&stepper->slot, map(WIRE_RING_BYTES), 0};
    walk_start(&stepper->walk, &python);
    own = stepper;
    return stepper;
}

/* What strobe would do, only at once. */
static void drain(struct stepper *stepper) {
    uint64_t read = atomic_load(&stepper->slot.read), written = atomic_load(&stepper->slot.written);
    while (read != written) {
        uint64_t place = read % WIRE_RING_BYTES, bytes = written - read;
        if (bytes > WIRE_RING_BYTES - place)
            bytes = WIRE_RING_BYTES - place;
        if (write(stepper->file, stepper->ring.bytes + place, (size_t)bytes) != (ssize_t)bytes)
            abort();
        read += bytes;
    }
    atomic_store(&stepper->slot.read, read);
}

static uint64_t hash_of(const struct walk_stack *stack, uint64_t program_counter) {
    uint64_t hash = stack->flags + 1;
    for (uint32_t i = 0; i < stack->count; i++) {
        hash = (hash ^ stack->frames[i].code ^ stack->frames[i].kind) * UINT64_C(0x9e3779b97f4a7c15);
        hash = (hash ^ (uint32_t)stack->frames[i].instruction_bytes ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    }
    if (stack->count == 0)
        hash ^= program_counter * UINT64_C(0x9e3779b97f4a7c15);
    return hash | 1;
}

/* The stack's number; *is_new when it was not seen before. */
static uint64_t count_stack(uint64_t hash, bool *is_new) {
    *is_new = false;
    for (uint64_t place = hash % MAX_STACKS, tries = 0; tries < MAX_STACKS; place = (place + 1) % MAX_STACKS, tries++) {
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&stacks[place].hash, &there, hash)) {
            *is_new = true;
            there = hash;
        }
        if (there == hash) {
            atomic_fetch_add(&stacks[place].count, 1);
            return place;
        }
    }
    abort();
}

static void write_stack(struct stepper *stepper, struct walk_stack *stack, uint64_t number, uint64_t program_counter) {
    if (!walk_define_codes(&stepper->walk, stack, &stepper->ring))
        abort();
    uint64_t position = wire_ring_position(&stepper->ring);
    uint32_t frames = stack->count - stack->kept;
    struct wire_sample *sample =
        wire_ring_reserve(&stepper->ring, &position, WIRE_SAMPLE, sizeof *sample + frames * sizeof(struct wire_frame));
    if (sample == NULL)
        abort();
    struct wire_record record = sample->record;
    record.flags = stack->flags;
    *sample = (struct wire_sample){.record = record,
                                   .time_ns = number,
                                   .cpu_ns = atomic_load(&walk_marker),
                                   .kept = stack->kept,
                                   .frame_count = frames,
                                   .code_unit = stack->code_unit,
                                   .program_counter = program_counter};
    memcpy(sample + 1, stack->frames, frames * sizeof(struct wire_frame));
    wire_ring_commit(&stepper->ring, position);
    walk_accept(&stepper->walk, stack);
    drain(stepper);
}

static void look(struct stepper *stepper, const ucontext_t *context) {
    struct walk_stack stack;
    uint64_t program_counter = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
    /* R8 to R15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP, RIP */
    struct walk_registers registers = {.program_counter = program_counter,
                                       .stack_pointer = (uint64_t)context->uc_mcontext.gregs[REG_RSP],
                                       .values = (const uint64_t *)context->uc_mcontext.gregs,
                                       .count = REG_RIP};
    walk_frames(&stepper->walk, &registers, &stack);
    bool is_new = false;
    uint64_t number = count_stack(hash_of(&stack, program_counter), &is_new);
    if (is_new || atomic_load(&walk_marker) != 0) {
        atomic_fetch_add(&stack_count, 1);
        write_stack(stepper, &stack, number, program_counter);
    }
}

static void write_counts(void) {
    char path[300];
    (void)snprintf(path, sizeof path, "%s/counts", folder);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (size_t i = 0; i < MAX_STACKS; i++) {
        uint64_t pair[2] = {i, atomic_load(&stacks[i].count)};
        if (pair[1] != 0 && write(file, pair, sizeof pair) != sizeof pair)
            abort();
    }
    (void)close(file);
}

static void finish(void) {
    if (!atomic_exchange(&counting, false))
        return;
    write_counts();
    if (write(STDOUT_FILENO, "stepped\n", 8) != 8)
        abort();
}

static void set_alarm(void) {
    struct itimerval timer = {{0, 0}, {0, (suseconds_t)period_between_us}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void on_trap(int signal, siginfo_t *info, void *context_pointer) {
    (void)signal;
    (void)info;
    ucontext_t *context = context_pointer;
    int saved = errno;
    struct stepper *stepper = stepper_of_thread();
    bool more = stepper != NULL && atomic_load(&counting);
    if (more && atomic_fetch_sub(&steps_left, 1) <= 0) {
        finish();
        more = false;
    }
    if (more)
        look(stepper, context);
    if (more && window_steps > 0 && --stepper->window_left <= 0) {
        set_alarm();
        more = false;
    }
    if (!more)
        context->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
    errno = saved;
}

/* The next window begins. */
static void on_alarm(int signal, siginfo_t *info, void *context_pointer) {
    (void)signal;
    (void)info;
    ucontext_t *context = context_pointer;
    struct stepper *stepper = stepper_of_thread();
    if (stepper == NULL || !atomic_load(&counting))
        return;
    if (stepper->untouchable) {
        set_alarm();
        return;
    }
    stepper->window_left = window_steps;
    context->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The median cost of at most 10000 looks in nanoseconds. flush_bytes: so much other memory is written before each. */
EXPORT double walk_measure(int64_t looks, int64_t flush_bytes) {
    struct stepper *stepper = stepper_of_thread();
    uint8_t *other = map((size_t)flush_bytes + 1);
    uint64_t values[1] = {0};
    static double costs_ns[10000];
    if (stepper == NULL || other == NULL)
        return 0;
    stepper->walk.c_stack_end = c_stack_end();
    for (int64_t i = 0; i < looks && i < 10000; i++) {
        struct walk_registers registers = {0, (uint64_t)(uintptr_t)__builtin_frame_address(0), values, 1};
        struct walk_stack stack;
        struct timespec before, after;
        for (int64_t at = 0; at < flush_bytes; at += 64)
            other[at]++;
        clock_gettime(CLOCK_MONOTONIC, &before);
        walk_frames(&stepper->walk, &registers, &stack);
        clock_gettime(CLOCK_MONOTONIC, &after);
        stack.new_codes = false;
        walk_define_codes(&stepper->walk, &stack, &stepper->ring);
        walk_accept(&stepper->walk, &stack);
        costs_ns[i] = (double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec);
    }
    munmap(other, (size_t)flush_bytes + 1);
    qsort(costs_ns, (size_t)looks, sizeof costs_ns[0], compare_doubles);
    return costs_ns[looks / 2];
}

/* "" when this process can look at itself, else why not. */
EXPORT const char *walk_open(void) {
    if (agent_python_find(&python, RTLD_DEFAULT, reason, sizeof reason) == AGENT_PYTHON_FOUND && !codes_watch(&python))
        (void)snprintf(reason, sizeof reason, "code objects cannot be watched");
    return reason;
}

EXPORT void walk_close(void) {
    finish();
}

/* From the caller's next instruction on, `steps` steps are walked, in this thread and those that it starts; then
 * "stepped" and a newline are written to standard output. With a `window`, only so many at a time, and period_us
 * microseconds between, wherever the process is then. */
EXPORT void walk_begin(const char *into, int64_t steps, int64_t window, int64_t period_us) {
    (void)snprintf(folder, sizeof folder, "%s", into);
    stacks = map(MAX_STACKS * sizeof *stacks);
    struct stepper *stepper = stepper_of_thread();
    if (stacks == NULL || stepper == NULL)
        abort();
    stepper->walk.c_stack_end = c_stack_end();
    atomic_store(&steps_left, steps);
    window_steps = window;
    period_between_us = period_us;
    atomic_store(&counting, true);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask);
    sigaction(SIGTRAP, &action, NULL);
    if (window > 0) {
        action.sa_sigaction = on_alarm;
        sigaction(SIGALRM, &action, NULL);
        set_alarm();
        return;
    }
    set_trap();
}

EXPORT void pthread_exit(void *result) {
    void (*real)(void *) = (void (*)(void *))(uintptr_t)dlsym(RTLD_NEXT, "pthread_exit");
    (void)begin_untouchable();
    real(result);
    __builtin_unreachable();
}

/* In the child nobody would read what is written. */
EXPORT pid_t fork(void) {
    bool stepped = begin_untouchable();
    pid_t (*real)(void) = (pid_t(*)(void))(uintptr_t)dlsym(RTLD_NEXT, "fork");
    pid_t pid = real();
    if (pid == 0)
        atomic_store(&counting, false);
    end_untouchable(stepped && pid != 0);
    return pid;
}

/* Who blocks all signals gets traps all the same. */
EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
    int (*real)(int, const sigset_t *, sigset_t *) =
        (int (*)(int, const sigset_t *, sigset_t *))(uintptr_t)dlsym(RTLD_NEXT, "pthread_sigmask");
    if (set == NULL || how == SIG_UNBLOCK || !atomic_load(&counting))
        return real(how, set, before);
    sigset_t without = *set;
    sigdelset(&without, SIGTRAP);
    return real(how, &without, before);
}

/* The calling thread is not stepped from here on, and is again. */
EXPORT void walk_pause(void) {
    (void)clear_trap();
}

EXPORT void walk_resume(void) {
    if (atomic_load(&counting))
        set_trap();
}

/* Neither the new thread nor the one that makes it is stepped through its birth and its end. */
struct start {
    void *(*function)(void *);
    void *argument;
    bool stepped;
};

static void *start_stepping(void *start_pointer) {
    struct start start = *(struct start *)start_pointer;
    free(start_pointer);
    struct stepper *stepper = stepper_of_thread();
    if (stepper != NULL)
        stepper->walk.c_stack_end = c_stack_end();
    if (start.stepped)
        set_trap();
    void *result = start.function(start.argument);
    (void)begin_untouchable();
    return result;
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument) {
    bool stepped = begin_untouchable();
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))(uintptr_t)dlsym(RTLD_NEXT,
                                                                                                  "pthread_create");
    struct start *start = atomic_load(&counting) ? malloc(sizeof *start) : NULL;
    if (start != NULL)
        *start = (struct start){function, argument, stepped};
    int result =
        start != NULL ? real(thread, attributes, start_stepping, start) : real(thread, attributes, function, argument);
    end_untouchable(stepped);
    return result;
}

__attribute__((constructor)) static void start(void) {
    const char *text = getenv("AGENT_WALK");
    char into[200];
    long long steps = 0, window = 0, period_us = 0;
    if (text != NULL && sscanf(text, "%199s %lld %lld %lld", into, &steps, &window, &period_us) == 4 &&
        walk_open()[0] == '\0')
        walk_begin(into, steps, window, period_us);
}

__attribute__((destructor)) static void stop(void) {
    finish();
}

#else
typedef int nothing_here;
#endif
