#include "agent/handler.h"

#include "agent/agent.h"
#include "agent/busy.h"
#include "agent/heap.h"
#include "agent/heap_touched.h"
#include "agent/hot.h"
#include "agent/machine.h"
#include "agent/probe.h"
#include "agent/threads.h"

#include <stdatomic.h>
#include <string.h>

enum {
    KEPT_FREE_SHARE = 4,
    /* Up to the evaluation loop: list.sort alone takes 5 KiB. Where it is not known to be, most of what is copied is
     * beyond it. */
    MAX_STACK_BYTES = WIRE_SAMPLE_MAX_STACK_WORDS * sizeof(uint64_t),
    BLIND_STACK_BYTES = 2 << 10,
};

/* The evaluation loop's own instructions say what they are; who called it does not matter. */
static AGENT_HOT bool is_in_loop(const struct agent_python *python, uint64_t program_counter) {
    return program_counter >= python->eval && program_counter - python->eval < python->eval_bytes;
}

/* When strobe does not come to read, many samples that say less are better than few that say all: a ring that is a
 * quarter full takes no more of each thread's C stack than its innermost functions. */
static AGENT_HOT uint64_t most_stack_bytes(const struct wire_ring *ring, const struct walk_stack *stack) {
    enum { LITTLE_BYTES = 256 };
    uint64_t unread = wire_ring_position(ring) - atomic_load_explicit(&ring->slot->read, memory_order_relaxed);
    if (unread >= WIRE_RING_BYTES / 4)
        return LITTLE_BYTES;
    return stack->loop_address != 0 ? MAX_STACK_BYTES : BLIND_STACK_BYTES;
}

/* How many words above the stack pointer there are to copy: not beyond the evaluation loop that has called all this,
 * nor the end of the thread's stack, and when it is on some other stack (a signal's, a coroutine's) what is mapped.
 * There the loop is not known. */
static AGENT_HOT uint32_t count_stack_words(const struct agent_thread *thread, const struct walk_stack *stack,
                                            uint64_t stack_pointer) {
    uint64_t bytes = most_stack_bytes(&thread->ring, stack);
    uint64_t end = stack->loop_address != 0 ? stack->loop_address : thread->walk.c_stack_end;
    if (stack_pointer % sizeof(uint64_t) != 0)
        return 0;
    if (stack_pointer < end && end - stack_pointer < bytes)
        bytes = (end - stack_pointer) & ~UINT64_C(7);
    if (walk_knows_c_stack(&thread->walk, stack_pointer))
        return (uint32_t)(bytes / sizeof(uint64_t));
    uint64_t in_page = PROBE_PAGE_BYTES - stack_pointer % PROBE_PAGE_BYTES;
    if (bytes > in_page && !probe_readable(stack_pointer + in_page, 1))
        bytes = in_page;
    return (uint32_t)(bytes / sizeof(uint64_t));
}

/* Words that the thread may not have written yet, in frames that are none of ours: not for memcpy to know. */
static AGENT_HOT void copy_words(uint64_t *to, uint64_t address, uint32_t count) {
    const volatile uint64_t *from = (const volatile uint64_t *)(uintptr_t)address;
    for (uint32_t i = 0; i < count; i++)
        to[i] = from[i];
}

static AGENT_HOT struct wire_sample *reserve(struct wire_ring *ring, uint64_t *position, const struct walk_stack *stack,
                                             uint32_t words) {
    uint32_t new_frames = stack->count - stack->kept;
    /* The last part is for memory: a look that is left out costs no time, as the next one stands for it. */
    if (heap_on && wire_ring_room(ring) < WIRE_RING_BYTES / KEPT_FREE_SHARE) {
        atomic_fetch_add_explicit(&ring->slot->lost_records, 1, memory_order_relaxed);
        return NULL;
    }
    struct wire_sample *sample = wire_ring_reserve(
        ring, position, WIRE_SAMPLE, sizeof *sample + new_frames * sizeof *stack->frames + words * sizeof(uint64_t));
    if (sample == NULL)
        return NULL;
    struct wire_record record = sample->record;
    record.flags = stack->flags;
    *sample = (struct wire_sample){
        .record = record,
        .kept = stack->kept,
        .frame_count = new_frames,
        .stack_words = words,
        .code_unit = stack->code_unit,
    };
    return sample;
}

static AGENT_HOT void set_times(struct wire_sample *sample, const struct clock_times *times,
                                const struct clock_times *paused) {
    sample->time_ns = clock_now_ns();
    sample->cpu_ns = times->cpu_ns - paused->cpu_ns;
    sample->user_us = times->user_us - paused->user_us;
    sample->system_us = times->system_us - paused->system_us;
}

/* False when it cannot be written: there is no room. */
static AGENT_HOT bool look(struct agent_thread *thread, const struct walk_registers *registers,
                           struct walk_stack *stack) {
    walk_frames(&thread->walk, registers, stack);
    if ((stack->flags & WIRE_SAMPLE_TORN) != 0)
        atomic_fetch_add_explicit(&thread->ring.slot->torn, 1, memory_order_relaxed);
    return walk_define_codes(&thread->walk, stack, &thread->ring);
}

