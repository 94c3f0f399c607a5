#include "unwind/frame_study.h"

#include "base/bytes.h"

#include <string.h>

enum {
    WORD_BYTES = 8,
    /* Frames with larger ones are not studied. */
    MAX_FRAME_BYTES = 4096,
    MAX_ARGUMENTS = 8,
};

/* What the type of an object says of what it runs. */
enum object_kind { KIND_OTHER, KIND_FUNCTION, KIND_METHOD, KIND_GENERATOR };

static bool is_type(struct frame_study *study, remote_addr type, remote_addr *known, const char *name) {
    struct runtime *runtime = study->runtime;
    remote_addr address = 0;
    char text[16];
    if (*known != 0)
        return type == *known;
    if (memory_read_u64(runtime->objects, type + runtime->layout.type.tp_name, &address) != STATUS_OK ||
        memory_read_cstring(runtime->objects, address, text, sizeof text) != STATUS_OK || strcmp(text, name) != 0)
        return false;
    *known = type;
    return true;
}

/* Functions, methods and generators are of static types: each is at one place. */
static enum object_kind kind_of(struct frame_study *study, remote_addr type) {
    if (is_type(study, type, &study->function_type, "function"))
        return KIND_FUNCTION;
    if (is_type(study, type, &study->method_type, "method"))
        return KIND_METHOD;
    if (is_type(study, type, &study->generator_type, "generator") ||
        is_type(study, type, &study->coroutine_type, "coroutine"))
        return KIND_GENERATOR;
    return KIND_OTHER;
}

/* The code that calling an object, or asking a generator for its next value, runs. */
static enum status code_of(struct frame_study *study, remote_addr object, bool generators, remote_addr *code) {
    struct runtime *runtime = study->runtime;
    const struct layout *layout = &runtime->layout;
    remote_addr type = 0;
    if (object == 0 || object % WORD_BYTES != 0)
        return STATUS_NOT_FOUND;
    TRY(memory_read_u64(runtime->live, object + layout->object.ob_type, &type));
    enum object_kind kind = kind_of(study, type);
    if (kind == KIND_METHOD && !generators) {
        TRY(memory_read_u64(runtime->live, object + layout->method.im_func, &object));
        TRY(memory_read_u64(runtime->live, object + layout->object.ob_type, &type));
        kind = kind_of(study, type);
    }
    if (kind == KIND_FUNCTION && !generators)
        return memory_read_u64(runtime->live, object + layout->function.func_code, code);
    if (kind == KIND_GENERATOR && generators)
        return memory_read_u64(runtime->live, object + layout->gen.gi_code, code);
    return STATUS_NOT_FOUND;
}

/* A generator among the arguments of a call. */
static enum status find_argument(struct frame_study *study, const uint8_t *slots, size_t count, remote_addr *code) {
    for (size_t i = 0; i < count && i < MAX_ARGUMENTS; i++)
        if (code_of(study, load_u64(slots + i * WORD_BYTES), true, code) == STATUS_OK)
            return STATUS_OK;
    return STATUS_NOT_FOUND;
}

/* What is called, or asked for its next value. */
static enum status find_callable(struct frame_study *study, const uint8_t *bytes, struct callee_slot slot,
                                 remote_addr *code) {
    remote_addr object = load_u64(bytes);
    if (slot.kind == CALLEE_SLOT_METHOD && object == 0)
        object = load_u64(bytes + WORD_BYTES);
    return code_of(study, object, slot.kind == CALLEE_SLOT_ITERATOR, code);
}

/* `bytes` is the slot, and there are as many before it as it may be lower, and behind it as it has arguments. */
static enum status find_callee(struct frame_study *study, const uint8_t *bytes, struct callee_slot slot,
                               struct studied_call *call) {
    remote_addr code = 0;
    enum status status = STATUS_NOT_FOUND;
    call->direct = true;
    /* Where it is not, an exception's values are: nothing that could be called. */
    if (slot.lower > 0)
        status = find_callable(study, bytes - (size_t)slot.lower * WORD_BYTES, slot, &code);
    if (status == STATUS_NOT_FOUND)
        status = find_callable(study, bytes, slot, &code);
    if (status == STATUS_NOT_FOUND && slot.kind != CALLEE_SLOT_ITERATOR) {
        call->direct = false;
        status = find_argument(study, bytes + WORD_BYTES, slot.argument_count, &code);
    }
    TRY(status);
    return code_cache_get(study->codes, code, &call->callee);
}

/* The frame, as much of it as is in use, and then once more where it stands. */
static enum status read_frame(struct frame_study *study, remote_addr address, uint8_t bytes[MAX_FRAME_BYTES],
                              size_t *size_bytes, bool *standing) {
    const struct layout *layout = &study->runtime->layout;
    size_t fixed_bytes = layout->frame_object.f_localsplus, lasti = layout->frame_object.f_lasti;
    uint64_t size = 0;
    uint32_t lasti_after = 0;
    TRY(memory_read_u64(study->runtime->objects, address + layout->object.ob_size, &size));
    if (size > (MAX_FRAME_BYTES - fixed_bytes) / WORD_BYTES)
        return STATUS_NOT_FOUND;
    *size_bytes = fixed_bytes + (size_t)size * WORD_BYTES;
    const struct memory_piece pieces[] = {{address, bytes, *size_bytes},
                                          {address + lasti, &lasti_after, sizeof lasti_after}};
    TRY(memory_read_pieces(study->runtime->live, pieces, 2));
    *standing = load_u32(bytes + lasti) == lasti_after;
    return STATUS_OK;
}

enum status frame_study_call(struct frame_study *study, remote_addr address, struct studied_call *call) {
    const struct layout *layout = &study->runtime->layout;
    uint8_t bytes[MAX_FRAME_BYTES];
    size_t size_bytes = 0;
    struct frame frame;
    TRY(read_frame(study, address, bytes, &size_bytes, &call->standing));
    TRY(frame_decode(layout, address, bytes, &frame));
    TRY(code_cache_get(study->codes, frame.code, &call->caller));
    if (frame.instruction >= call->caller->bytecode_bytes)
        return STATUS_NOT_FOUND;
    call->previous = frame.previous;
    call->instruction_bytes = (int32_t)frame.instruction;
    struct callee_slot slot = code_cache_callee_slot(study->codes, call->caller, call->instruction_bytes);
    if (slot.kind == CALLEE_SLOT_NONE)
        return STATUS_NOT_FOUND;
    uint64_t start = load_u64(bytes + layout->frame_object.f_valuestack) - address;
    if (start > size_bytes)
        return STATUS_NOT_FOUND;
    start += (uint64_t)slot.index * WORD_BYTES;
    if (start + (1 + (uint64_t)slot.argument_count) * WORD_BYTES > size_bytes)
        return STATUS_NOT_FOUND;
    return find_callee(study, bytes + start, slot, call);
}
