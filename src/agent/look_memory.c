#include "agent/hot.h"
#include "agent/load.h"
#include "agent/look.h"

enum {
    MAX_CHUNK_BYTES = 1 << 30,
    /* Of a C stack, proved to be mapped in one look: a stack grows, once. */
    MAX_NEW_PAGES = 64,
};

/* Allocators' arenas are a power of two apart, and so is what lies at the same place in them. */
static AGENT_HOT uint64_t page_set(uint64_t page) {
    return page * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (WALK_PAGE_SETS - 1);
}

static AGENT_HOT bool page_readable(struct look *look, uint64_t address) {
    uint64_t page = address / PROBE_PAGE_BYTES;
    uint64_t *known = look->walk->pages[page_set(page)];
    if (page != 0 && (known[0] == page || known[1] == page) && !look->suspect)
        return true;
    if (!probe_readable(address, 1))
        return false;
    if (known[0] != page) {
        known[1] = known[0];
        known[0] = page;
    }
    return true;
}

/* Outer frames mostly lie below inner ones and next to them, so that a frame's last line is the first of the one
 * before.
 */
AGENT_HOT void look_note_touched(struct look *look, uint64_t address, uint64_t size_bytes) {
    struct walk *walk = look->walk;
    uint64_t first = address & ~(uint64_t)(HOT_LINE_BYTES - 1);
    uint64_t line = (address + size_bytes - 1) & ~(uint64_t)(HOT_LINE_BYTES - 1);
    uint32_t count = walk->touched_count;
    if (count > 0 && line == walk->touched[count - 1])
        line -= HOT_LINE_BYTES;
    for (; line >= first && count < WALK_TOUCHED_LINES; line -= HOT_LINE_BYTES)
        walk->touched[count++] = line;
    walk->touched_count = count;
}

static AGENT_HOT void enter_chunk(struct look *look, uint64_t chunk) {
    const struct layout_stack_chunk *fields = &look->layout->stack_chunk;
    look->chunk = (struct span){0, 0};
    look->older_chunk = 0;
    if (chunk == 0)
        return;
    look_note_touched(look, chunk, fields->data);
    uint64_t size_bytes = load_u64(pointer_to(chunk + fields->size));
    /* A chunk that is being made can have no size yet. */
    if (size_bytes < fields->data || size_bytes > MAX_CHUNK_BYTES)
        return;
    look->chunk = (struct span){chunk + fields->data, chunk + size_bytes};
    look->older_chunk = load_u64(pointer_to(chunk + fields->previous));
}

/* The look goes from the newest chunk to the oldest, with frames that are in no chunk between. */
static AGENT_HOT bool in_chunks(struct look *look, uint64_t address, uint64_t size_bytes) {
    if (span_holds(look->chunk, address, size_bytes))
        return true;
    if (look->older_chunk == 0)
        return false;
    struct span here = look->chunk;
    uint64_t older = look->older_chunk;
    enter_chunk(look, older);
    if (span_holds(look->chunk, address, size_bytes))
        return true;
    look->chunk = here;
    look->older_chunk = older;
    return false;
}

/* A copy that the kernel made: somebody else may be giving this memory back. */
static const uint8_t *copy_of(struct look *look, uint64_t address, uint64_t size_bytes) {
    uint8_t *window = look->walk->window;
    if (!span_holds(look->window, address, size_bytes)) {
        uint64_t mask = PROBE_PAGE_BYTES - 1;
        /* Frames lie beside each other, or at least in the same pages. */
        struct span wanted = {address & ~mask, ((address + size_bytes - 1) | mask) + 1};
        look->window = (struct span){0, 0};
        if (wanted.end <= wanted.start || wanted.end - wanted.start > sizeof look->walk->window ||
            !probe_copy(wanted.start, window, (size_t)(wanted.end - wanted.start)))
            return NULL;
        look->window = wanted;
    }
    return window + (address - look->window.start);
}

/* What an attached thread's state leads to is alive, so that pages that were readable still are. What may be garbage is
 * asked for anew; its pages can have been given back since. */
static AGENT_HOT bool readable(struct look *look, uint64_t address, uint64_t size_bytes) {
    uint64_t last = address + size_bytes - 1;
    return page_readable(look, address) &&
           (last / PROBE_PAGE_BYTES == address / PROBE_PAGE_BYTES || page_readable(look, last));
}

AGENT_HOT const uint8_t *look_bytes_at(struct look *look, uint64_t address, uint64_t size_bytes) {
    if (address % LOOK_WORD_BYTES != 0 || address + size_bytes < address)
        return NULL;
    if (span_holds(look->c_stack, address, size_bytes))
        return pointer_to(address);
    if (!look->attached)
        return copy_of(look, address, size_bytes);
    bool known = span_holds(look->state, address, size_bytes) || in_chunks(look, address, size_bytes);
    return known || readable(look, address, size_bytes) ? pointer_to(address) : NULL;
}

/* The stack pointer can be in some other stack, which says nothing of what is between the two. But without a gap it is
 * the same stack, or as good. */
AGENT_HOT void look_find_c_stack(struct look *look) {
    uint64_t pointer = look->registers->stack_pointer, end = look->walk->c_stack_end;
    uint64_t *mapped = &look->walk->c_stack_mapped;
    if (*mapped == 0 && end != 0)
        *mapped = (end - 1) & ~(uint64_t)(PROBE_PAGE_BYTES - 1);
    for (int i = 0; i < MAX_NEW_PAGES && pointer < *mapped; i++) {
        if (!probe_readable(*mapped - LOOK_WORD_BYTES, LOOK_WORD_BYTES))
            break;
        *mapped -= PROBE_PAGE_BYTES;
    }
    if (pointer >= *mapped && pointer < end)
        look->c_stack = (struct span){pointer, end};
}

/* The chunks are only followed where nobody else can give them back. */
AGENT_HOT void look_find_chunks(struct look *look, const uint8_t *state) {
    /* datastack_chunk, datastack_top, datastack_limit follow each other since they exist (cpython/pystate.h 3.11). */
    const uint8_t *chunk = state + look->layout->thread.datastack_chunk;
    if (!look->attached)
        return;
    enter_chunk(look, load_u64(chunk));
    look->newest = look->chunk;
    look->newest_older = look->older_chunk;
    uint64_t top = load_u64(chunk + LOOK_WORD_BYTES);
    if (span_holds(look->chunk, top, 0))
        look->unused = (struct span){top, look->chunk.end};
}
