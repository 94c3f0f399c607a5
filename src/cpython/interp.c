#include "cpython/interp.h"

#include "base/bytes.h"

enum status interp_first(struct runtime *runtime, remote_addr *address) {
    return memory_read_u64(runtime->live, runtime->address + runtime->layout.runtime.interpreters_head, address);
}

/* Adds a read of the field at `offset`, unless this version has none; then *value stays as it is. */
static void want(struct memory_piece *pieces, size_t *count, remote_addr base, layout_offset offset, void *value,
                 size_t size_bytes) {
    if (layout_has(offset))
        pieces[(*count)++] = (struct memory_piece){base + offset, value, size_bytes};
}

/* Up to 3.11 the one GIL is part of the runtime and its holder is `gilstate.tstate_current` (Python/ceval_gil.h 3.11).
 */
static enum status read_runtime_gil(struct runtime *runtime, struct interp *interp) {
    const struct layout *layout = &runtime->layout;
    interp->gil = runtime->address + layout->runtime.gil;
    interp->gil_enabled = true;
    uint32_t locked = 0;
    struct memory_piece pieces[3];
    size_t count = 0;
    want(pieces, &count, interp->gil, layout->gil.locked, &locked, sizeof locked);
    want(pieces, &count, interp->gil, layout->gil.last_holder, &interp->gil_last_holder, sizeof(remote_addr));
    want(pieces, &count, runtime->address, layout->runtime.tstate_current, &interp->gil_holder, sizeof(remote_addr));
    TRY(memory_read_pieces(runtime->live, pieces, count));
    if (locked != 1)
        interp->gil_holder = 0;
    return STATUS_OK;
}

/* From 3.12 each interpreter points to the GIL it uses, its own or the main interpreter's (Python/ceval_gil.c 3.12). */
static enum status read_interp_gil(struct runtime *runtime, struct interp *interp) {
    const struct layout *layout = &runtime->layout;
    if (interp->gil == 0)
        return STATUS_OK;
    int32_t locked = 0;
    int32_t enabled = layout->free_threaded ? 0 : 1;
    struct memory_piece pieces[3];
    size_t count = 0;
    want(pieces, &count, interp->gil, layout->gil.locked, &locked, sizeof locked);
    want(pieces, &count, interp->gil, layout->gil.last_holder, &interp->gil_holder, sizeof(remote_addr));
    if (layout->free_threaded)
        want(pieces, &count, interp->gil, layout->gil.enabled, &enabled, sizeof enabled);
    TRY(memory_read_pieces(runtime->live, pieces, count));
    interp->gil_enabled = enabled != 0;
    if (!interp->gil_enabled)
        interp->gil = 0;
    interp->gil_last_holder = interp->gil_holder;
    if (!interp->gil_enabled || locked != 1)
        interp->gil_holder = 0;
    return STATUS_OK;
}

/* `switch_number` stands behind `locked`, an int (struct _gil_runtime_state: Include/internal/pycore_gil.h 3.8
 * to 3.15); no table has it. */
enum status interp_read_turns(struct runtime *runtime, const struct interp *interp, struct gil_turns *turns) {
    const struct layout *layout = &runtime->layout;
    struct memory_piece pieces[2];
    size_t count = 0;
    *turns = (struct gil_turns){0};
    want(pieces, &count, interp->gil, layout->gil.last_holder, &turns->last_holder, sizeof(remote_addr));
    want(pieces, &count, interp->gil + sizeof(uint64_t), layout->gil.locked, &turns->switches, sizeof turns->switches);
    return count == 2 ? memory_read_pieces(runtime->live, pieces, count) : STATUS_NOT_FOUND;
}

remote_addr interp_holder_slot(const struct runtime *runtime, const struct interp *interp) {
    const struct layout *layout = &runtime->layout;
    return layout_has(layout->runtime.gil) ? runtime->address + layout->runtime.tstate_current
                                           : interp->gil + layout->gil.last_holder;
}

enum status interp_read(struct runtime *runtime, remote_addr address, struct interp *interp) {
    const struct layout *layout = &runtime->layout;
    *interp = (struct interp){.address = address};
    uint32_t collecting = 0;
    struct memory_piece pieces[9];
    size_t count = 0;
    want(pieces, &count, address, layout->interp.id, &interp->id, sizeof interp->id);
    want(pieces, &count, address, layout->interp.next, &interp->next, sizeof(remote_addr));
    want(pieces, &count, address, layout->interp.threads_head, &interp->threads_head, sizeof(remote_addr));
    want(pieces, &count, address, layout->interp.modules, &interp->modules, sizeof(remote_addr));
    want(pieces, &count, address, layout->interp.sysdict, &interp->sysdict, sizeof(remote_addr));
    want(pieces, &count, address, layout->interp.ceval_gil, &interp->gil, sizeof(remote_addr));
    want(pieces, &count, address, layout->interp.gc_collecting, &collecting, sizeof collecting);
    want(pieces, &count, address, layout->interp.gc_frame, &interp->gc_frame, sizeof(remote_addr));
    want(pieces, &count, runtime->address, layout->runtime.gc_collecting, &collecting, sizeof collecting);
    TRY(memory_read_pieces(runtime->live, pieces, count));
    interp->collecting = collecting == 1;
    if (!interp->collecting)
        interp->gc_frame = 0;
    return layout_has(layout->runtime.gil) ? read_runtime_gil(runtime, interp) : read_interp_gil(runtime, interp);
}

