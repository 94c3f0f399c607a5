#include "agent/handler.h"

#include "agent/agent.h"
#include "agent/machine.h"
#include "agent/threads.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096 }; /* or a divisor of what it is */

/* A system call that takes an invalid command and a valid address complains of the command. */
static bool can_be_read(uint64_t address) {
    return syscall(SYS_rt_sigprocmask, -1, address, NULL, 8) != 0 && errno == EINVAL;
}

/* How many words above the stack pointer there are to copy: not beyond the thread's first frame, and when the thread is
 * on some other stack (a signal's, a coroutine's) not beyond what is mapped. */
static uint32_t count_stack_words(const struct agent_thread *thread, uint64_t stack_pointer) {
    uint64_t bytes = WIRE_SAMPLE_MAX_STACK_WORDS * sizeof(uint64_t);
    if (stack_pointer % sizeof(uint64_t) != 0)
        return 0;
    if (stack_pointer < thread->stack_end && thread->stack_end - stack_pointer < bytes)
        bytes = (thread->stack_end - stack_pointer) & ~UINT64_C(7);
    uint64_t in_page = PAGE_BYTES - stack_pointer % PAGE_BYTES;
    if (bytes > in_page && !can_be_read(stack_pointer + in_page))
        bytes = in_page;
    return (uint32_t)(bytes / sizeof(uint64_t));
}

/* Not memcpy, which a sanitizer or another preloaded library may have made its own. */
static void copy_words(uint64_t *to, uint64_t address, uint32_t count) {
    const volatile uint64_t *from = (const volatile uint64_t *)(uintptr_t)address;
    for (uint32_t i = 0; i < count; i++)
        to[i] = from[i];
}

static struct wire_sample make_sample(const struct agent_thread *thread, const struct clock_times *times,
                                      const struct machine_registers *registers, const struct walk_stack *stack) {
    return (struct wire_sample){
        .time_ns = clock_now_ns(),
        .cpu_ns = times->cpu_ns - thread->paused.cpu_ns,
        .user_us = times->user_us - thread->paused.user_us,
        .system_us = times->system_us - thread->paused.system_us,
        .kept = stack->kept,
        .frame_count = stack->count - stack->kept,
        .code_unit = stack->code_unit,
        .program_counter = registers->program_counter,
        .stack_pointer = registers->stack_pointer,
        .return_register = registers->return_register,
        .frame_register = registers->frame_register,
    };
}

static void copy_frames(struct wire_frame *to, const struct wire_frame *from, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        to[i] = from[i];
}

static void write_sample(struct agent_thread *thread, const struct clock_times *times, uint32_t overruns,
                         const ucontext_t *context) {
    struct machine_registers registers = machine_read_registers(context);
    struct walk_stack stack;
    walk_frames(&thread->walk, registers.stack_pointer, &stack);
    if ((stack.flags & WIRE_SAMPLE_TORN) != 0)
        atomic_fetch_add_explicit(&thread->ring.slot->torn, 1, memory_order_relaxed);
    if (!walk_define_codes(&thread->walk, &stack, &thread->ring))
        return;
    struct wire_sample made = make_sample(thread, times, &registers, &stack);
    made.overruns = overruns;
    made.stack_words = count_stack_words(thread, registers.stack_pointer);
    uint64_t position = wire_ring_position(&thread->ring);
    struct wire_sample *sample = wire_ring_reserve(&thread->ring, &position, WIRE_SAMPLE,
                                                   sizeof *sample + made.frame_count * sizeof(struct wire_frame) +
                                                       made.stack_words * sizeof(uint64_t));
    if (sample == NULL)
        return;
    made.record = sample->record;
    made.record.flags = stack.flags;
    *sample = made;
    struct wire_frame *frames = (struct wire_frame *)(void *)(sample + 1);
    copy_frames(frames, stack.frames, made.frame_count);
    copy_words((uint64_t *)(void *)(frames + made.frame_count), registers.stack_pointer, made.stack_words);
    wire_ring_commit(&thread->ring, position);
    walk_accept(&thread->walk, &stack);
}

void handler_take_sample(struct agent_thread *thread, const siginfo_t *info, const ucontext_t *context) {
    struct clock_times times = clock_read();
    bool paused = atomic_load_explicit(&agent_region()->control, memory_order_relaxed) == WIRE_CONTROL_PAUSE;
    if (!paused)
        write_sample(thread, &times, (uint32_t)info->si_overrun, context);
    threads_note_time(thread, &times, paused);
}
