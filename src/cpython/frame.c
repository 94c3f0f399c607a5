#include "cpython/frame.h"

#include "base/bytes.h"

enum {
    MAX_OWNER = 4,
    POINTER_ALIGNMENT = 8,
};

/* Frame objects of 3.8 and 3.9 count bytes, those of 3.10 code units (Objects/frameobject.c 3.10,
 * PyFrame_GetLineNumber). */
static uint64_t lasti_bytes(const struct layout *layout, int32_t lasti) {
    uint64_t unit = layout_has(layout->frame_object.f_state) ? 2 : 1;
    return lasti < 0 ? UINT64_MAX : (uint64_t)lasti * unit;
}

size_t frame_head_size(const struct layout *layout) {
    const struct layout_frame_object *fields = &layout->frame_object;
    /* Its block stack is not needed, and as large again twice. */
    if (layout_has(layout->thread.frame))
        return (layout_has(fields->f_state) ? fields->f_state : fields->f_executing) + sizeof(char);
    return layout->frame.localsplus;
}

static enum status decode_frame_object(const struct layout *layout, const uint8_t *bytes, struct frame *frame) {
    const struct layout_frame_object *fields = &layout->frame_object;
    frame->previous = load_u64(bytes + fields->f_back);
    frame->code = load_u64(bytes + fields->f_code);
    frame->instruction = lasti_bytes(layout, load_i32(bytes + fields->f_lasti));
    frame->owner = FRAME_OWNED_BY_FRAME_OBJECT;
    return frame->code == 0 ? STATUS_TORN : STATUS_OK;
}

static enum status decode_interpreter_frame(const struct layout *layout, const uint8_t *bytes, struct frame *frame) {
    const struct layout_frame *fields = &layout->frame;
    frame->previous = load_u64(bytes + fields->previous);
    frame->instruction = load_u64(bytes + fields->instr_ptr);
    frame->owner = load_u8(bytes + fields->owner);
    if (frame->owner > MAX_OWNER)
        return STATUS_TORN;
    frame->boundary = frame->owner >= layout->first_boundary_owner;
    if (layout_has(fields->tlbc_index))
        frame->tlbc_index = load_i32(bytes + fields->tlbc_index);
    if (!frame->boundary)
        frame->code = frame_untag(layout, load_u64(bytes + fields->f_executable));
    return !frame->boundary && frame->code == 0 ? STATUS_TORN : STATUS_OK;
}

enum status frame_decode(const struct layout *layout, remote_addr address, const uint8_t *bytes, struct frame *frame) {
    *frame = (struct frame){.address = address};
    enum status status = layout_has(layout->thread.frame) ? decode_frame_object(layout, bytes, frame)
                                                          : decode_interpreter_frame(layout, bytes, frame);
    if (frame->previous % POINTER_ALIGNMENT != 0 || frame->code % POINTER_ALIGNMENT != 0)
        return STATUS_TORN;
    return status;
}
