/* Stacks tracked from look to look in the memory of a process that is falsified before and meanwhile: each look must
 * end within a number of reads, and give frames that make sense. For inputs see falsified_image.h. */
#include "base/memory_meter.h"
#include "cpython/interp.h"
#include "cpython/runtime.h"
#include "falsified_image.h"
#include "traverse.h"
#include "unwind/linked_tracker.h"
#include "unwind/stack_tracker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum {
    THREADS_MAX = 8,
    LOOKS = 3,
    LOOKS_AHEAD = 2,
    ATTEMPTS = 4,
    READS_MAX = 100000,
    READ_BYTES_MAX = 64 << 20,
};

static void check_stack(const struct tracked_stack *stack) {
    require(stack->unchanged <= stack->count);
    for (size_t i = 0; i < stack->count; i++) {
        const struct tracked_frame *frame = &stack->frames[i];
        require(!frame->shown || frame->code != NULL);
        require(frame->code == NULL || frame->instruction_bytes <= (int64_t)frame->code->bytecode_bytes);
    }
}

/* As where several threads are read in one call. */
static void read_ahead(struct stack_tracker *tracker, struct thread_state *thread) {
    stack_tracker_plan(tracker, thread);
    tracker->ahead = tracker->piece_count > 0 &&
                     memory_read_pieces(tracker->runtime->live, tracker->pieces, tracker->piece_count) == STATUS_OK;
}

static void track_chunked(struct runtime *runtime, struct code_cache *codes, struct thread_state *thread) {
    struct stack_tracker tracker;
    struct memory_pages nearby;
    memory_pages_init_sized(&nearby, runtime->live, TRACKER_NEARBY_BYTES);
    stack_tracker_init(&tracker, runtime, codes);
    tracker.nearby = &nearby;
    for (int i = 0; i < LOOKS + LOOKS_AHEAD; i++) {
        code_cache_start_epoch(codes);
        if (i >= LOOKS)
            read_ahead(&tracker, thread);
        require(stack_tracker_look(&tracker, thread, ATTEMPTS) != STATUS_FAILED);
        check_stack(&tracker.stack);
    }
    stack_tracker_release(&tracker);
    memory_pages_release(&nearby);
}

static void track_linked(struct runtime *runtime, struct code_cache *codes, struct thread_state *thread) {
    struct linked_tracker tracker;
    linked_tracker_init(&tracker, runtime, codes);
    for (int i = 0; i < LOOKS; i++) {
        code_cache_start_epoch(codes);
        tracker.paused = i == LOOKS - 1;
        require(linked_tracker_look(&tracker, thread, ATTEMPTS) != STATUS_FAILED);
        check_stack(&tracker.stack);
    }
    linked_tracker_release(&tracker);
}

static void track_thread(struct runtime *runtime, struct code_cache *codes, struct thread_state *thread) {
    if (stack_tracker_supports(runtime))
        track_chunked(runtime, codes, thread);
    else if (linked_tracker_supports(runtime))
        track_linked(runtime, codes, thread);
}

static void track_threads(struct runtime *runtime) {
    struct code_cache codes;
    struct interp interp;
    struct thread_state thread;
    remote_addr address = 0;
    if (interp_first(runtime, &address) != STATUS_OK || interp_read(runtime, address, &interp) != STATUS_OK)
        return;
    code_cache_init(&codes, runtime);
    address = interp.threads_head;
    for (int i = 0; i < THREADS_MAX && address != 0; i++) {
        if (thread_state_read(runtime, address, &thread) != STATUS_OK)
            break;
        address = thread.next;
        track_thread(runtime, &codes, &thread);
    }
    code_cache_release(&codes);
}

static void look(struct subject *subject) {
    struct budget budget = {.reads_left = READS_MAX, .bytes_left = READ_BYTES_MAX};
    struct traverse_start start = traverse_noted_start(subject->notes);
    struct memory_meter meter;
    struct runtime runtime;
    struct error error = {0};
    memory_meter_init(&meter, &subject->memory, &budget);
    if (runtime_open(&runtime, &meter.memory, &meter.memory, &start.symbols, &error) == STATUS_OK)
        track_threads(&runtime);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    falsify_image(data, size_bytes, look);
    return 0;
}
