/* What is defined here must be what the program calls, and not what checks it. */
#undef _FORTIFY_SOURCE
#include "agent/copy.h"

#include "agent/agent.h"
#include "agent/busy.h"
#include "agent/clock.h"
#include "agent/heap.h"
#include "agent/stride.h"
#include "agent/threads.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define NOT_INLINE __attribute__((noinline))
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define UNLIKELY(condition) __builtin_expect(condition, 0)

/* Of a thread that cannot tell now. */
enum { RETRY_BYTES = 64 << 10, MAX_THINNING = 12 };

/* Fortified programs call these. No header declares them. */
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
AGENT_EXPORT void *__memcpy_chk(void *to, const void *from, size_t size_bytes, size_t room_bytes);
AGENT_EXPORT void *__memmove_chk(void *to, const void *from, size_t size_bytes, size_t room_bytes);
AGENT_EXPORT void *__mempcpy_chk(void *to, const void *from, size_t size_bytes, size_t room_bytes);
AGENT_EXPORT char *__strcpy_chk(char *to, const char *from, size_t room_bytes);
AGENT_EXPORT char *__stpcpy_chk(char *to, const char *from, size_t room_bytes);
AGENT_EXPORT char *__strncpy_chk(char *to, const char *from, size_t most_bytes, size_t room_bytes);
AGENT_EXPORT char *__strcat_chk(char *to, const char *from, size_t room_bytes);
AGENT_EXPORT char *__strncat_chk(char *to, const char *from, size_t most_bytes, size_t room_bytes);

__thread int64_t copy_left;
__thread int64_t copy_left_before;
static __thread uint64_t copy_random __attribute__((tls_model("initial-exec")));
static __thread bool copy_seeded __attribute__((tls_model("initial-exec")));

/* NULL until they are found: zero, which needs no relocation. libc has had two functions of memcpy's name, and programs
 * that were linked to the first one may count on it to copy what overlaps: both are memmove here, as they are in libc.
 */
static struct {
    void *(*memmove)(void *, const void *, size_t);
    char *(*strncpy)(char *, const char *, size_t);
    char *(*strcat)(char *, const char *);
    char *(*strncat)(char *, const char *, size_t);
    void *(*memmove_chk)(void *, const void *, size_t, size_t);
    void *(*mempcpy_chk)(void *, const void *, size_t, size_t);
    char *(*strcpy_chk)(char *, const char *, size_t);
    char *(*stpcpy_chk)(char *, const char *, size_t);
    char *(*strncpy_chk)(char *, const char *, size_t, size_t);
    char *(*strcat_chk)(char *, const char *, size_t);
    char *(*strncat_chk)(char *, const char *, size_t, size_t);
} next;

static struct {
    uint64_t stride_bytes; /* 0: copies are not looked at */
    uint64_t seed;         /* 0: none was given */
    _Atomic uint64_t threads;
} copy;

void copy_find_next(void) {
    *(void **)&next.strncpy = dlsym(RTLD_NEXT, "strncpy");
    *(void **)&next.strcat = dlsym(RTLD_NEXT, "strcat");
    *(void **)&next.strncat = dlsym(RTLD_NEXT, "strncat");
    *(void **)&next.memmove_chk = dlsym(RTLD_NEXT, "__memmove_chk");
    *(void **)&next.mempcpy_chk = dlsym(RTLD_NEXT, "__mempcpy_chk");
    *(void **)&next.strcpy_chk = dlsym(RTLD_NEXT, "__strcpy_chk");
    *(void **)&next.stpcpy_chk = dlsym(RTLD_NEXT, "__stpcpy_chk");
    *(void **)&next.strncpy_chk = dlsym(RTLD_NEXT, "__strncpy_chk");
    *(void **)&next.strcat_chk = dlsym(RTLD_NEXT, "__strcat_chk");
    *(void **)&next.strncat_chk = dlsym(RTLD_NEXT, "__strncat_chk");
    *(void **)&next.memmove = dlsym(RTLD_NEXT, "memmove");
}

void copy_read_environment(void) {
    copy.stride_bytes = heap_number_from_environment(WIRE_ENVIRONMENT_COPIES, STRIDE_MAX_BYTES);
    copy.seed = heap_number_from_environment(WIRE_ENVIRONMENT_MEMORY_SEED, UINT64_MAX);
}

/* --- Telling. --- */

/* How often the number of copies that are told is to be halved, by the room that is left in the ring: not at all while
 * half of it is free. Those that are told stand for the others. */
static unsigned thinning(const struct agent_thread *thread) {
    unsigned halvings = 0;
    while (halvings < MAX_THINNING && wire_ring_room(&thread->ring) < (uint64_t)WIRE_RING_BYTES >> (halvings + 1))
        halvings++;
    return halvings;
}

