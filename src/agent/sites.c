#include "agent/sites.h"

#include "agent/agent.h"
#include "agent/blocks.h"
#include "agent/clock.h"
#include "agent/load.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum {
    FIRST_CAPACITY = 1 << 10,
    MAX_CAPACITY = 1 << 19,
    /* What has no frames is charged to where the main thread is: asked again after so many nanoseconds. */
    FRAMELESS_NS_BITS = 27,
    FIRST_UNTOLD_BYTES = 64 << 10,
    MAX_UNTOLD_BYTES = 16 << 20,
};

/* A site that waits for room. Behind it stand its frames. */
struct untold {
    uint32_t site;
    uint32_t count;
    uint64_t flags;
};
struct untold_frame {
    struct wire_frame frame;
    uint64_t deaths; /* of its code object's bucket */
};

static _Atomic uint32_t last_site = WIRE_SITE_UNKNOWN;

void sites_forget(void) {
    atomic_store(&last_site, WIRE_SITE_UNKNOWN);
}

static uint64_t mix(uint64_t sum, uint64_t value) {
    sum = (sum ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ sum >> 29;
}

struct sites_fields sites_fields_of(const struct layout *layout) {
    const struct layout_thread *thread = &layout->thread;
    if (layout_has(thread->frame))
        return (struct sites_fields){thread->frame, OFFSET_NONE, layout->frame_object.f_back,
                                     layout->frame_object.f_code, layout->frame_object.f_lasti};
    bool has_cframe = !layout_has(thread->current_frame);
    return (struct sites_fields){has_cframe ? thread->cframe : thread->current_frame,
                                 has_cframe ? layout->cframe.current_frame : OFFSET_NONE, layout->frame.previous,
                                 layout->frame.instr_ptr, OFFSET_NONE};
}

/* The frames are whole: an allocator was called, so that the interpreter is in the middle of nothing that it does
 * without calls. */
uint64_t sites_key(const struct agent_python *python) {
    struct agent_thread_state state = agent_python_own_state(python);
    if (!state.attached || state.address == 0)
        return 0;
    const struct sites_fields fields = sites_fields_of(&python->layout);
    return sites_key_of_frames(&fields, sites_innermost(&fields, pointer_to(state.address)));
}

static struct sites_entry *place_of(struct sites_entry *entries, size_t capacity, uint64_t key) {
    size_t place = (size_t)(key >> 20) & (capacity - 1);
    while (entries[place].key != 0 && entries[place].key != key)
        place = (place + 1) & (capacity - 1);
    return &entries[place];
}

static struct sites_entry *map_entries(size_t capacity) {
    void *entries =
        mmap(NULL, capacity * sizeof(struct sites_entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return entries == MAP_FAILED ? NULL : entries;
}

/* Room for one more. When there are too many they are forgotten, and numbered anew. */
static bool make_room(struct sites *sites) {
    if (4 * (sites->count + 1) <= 3 * sites->capacity)
        return true;
    size_t capacity = sites->capacity == 0 ? FIRST_CAPACITY : 2 * sites->capacity;
    bool is_too_many = capacity > MAX_CAPACITY;
    capacity = is_too_many ? MAX_CAPACITY : capacity;
    struct sites_entry *larger = map_entries(capacity);
    if (larger == NULL)
        return false;
    for (size_t i = 0; i < sites->capacity && !is_too_many; i++)
        if (sites->stacks[i].key != 0)
            *place_of(larger, capacity, sites->stacks[i].key) = sites->stacks[i];
    if (sites->stacks != NULL)
        munmap(sites->stacks, sites->capacity * sizeof *sites->stacks);
    sites->stacks = larger;
    sites->capacity = capacity;
    sites->count = is_too_many ? 0 : sites->count;
    return true;
}

/* 64 bits, so that none is what stands for no code object. */
static uint64_t deaths_of(struct agent_thread *thread, const struct wire_frame *frame) {
    const struct code_entry *code =
        frame->code != 0 ? codes_get(&thread->walk.codes, thread->walk.python, frame->code) : NULL;
    return code != NULL ? code->deaths : UINT64_MAX;
}

static uint64_t key_of_stack(struct agent_thread *thread, const struct walk_stack *stack) {
    uint64_t sum = stack->flags + UINT64_C(1);
    if (stack->count == 0)
        sum = mix(sum, clock_now_ns() >> FRAMELESS_NS_BITS);
    for (uint32_t i = 0; i < stack->count; i++) {
        const struct wire_frame *frame = &stack->frames[i];
        sum = mix(sum, frame->code);
        sum = mix(sum, (uint64_t)(uint32_t)frame->instruction_bytes << 32 | frame->kind);
        sum = mix(sum, deaths_of(thread, frame));
    }
    return sum != 0 ? sum : 1;
}

bool sites_have_room(const struct wire_ring *ring) {
    return wire_ring_room(ring) > wire_ring_bytes(ring->size_bytes) / 2;
}

static bool tell(struct agent_thread *thread, uint32_t site, struct walk_stack *stack) {
    if (!walk_define_codes(&thread->walk, stack, &thread->ring))
        return false;
    uint32_t new_frames = stack->count - stack->kept;
    uint64_t position = wire_ring_position(&thread->ring);
    struct wire_site *record =
        wire_ring_reserve(&thread->ring, &position, WIRE_SITE, sizeof *record + new_frames * sizeof *stack->frames);
    if (record == NULL)
        return false;
    record->record.flags = stack->flags;
    record->site = site;
    record->kept = stack->kept;
    record->frame_count = new_frames;
    record->unused = 0;
    memcpy(record + 1, stack->frames, new_frames * sizeof *stack->frames);
    wire_ring_commit(&thread->ring, position);
    walk_accept(&thread->walk, stack);
    return true;
}

static bool make_untold_room(struct sites *sites, size_t more_bytes) {
    size_t capacity = sites->untold_capacity > 0 ? sites->untold_capacity : FIRST_UNTOLD_BYTES;
    while (capacity < sites->untold_bytes + more_bytes)
        capacity *= 2;
    if (capacity == sites->untold_capacity)
        return true;
    void *larger = capacity > MAX_UNTOLD_BYTES
                       ? MAP_FAILED
                       : mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (larger == MAP_FAILED)
        return false;
    if (sites->untold != NULL) {
        memcpy(larger, sites->untold, sites->untold_bytes);
        munmap(sites->untold, sites->untold_capacity);
    }
    sites->untold = larger;
    sites->untold_capacity = capacity;
    return true;
}

static bool leave_untold(struct sites *sites, struct agent_thread *thread, uint32_t site,
                         const struct walk_stack *stack) {
    struct untold head = {site, stack->count, stack->flags};
    if (!make_untold_room(sites, sizeof head + stack->count * sizeof(struct untold_frame)))
        return false;
    memcpy(sites->untold + sites->untold_bytes, &head, sizeof head);
    sites->untold_bytes += sizeof head;
    for (uint32_t i = 0; i < stack->count; i++) {
        struct untold_frame frame = {stack->frames[i], deaths_of(thread, &stack->frames[i])};
        memcpy(sites->untold + sites->untold_bytes, &frame, sizeof frame);
        sites->untold_bytes += sizeof frame;
    }
    return true;
}

bool sites_tell_rest(struct sites *sites, struct agent_thread *thread, bool everything) {
    static const struct wire_frame lost = {.kind = WIRE_FRAME_LOST, .instruction_bytes = -1};
    struct wire_frame *frames = thread->walk.frames[1 - thread->walk.last];
    while (sites->told_bytes < sites->untold_bytes) {
        if (!everything && !sites_have_room(&thread->ring))
            return false;
        struct untold head;
        const uint8_t *from = sites->untold + sites->told_bytes;
        memcpy(&head, from, sizeof head);
        from += sizeof head;
        for (uint32_t i = 0; i < head.count; i++, from += sizeof(struct untold_frame)) {
            struct untold_frame frame;
            memcpy(&frame, from, sizeof frame);
            bool is_there = frame.frame.code == 0 || deaths_of(thread, &frame.frame) == frame.deaths;
            frames[i] = is_there ? frame.frame : lost;
        }
        struct walk_stack stack = {
            .frames = frames, .count = head.count, .flags = (uint16_t)head.flags, .new_codes = true};
        if (!tell(thread, head.site, &stack))
            return false;
        frames = thread->walk.frames[1 - thread->walk.last];
        sites->told_bytes = (size_t)(from - sites->untold);
    }
    sites->untold_bytes = sites->told_bytes = 0;
    return true;
}

uint32_t sites_find(struct sites *sites, struct agent_thread *thread) {
    struct walk_stack stack;
    const struct walk_registers registers = {.stack_pointer = (uint64_t)(uintptr_t)__builtin_frame_address(0)};
    walk_frames(&thread->walk, &registers, &stack);
    if ((stack.flags & WIRE_SAMPLE_TORN) != 0)
        return WIRE_SITE_UNKNOWN;
    uint64_t key = key_of_stack(thread, &stack);
    if (!make_room(sites))
        return WIRE_SITE_UNKNOWN;
    struct sites_entry *entry = place_of(sites->stacks, sites->capacity, key);
    if (entry->key != 0)
        return (uint32_t)entry->site;
    uint32_t site = atomic_fetch_add(&last_site, 1) + 1;
    if (site >= SITES_MAX) {
        atomic_store(&last_site, SITES_MAX);
        return WIRE_SITE_UNKNOWN;
    }
    bool is_told = sites_have_room(&thread->ring) && tell(thread, site, &stack);
    if (!is_told && !leave_untold(sites, thread, site, &stack))
        return WIRE_SITE_UNKNOWN;
    *entry = (struct sites_entry){key, site};
    sites->count++;
    return site;
}
