#include "cpython/coroutine.h"

#include "base/bytes.h"
#include "cpython/type.h"

#include <string.h>

enum {
    POINTER_BYTES = 8,
    /* PyGenObject before its frame: 72 bytes (88 free-threaded). */
    MAX_HEAD_BYTES = 512,
    MAX_VALUE_STACK_BYTES = 64 << 20,
};

/* PyFrameState (Include/internal/pycore_frame.h). 3.15 numbered it anew, dropped COMPLETED and added a state for a
 * lock of the free-threaded build. */
static enum status decode_state(const struct layout *layout, int8_t value, enum coroutine_state *state) {
    static const enum coroutine_state since_15[] = {COROUTINE_CREATED,  COROUTINE_SUSPENDED, COROUTINE_AWAITING,
                                                    COROUTINE_AWAITING, COROUTINE_EXECUTING, COROUTINE_FINISHED};
    /* From -3 on. */
    static const enum coroutine_state in_14[] = {COROUTINE_CREATED, COROUTINE_SUSPENDED, COROUTINE_AWAITING,
                                                 COROUTINE_EXECUTING, COROUTINE_FINISHED};
    if (layout_minor(layout) >= 15) {
        if (value < 0 || (size_t)value >= sizeof since_15 / sizeof since_15[0])
            return STATUS_TORN;
        *state = since_15[value];
        return STATUS_OK;
    }
    int index = value == 4 ? 4 : value + 3; /* FRAME_CLEARED is 4 */
    if (index < 0 || (size_t)index >= sizeof in_14 / sizeof in_14[0])
        return STATUS_TORN;
    *state = in_14[index];
    return STATUS_OK;
}

enum status coroutine_classify(struct runtime *runtime, remote_addr object, bool *has_frame, remote_addr *through) {
    /* Each begins, behind the object's head, with what it drives: PyAsyncGenASend.ags_gen, PyAsyncGenAThrow.agt_gen,
     * PyCoroWrapper.cw_coroutine (Objects/genobject.c), anextawaitableobject.wrapped (Objects/iterobject.c). */
    static const char *const drivers[] = {"async_generator_asend", "async_generator_athrow", "coroutine_wrapper",
                                          "anext_awaitable"};
    static const char *const kinds[] = {"coroutine", "generator", "async_generator"};
    struct type_info type;
    *has_frame = false;
    *through = 0;
    TRY(type_read(runtime, object, &type));
    if ((type.flags & TYPE_IS_HEAP_TYPE) != 0)
        return STATUS_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        *has_frame |= strcmp(type.full_name, kinds[i]) == 0;
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        if (strcmp(type.full_name, drivers[i]) == 0)
            return memory_read_u64(runtime->live, object + runtime->layout.object.size, through);
    return STATUS_OK;
}

enum status coroutine_read(struct runtime *runtime, remote_addr address, struct coroutine *coroutine) {
    const struct layout *layout = &runtime->layout;
    uint8_t bytes[MAX_HEAD_BYTES + FRAME_HEAD_MAX_BYTES];
    size_t head_bytes = layout->gen.gi_iframe;
    size_t frame_bytes = frame_head_size(layout);
    *coroutine = (struct coroutine){.address = address};
    if (!layout_has(layout->gen.gi_iframe) || !layout_has(layout->frame.stackpointer) || head_bytes > MAX_HEAD_BYTES ||
        layout->gen.gi_frame_state >= head_bytes || frame_bytes > FRAME_HEAD_MAX_BYTES)
        return STATUS_LIMIT;
    if (address == 0 || address % POINTER_BYTES != 0)
        return STATUS_TORN;
    TRY(memory_read(runtime->live, address, bytes, head_bytes + frame_bytes));
    TRY(decode_state(layout, (int8_t)bytes[layout->gen.gi_frame_state], &coroutine->state));
    if (coroutine->state == COROUTINE_FINISHED)
        return STATUS_OK;
    TRY(frame_decode(layout, address + head_bytes, bytes + head_bytes, &coroutine->frame));
    coroutine->stackpointer = load_u64(bytes + head_bytes + layout->frame.stackpointer);
    return coroutine->frame.owner == FRAME_OWNED_BY_GENERATOR ? STATUS_OK : STATUS_TORN;
}

enum status coroutine_awaited(struct runtime *runtime, const struct coroutine *coroutine, remote_addr *awaited) {
    const struct layout *layout = &runtime->layout;
    /* _PyGen_yf (Objects/genobject.c): the top of the value stack in 3.14; from 3.15 on the one below, since iterators
     * take two places there. */
    uint64_t back_bytes = (layout_minor(layout) >= 15 ? 2 : 1) * POINTER_BYTES;
    remote_addr values = coroutine->frame.address + layout->frame.localsplus;
    remote_addr top = coroutine->stackpointer;
    *awaited = 0;
    if (top % POINTER_BYTES != 0 || top < values + back_bytes || top - values > MAX_VALUE_STACK_BYTES)
        return STATUS_TORN;
    uint64_t reference = 0;
    TRY(memory_read_u64(runtime->live, top - back_bytes, &reference));
    *awaited = frame_untag(layout, reference);
    return STATUS_OK;
}