enum status interp_read_births(struct runtime *runtime, remote_addr address, uint64_t *births) {
    return memory_read_u64(runtime->live, address + runtime->layout.interp.threads_next_id, births);
}

/* The span of a PyThreadState that holds every field we use: read in one piece so that they agree with each other. */
size_t thread_state_span(const struct layout *layout) {
    const struct layout_thread *fields = &layout->thread;
    const layout_offset used[] = {fields->next,          fields->interp,          fields->frame,
                                  fields->cframe,        fields->thread_id,       fields->native_thread_id,
                                  fields->current_frame, fields->datastack_chunk, fields->gil_requested};
    layout_offset last = 0;
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++)
        if (layout_has(used[i]) && used[i] > last)
            last = used[i];
    return last + 3 * sizeof(uint64_t); /* datastack_top and _limit stand behind datastack_chunk */
}

static uint64_t field(const uint8_t *bytes, layout_offset offset) {
    return layout_has(offset) ? load_u64(bytes + offset) : 0;
}

/* 3.11 and 3.12 keep the innermost frame behind one more pointer, which changes with each C recursion into the
 * interpreter (struct _PyCFrame, Include/cpython/pystate.h 3.11). */
static void find_frame_slot(const struct layout *layout, const uint8_t *bytes, struct thread_state *thread) {
    const struct layout_thread *fields = &layout->thread;
    if (layout_has(fields->cframe)) {
        remote_addr cframe = load_u64(bytes + fields->cframe);
        thread->frame_slot = cframe != 0 ? cframe + layout->cframe.current_frame : 0;
        return;
    }
    layout_offset slot = layout_has(fields->current_frame) ? fields->current_frame : fields->frame;
    thread->frame_slot = thread->address + slot;
    thread->frame = load_u64(bytes + slot);
}

void thread_state_decode(const struct layout *layout, remote_addr address, const uint8_t *bytes,
                         struct thread_state *thread) {
    const struct layout_thread *fields = &layout->thread;
    *thread = (struct thread_state){
        .address = address,
        .next = field(bytes, fields->next),
        .interp = field(bytes, fields->interp),
        .datastack_chunk = field(bytes, fields->datastack_chunk),
        .thread_id = field(bytes, fields->thread_id),
        .native_thread_id = field(bytes, fields->native_thread_id),
    };
    if (layout_has(fields->gil_requested))
        thread->gil_requested = load_u32(bytes + fields->gil_requested) != 0;
    /* datastack_chunk, datastack_top, datastack_limit follow each other since they exist (cpython/pystate.h 3.11). */
    if (layout_has(fields->datastack_chunk)) {
        thread->datastack_top = load_u64(bytes + fields->datastack_chunk + sizeof(uint64_t));
        thread->datastack_limit = load_u64(bytes + fields->datastack_chunk + 2 * sizeof(uint64_t));
    }
    find_frame_slot(layout, bytes, thread);
}

/* While the interpreter is being entered from C, its struct _PyCFrame is the thread's before it has a frame
 * (_PyEval_EvalFrameDefault, Python/ceval.c 3.11 and 3.12). Until then the one before it tells, which `previous` behind
 * `current_frame` points to; the thread's own, the outermost, has none before it. */
static enum status read_slot(struct runtime *runtime, struct thread_state *thread) {
    uint64_t slot[2] = {0}; /* current_frame, previous */
    TRY(memory_read(runtime->live, thread->frame_slot, slot, sizeof slot));
    thread->frame = slot[0];
    if (slot[0] != 0 || slot[1] == 0)
        return STATUS_OK;
    thread->frame_slot = slot[1] + runtime->layout.cframe.current_frame;
    return memory_read_u64(runtime->live, thread->frame_slot, &thread->frame);
}

enum status thread_state_read(struct runtime *runtime, remote_addr address, struct thread_state *thread) {
    uint8_t bytes[THREAD_STATE_MAX_BYTES];
    size_t span = thread_state_span(&runtime->layout);
    if (span > sizeof bytes)
        return STATUS_LIMIT;
    TRY(memory_read(runtime->live, address, bytes, span));
    thread_state_decode(&runtime->layout, address, bytes, thread);
    if (layout_has(runtime->layout.thread.cframe) && thread->frame_slot != 0)
        return read_slot(runtime, thread);
    return STATUS_OK;
}