static bool write_copy(struct agent_thread *thread, uint64_t size_bytes, unsigned halvings, struct walk_stack *stack) {
    uint32_t new_frames = stack->count - stack->kept;
    uint64_t position = wire_ring_position(&thread->ring);
    struct wire_copy *record =
        wire_ring_reserve(&thread->ring, &position, WIRE_COPY, sizeof *record + new_frames * sizeof *stack->frames);
    if (record == NULL)
        return false;
    record->record.flags = stack->flags;
    record->time_ns = clock_now_ns();
    record->size_bytes = size_bytes;
    record->weight_bytes = stride_weigh(size_bytes, copy.stride_bytes).bytes << halvings;
    record->kept = stack->kept;
    record->frame_count = new_frames;
    memcpy(record + 1, stack->frames, new_frames * sizeof *stack->frames);
    wire_ring_commit(&thread->ring, position);
    walk_accept(&thread->walk, stack);
    return true;
}

static void tell(struct wire_region *region, struct agent_thread *thread, uint64_t size_bytes) {
    struct walk_stack stack;
    unsigned halvings = thinning(thread);
    if ((stride_random(&copy_random) & ((UINT64_C(1) << halvings) - 1)) != 0)
        return;
    const struct walk_registers registers = {.stack_pointer = (uint64_t)(uintptr_t)__builtin_frame_address(0)};
    walk_frames(&thread->walk, &registers, &stack);
    if (!walk_define_codes(&thread->walk, &stack, &thread->ring) || !write_copy(thread, size_bytes, halvings, &stack))
        atomic_fetch_add_explicit(&region->lost_memory_records, 1, memory_order_relaxed);
}

static void begin_thread(void) {
    copy_random = copy.seed != 0 ? copy.seed : clock_now_ns();
    copy_random += atomic_fetch_add(&copy.threads, 1) << 32;
    copy_seeded = true;
}

static int64_t draw_gap(void) {
    return (int64_t)stride_draw_gap(&copy_random, copy.stride_bytes);
}

/* Whether one of so many bytes is struck; what is left is set anew. The first gap begins where the first copy does that
 * is looked at. */
static bool choose(size_t size_bytes) {
    if (copy_seeded) {
        copy_left = draw_gap();
        return true;
    }
    begin_thread();
    copy_left = draw_gap() - (int64_t)size_bytes;
    if (copy_left >= 0)
        return false;
    copy_left = draw_gap();
    return true;
}

/* No more is allocated, locked or waited for here than in a handler of the CPU clock: what copies may be an allocator
 * in the middle of its work. */
static NOT_INLINE void look(size_t size_bytes) {
    int error = errno;
    struct wire_region *region = copy.stride_bytes != 0 ? heap_region() : NULL;
    struct agent_thread *thread = region != NULL ? threads_current() : NULL;
    if (thread == NULL) {
        copy_left = copy.stride_bytes != 0 ? RETRY_BYTES : COPY_NEVER;
    } else if (choose(size_bytes) &&
               atomic_load_explicit(&region->control, memory_order_relaxed) != WIRE_CONTROL_PAUSE && busy_enter()) {
        tell(region, thread, size_bytes);
        busy_leave();
        heap_catch_up();
    }
    errno = error;
}

static ALWAYS_INLINE bool is_struck(size_t size_bytes) {
    return UNLIKELY((copy_left -= (int64_t)size_bytes) < 0);
}

static void count(size_t size_bytes) {
    if (is_struck(size_bytes))
        look(size_bytes);
}

/* --- Before what comes next is found. Nothing here may become a call of what stands below, or of anything else. --- */

#define NO_CALL() __asm__ volatile("" ::: "memory")

static NOT_INLINE void *early_move(void *to, const void *from, size_t size_bytes) {
    char *target = to;
    const char *source = from;
    if ((uintptr_t)target - (uintptr_t)source >= size_bytes)
        for (size_t i = 0; i < size_bytes; i++) {
            target[i] = source[i];
            NO_CALL();
        }
    else
        for (size_t i = size_bytes; i-- > 0;) {
            target[i] = source[i];
            NO_CALL();
        }
    return to;
}

static NOT_INLINE size_t early_length(const char *text, size_t most_bytes) {
    size_t length = 0;
    while (length < most_bytes && text[length] != '\0') {
        length++;
        NO_CALL();
    }
    return length;
}

/* The text and a NUL behind it. */
static NOT_INLINE char *early_text(char *to, const char *from, size_t most_bytes) {
    size_t length = early_length(from, most_bytes);
    early_move(to, from, length);
    to[length] = '\0';
    return to + length;
}

static NOT_INLINE char *early_strncpy(char *to, const char *from, size_t most_bytes) {
    size_t length = early_length(from, most_bytes);
    early_move(to, from, length);
    for (size_t i = length; i < most_bytes; i++) {
        to[i] = '\0';
        NO_CALL();
    }
    return to;
}

/* --- What the program calls. What is seldom needed stands apart, so that the rest needs no stack. --- */

static NOT_INLINE void *look_and_move(void *to, const void *from, size_t size_bytes) {
    look(size_bytes);
    return next.memmove(to, from, size_bytes);
}

