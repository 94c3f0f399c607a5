#include "agent/threads.h"

#include "agent/agent.h"
#include "agent/heap.h"
#include "agent/hot.h"
#include "agent/region.h"
#include "agent/signals.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Destructors of other keys run in rounds; what they do is the thread's, too. One round before libc gives up. */
enum { END_ROUND = 2, NO_TIMER = -1 };
static_assert(END_ROUND < 4, "POSIX promises four rounds");

static _Atomic(struct agent_thread *) known[WIRE_SLOTS];
/* Rings of the current region that are mapped, and whose memory is known to be there: nobody takes it away again. */
static _Atomic(uint8_t *) rings[WIRE_SLOTS];
static _Atomic bool filled[WIRE_SLOTS];
static __thread struct agent_thread *current __attribute__((tls_model("initial-exec")));
static __thread bool ended __attribute__((tls_model("initial-exec")));
static pthread_key_t end_key;

AGENT_HOT struct agent_thread *threads_current(void) {
    return current;
}

uint32_t threads_index(const struct agent_thread *thread) {
    return (uint32_t)(thread->ring.slot - wire_region_slot(agent_region(), 0));
}

bool threads_know(const void *thread) {
    for (uint32_t index = 0; index < WIRE_SLOTS; index++)
        if (thread != NULL && atomic_load_explicit(&known[index], memory_order_relaxed) == thread)
            return true;
    return false;
}

/* Runs when a thread ends in whatever way: it returns, calls pthread_exit or is cancelled. */
static void on_end(void *value) {
    struct agent_thread *thread = value;
    if (thread != current)
        return;
    if (thread->end_rounds++ < END_ROUND && pthread_setspecific(end_key, thread) == 0)
        return;
    if (agent_owns_region())
        threads_end(thread);
}

enum status threads_init(void) {
    return pthread_key_create(&end_key, on_end) == 0 ? STATUS_OK : STATUS_FAILED;
}

static uint8_t *find_ring_below(uint32_t index, uint32_t *distance) {
    for (*distance = 1; *distance < index; ++*distance) {
        uint8_t *ring = atomic_load(&rings[index - *distance]);
        if (ring != NULL)
            return ring;
    }
    return region_first_ring(agent_region());
}

static enum status map_ring(uint32_t index) {
    if (atomic_load(&filled[index]))
        return STATUS_OK;
    uint8_t *ring = index == 0 ? region_first_ring(agent_region()) : atomic_load(&rings[index]);
    uint32_t distance = 0;
    uint8_t *below = ring == NULL ? find_ring_below(index, &distance) : NULL;
    /* The first came with the region. */
    enum status status = index == 0 ? STATUS_OK : region_map_ring(below, distance, agent_region()->ring_bytes, &ring);
    atomic_store(&rings[index], ring);
    atomic_store(&filled[index], status == STATUS_OK);
    return status;
}