static AGENT_HOT void put_frames(struct wire_sample *sample, const struct walk_stack *stack) {
    memcpy(sample + 1, stack->frames, sample->frame_count * sizeof *stack->frames);
}

static AGENT_HOT void commit(struct agent_thread *thread, uint64_t position, const struct walk_stack *stack) {
    wire_ring_commit(&thread->ring, position);
    walk_accept(&thread->walk, stack);
    thread->sampled = true;
}

static AGENT_HOT void write_sample(struct agent_thread *thread, const struct clock_times *times, uint32_t overruns,
                                   const struct machine_registers *registers) {
    struct walk_stack stack;
    const struct walk_registers values = {registers->program_counter, registers->stack_pointer, registers->general,
                                          registers->general_count};
    if (!look(thread, &values, &stack))
        return;
    uint32_t words = is_in_loop(agent_python(), registers->program_counter)
                         ? 0
                         : count_stack_words(thread, &stack, registers->stack_pointer);
    uint64_t position = wire_ring_position(&thread->ring);
    struct wire_sample *sample = reserve(&thread->ring, &position, &stack, words);
    if (sample == NULL)
        return;
    set_times(sample, times, &thread->paused);
    sample->overruns = overruns;
    sample->program_counter = registers->program_counter;
    sample->stack_pointer = registers->stack_pointer;
    sample->return_register = registers->return_register;
    sample->frame_register = registers->frame_register;
    put_frames(sample, &stack);
    struct wire_frame *frames = (struct wire_frame *)(void *)(sample + 1);
    copy_words((uint64_t *)(void *)(frames + sample->frame_count), registers->stack_pointer, words);
    commit(thread, position, &stack);
}

static void write_last(struct agent_thread *thread, const struct clock_times *times) {
    struct walk_stack stack;
    const struct walk_registers registers = {.stack_pointer = (uint64_t)(uintptr_t)__builtin_frame_address(0)};
    if (!look(thread, &registers, &stack))
        return;
    uint64_t position = wire_ring_position(&thread->ring);
    stack.flags |= WIRE_SAMPLE_AT_END;
    struct wire_sample *sample = reserve(&thread->ring, &position, &stack, 0);
    if (sample == NULL)
        return;
    set_times(sample, times, &thread->paused);
    put_frames(sample, &stack);
    commit(thread, position, &stack);
}

static AGENT_HOT bool is_paused(void) {
    return atomic_load_explicit(&agent_region()->control, memory_order_relaxed) == WIRE_CONTROL_PAUSE;
}

static AGENT_HOT void take_sample(struct agent_thread *thread, const struct clock_times *times, uint32_t overruns,
                                  const ucontext_t *context) {
    bool paused = is_paused();
    struct machine_registers registers = machine_read_registers(context);
    if (!paused)
        write_sample(thread, times, overruns + thread->missed, &registers);
    thread->missed = 0;
    threads_note_time(thread, times, paused);
}

static AGENT_HOT void take_strike(struct agent_thread *thread, const ucontext_t *context) {
    struct clock_times times = perf_note_strike(&thread->perf);
    take_sample(thread, &times, 0, context);
}

/* Before the clocks are read, which takes as long as the memory does to come. */
static AGENT_HOT void expect(const struct agent_thread *thread) {
    enum { RECORD_BYTES = sizeof(struct wire_sample) + 3 * HOT_LINE_BYTES };
    hot_expect((uint64_t)(uintptr_t)&agent_region()->control);
    hot_expect((uint64_t)(uintptr_t)&thread->ring.slot->read);
    walk_expect(&thread->walk);
    hot_expect_bytes(wire_ring_head(&thread->ring), RECORD_BYTES);
}

/* What would interrupt a look is left out: the next sample stands for its time, too. */
static AGENT_HOT bool enter(struct agent_thread *thread, uint32_t overruns) {
    bool entered = busy_enter();
    if (!entered)
        thread->missed += 1 + overruns;
    else
        expect(thread);
    return entered;
}

static AGENT_HOT void leave(void) {
    busy_leave();
    heap_catch_up();
    heap_touched_look(false);
    heap_tell_counts(false);
}

AGENT_HOT void handler_take_tick(struct agent_thread *thread, uint32_t overruns, const ucontext_t *context) {
    if (!enter(thread, overruns))
        return;
    struct clock_times times;
    if (thread->perf.page == NULL) {
        times = clock_read_at_tick();
        take_sample(thread, &times, overruns, context);
    } else if (perf_note_tick(&thread->perf, &times))
        take_sample(thread, &times, overruns, context);
    else if (!thread->sampled) /* it may end before its event strikes */
        take_strike(thread, context);
    leave();
}

AGENT_HOT void handler_take_strike(struct agent_thread *thread, const ucontext_t *context) {
    if (!enter(thread, 0))
        return;
    take_strike(thread, context);
    leave();
}

void handler_take_last(struct agent_thread *thread, bool always) {
    if (!busy_enter())
        return;
    struct clock_times times = clock_read();
    bool paused = is_paused();
    threads_note_time(thread, &times, paused);
    if (!paused && (always || !thread->sampled))
        write_last(thread, &times);
    busy_leave();
}