static ALWAYS_INLINE void *move(void *to, const void *from, size_t size_bytes) {
    if (UNLIKELY(next.memmove == NULL))
        return early_move(to, from, size_bytes);
    if (is_struck(size_bytes))
        return look_and_move(to, from, size_bytes);
    return next.memmove(to, from, size_bytes);
}

AGENT_EXPORT void *memcpy(void *restrict to, const void *restrict from, size_t size_bytes) {
    return move(to, from, size_bytes);
}

AGENT_EXPORT void *memmove(void *to, const void *from, size_t size_bytes) {
    return move(to, from, size_bytes);
}

AGENT_EXPORT void *mempcpy(void *restrict to, const void *restrict from, size_t size_bytes) {
    return (char *)move(to, from, size_bytes) + size_bytes;
}

AGENT_EXPORT wchar_t *wmemcpy(wchar_t *restrict to, const wchar_t *restrict from, size_t length) {
    return move(to, from, length * sizeof *to);
}

AGENT_EXPORT wchar_t *wmemmove(wchar_t *to, const wchar_t *from, size_t length) {
    return move(to, from, length * sizeof *to);
}

AGENT_EXPORT char *stpcpy(char *restrict to, const char *restrict from) {
    if (next.memmove == NULL)
        return early_text(to, from, SIZE_MAX);
    size_t length = strlen(from);
    return (char *)move(to, from, length + 1) + length;
}

AGENT_EXPORT char *strcpy(char *restrict to, const char *restrict from) {
    if (next.memmove == NULL) {
        early_text(to, from, SIZE_MAX);
        return to;
    }
    return move(to, from, strlen(from) + 1);
}

AGENT_EXPORT char *strncpy(char *restrict to, const char *restrict from, size_t most_bytes) {
    if (next.strncpy == NULL)
        return early_strncpy(to, from, most_bytes);
    count(strnlen(from, most_bytes));
    return next.strncpy(to, from, most_bytes);
}

AGENT_EXPORT char *strcat(char *restrict to, const char *restrict from) {
    if (next.strcat == NULL) {
        early_text(to + early_length(to, SIZE_MAX), from, SIZE_MAX);
        return to;
    }
    count(strlen(from) + 1);
    return next.strcat(to, from);
}

AGENT_EXPORT char *strncat(char *restrict to, const char *restrict from, size_t most_bytes) {
    if (next.strncat == NULL) {
        early_text(to + early_length(to, SIZE_MAX), from, most_bytes);
        return to;
    }
    count(strnlen(from, most_bytes) + 1);
    return next.strncat(to, from, most_bytes);
}

/* Those that libc does not have, nobody calls. */

void *__memmove_chk(void *to, const void *from, size_t size_bytes, size_t room_bytes) {
    if (UNLIKELY(next.memmove_chk == NULL))
        return early_move(to, from, size_bytes);
    count(size_bytes);
    return next.memmove_chk(to, from, size_bytes, room_bytes);
}

void *__memcpy_chk(void *to, const void *from, size_t size_bytes, size_t room_bytes) {
    return __memmove_chk(to, from, size_bytes, room_bytes);
}

void *__mempcpy_chk(void *to, const void *from, size_t size_bytes, size_t room_bytes) {
    if (UNLIKELY(next.mempcpy_chk == NULL))
        return (char *)early_move(to, from, size_bytes) + size_bytes;
    count(size_bytes);
    return next.mempcpy_chk(to, from, size_bytes, room_bytes);
}

char *__strcpy_chk(char *to, const char *from, size_t room_bytes) {
    if (next.strcpy_chk == NULL) {
        early_text(to, from, SIZE_MAX);
        return to;
    }
    count(strlen(from) + 1);
    return next.strcpy_chk(to, from, room_bytes);
}

char *__stpcpy_chk(char *to, const char *from, size_t room_bytes) {
    if (next.stpcpy_chk == NULL)
        return early_text(to, from, SIZE_MAX);
    count(strlen(from) + 1);
    return next.stpcpy_chk(to, from, room_bytes);
}

char *__strncpy_chk(char *to, const char *from, size_t most_bytes, size_t room_bytes) {
    if (next.strncpy_chk == NULL)
        return early_strncpy(to, from, most_bytes);
    count(strnlen(from, most_bytes));
    return next.strncpy_chk(to, from, most_bytes, room_bytes);
}

char *__strcat_chk(char *to, const char *from, size_t room_bytes) {
    if (next.strcat_chk == NULL) {
        early_text(to + early_length(to, SIZE_MAX), from, SIZE_MAX);
        return to;
    }
    count(strlen(from) + 1);
    return next.strcat_chk(to, from, room_bytes);
}

char *__strncat_chk(char *to, const char *from, size_t most_bytes, size_t room_bytes) {
    if (next.strncat_chk == NULL) {
        early_text(to + early_length(to, SIZE_MAX), from, most_bytes);
        return to;
    }
    count(strnlen(from, most_bytes) + 1);
    return next.strncat_chk(to, from, most_bytes, room_bytes);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