/* The private memory behind a slot, which is kept for the slot's next thread. Large, but little of it is touched. */
static struct agent_thread *thread_at(uint32_t index) {
    struct agent_thread *thread = atomic_load(&known[index]);
    if (thread != NULL)
        return thread;
    thread = mmap(NULL, sizeof *thread, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (thread == MAP_FAILED)
        return NULL;
    thread->timer = NO_TIMER;
    atomic_store(&known[index], thread);
    return thread;
}

static void stop_timer(struct agent_thread *thread) {
    if (thread->timer != NO_TIMER)
        clock_stop_timer(thread->timer);
    thread->timer = NO_TIMER;
    perf_stop(&thread->perf);
}

static struct agent_thread *prepare(uint32_t index) {
    struct agent_thread *thread = thread_at(index);
    if (thread == NULL || map_ring(index) != STATUS_OK)
        return NULL;
    struct wire_slot *slot = wire_region_slot(agent_region(), index);
    atomic_store(&slot->written, 0);
    atomic_store(&slot->lost_records, 0);
    atomic_store(&slot->torn, 0);
    atomic_store(&slot->read, 0);
    slot->starter_id = slot->starter = 0;
    slot->end_ns = slot->end_cpu_ns = 0;
    thread->ring =
        (struct wire_ring){.slot = slot, .bytes = atomic_load(&rings[index]), .size_bytes = agent_region()->ring_bytes};
    stop_timer(thread); /* of one before it that ended without libc */
    thread->end_rounds = 0;
    thread->missed = 0;
    thread->sampled = false;
    thread->paused = (struct clock_times){0};
    walk_start(&thread->walk, agent_python());
    return thread;
}

/* The lowest free slot, so that rings are few and strobe need not look at all. */
static uint32_t claim_slot(void) {
    for (uint32_t index = 0; index < WIRE_SLOTS; index++) {
        uint32_t state = WIRE_SLOT_FREE;
        struct wire_slot *slot = wire_region_slot(agent_region(), index);
        if (atomic_load_explicit(&slot->state, memory_order_relaxed) == WIRE_SLOT_FREE &&
            atomic_compare_exchange_strong(&slot->state, &state, WIRE_SLOT_CLAIMED))
            return index;
    }
    return WIRE_SLOTS;
}

struct agent_thread *threads_claim(void) {
    int error = errno;
    uint32_t index = claim_slot();
    struct agent_thread *thread = index < WIRE_SLOTS ? prepare(index) : NULL;
    if (thread == NULL) {
        atomic_fetch_add(&agent_region()->no_slot, 1);
        if (index < WIRE_SLOTS)
            atomic_store(&wire_region_slot(agent_region(), index)->state, WIRE_SLOT_FREE);
    }
    errno = error;
    return thread;
}

void threads_unclaim(struct agent_thread *thread) {
    atomic_store(&thread->ring.slot->state, WIRE_SLOT_FREE);
}

static void describe(struct agent_thread *thread) {
    struct wire_slot *slot = thread->ring.slot;
    thread->accounted = clock_read();
    slot->tid = (uint32_t)syscall(SYS_gettid);
    slot->thread_id = (uint64_t)pthread_self();
    slot->start_ns = clock_now_ns();
    slot->start_cpu_ns = thread->accounted.cpu_ns;
    slot->start_user_us = thread->accounted.user_us;
    slot->start_system_us = thread->accounted.system_us;
    if (!agent_wants_perf())
        return;
    perf_start(&thread->perf, &thread->accounted, agent_period_ns());
    slot->start_user_us = thread->perf.told.user_us;
    if (thread->perf.page == NULL)
        atomic_fetch_add(&agent_region()->no_event, 1);
}

void threads_begin(struct agent_thread *thread, uintptr_t stack_end) {
    int error = errno;
    thread->walk.c_stack_end = stack_end;
    /* Its first call in a thread may allocate. */
    (void)agent_python_own_state(agent_python());
    describe(thread);
    current = thread;
    if (pthread_setspecific(end_key, thread) == 0 &&
        clock_start_timer(thread, agent_period_ns(), &thread->timer) == STATUS_OK) {
        atomic_store(&thread->ring.slot->state, WIRE_SLOT_LIVE);
    } else {
        current = NULL;
        perf_stop(&thread->perf);
        pthread_setspecific(end_key, NULL);
        atomic_fetch_add(&agent_region()->no_slot, 1);
        threads_unclaim(thread);
    }
    errno = error;
}

/* The helper thread of timer_create(SIGEV_THREAD) takes every AGENT_SIGNAL for its own. */
struct agent_thread *threads_adopt(void) {
    if (current != NULL || ended || !agent_owns_region() || signals_are_blocked())
        return current;
    struct agent_thread *thread = threads_claim();
    if (thread != NULL)
        threads_begin(thread, 0);
    return current;
}

void threads_end(struct agent_thread *thread) {
    int error = errno;
    struct wire_slot *slot = thread->ring.slot;
    heap_end_thread();
    ended = true;
    stop_timer(thread);
    /* A signal that is on its way finds nothing to do. */
    current = NULL;
    atomic_signal_fence(memory_order_seq_cst);
    slot->end_ns = clock_now_ns();
    /* While sampling is paused, what it used since its clock last struck does not count either. */
    bool paused = atomic_load_explicit(&agent_region()->control, memory_order_relaxed) == WIRE_CONTROL_PAUSE;
    slot->end_cpu_ns = (paused ? thread->accounted.cpu_ns : clock_cpu_ns()) - thread->paused.cpu_ns;
    atomic_store(&slot->state, WIRE_SLOT_ENDED);
    errno = error;
}

AGENT_HOT void threads_note_time(struct agent_thread *thread, const struct clock_times *times, bool paused) {
    if (paused) {
        thread->paused.cpu_ns += times->cpu_ns - thread->accounted.cpu_ns;
        thread->paused.user_us += times->user_us - thread->accounted.user_us;
        thread->paused.system_us += times->system_us - thread->accounted.system_us;
    }
    thread->accounted = *times;
}

uintptr_t threads_forget_all(void) {
    uintptr_t stack_end = current != NULL ? current->walk.c_stack_end : 0;
    current = NULL;
    for (uint32_t index = 0; index < WIRE_SLOTS; index++) {
        atomic_store_explicit(&rings[index], NULL, memory_order_relaxed);
        atomic_store_explicit(&filled[index], false, memory_order_relaxed);
        /* A child has no timers, and may come to have some of its own by the same numbers. */
        struct agent_thread *thread = atomic_load_explicit(&known[index], memory_order_relaxed);
        if (thread != NULL) {
            thread->timer = NO_TIMER;
            thread->perf.page = NULL;
            thread->exact = NULL;
        }
    }
    return stack_end;
}
