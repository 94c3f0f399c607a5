#include "unwind/frame_study.h"

#include "base/bytes.h"
#include "base/clock.h"

#include <string.h>

enum {
    WORD_BYTES = 8,
    /* Frames with larger ones are not studied. */
    MAX_FRAME_BYTES = 4096,
    MAX_ARGUMENTS = 8,
    MAX_WAIT_NS = 2000,
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

/* Lets a moment pass, now a shorter, now a longer one. A frame is studied soon after the thread was seen at a certain
 * place; were it always as soon, then in a program that does the same over and over the copy would be made always at
 * the same place, too, and that may be one where a copy is wrong. */
static void dawdle(struct frame_study *study) {
    study->random = study->random * 1664525 + 1013904223;
    uint64_t start_ns = clock_monotonic_ns(), wait_ns = (uint64_t)study->random * MAX_WAIT_NS >> 32;
    while (clock_monotonic_ns() - start_ns < wait_ns)
        continue;
}

/* Two copies of a frame, as much of it as is in use. */
static enum status read_twice(struct frame_study *study, remote_addr address, uint8_t copies[2][MAX_FRAME_BYTES],
                              size_t *size_bytes) {
    const struct layout *layout = &study->runtime->layout;
    size_t fixed_bytes = layout->frame_object.f_localsplus;
    uint64_t size = 0;
    TRY(memory_read_u64(study->runtime->objects, address + layout->object.ob_size, &size));
    if (size > (MAX_FRAME_BYTES - fixed_bytes) / WORD_BYTES)
        return STATUS_NOT_FOUND;
    *size_bytes = fixed_bytes + (size_t)size * WORD_BYTES;
    const struct memory_piece pieces[] = {{address, copies[0], *size_bytes}, {address, copies[1], *size_bytes}};
    return memory_read_pieces(study->runtime->live, pieces, 2);
}

/* Where in a frame's copy the slot is; STATUS_NOT_FOUND when the copy has not all of what belongs to it. */
static enum status find_slot(const struct layout *layout, remote_addr address, const uint8_t *bytes, size_t size_bytes,
                             struct callee_slot slot, size_t *start) {
    uint64_t values = load_u64(bytes + layout->frame_object.f_valuestack) - address;
    uint64_t from = values + (uint64_t)slot.index * WORD_BYTES;
    if (slot.kind == CALLEE_SLOT_NONE || values < layout->frame_object.f_localsplus || values > size_bytes ||
        from + (1 + (uint64_t)slot.argument_count) * WORD_BYTES > size_bytes)
        return STATUS_NOT_FOUND;
    *start = (size_t)from;
    return STATUS_OK;
}

enum status frame_study_call(struct frame_study *study, remote_addr address, struct studied_call *call) {
    const struct layout *layout = &study->runtime->layout;
    const size_t lasti = layout->frame_object.f_lasti;
    uint8_t copies[2][MAX_FRAME_BYTES];
    size_t size_bytes = 0, start = 0;
    struct frame frame;
    dawdle(study);
    TRY(read_twice(study, address, copies, &size_bytes));
    TRY(frame_decode(layout, address, copies[0], &frame));
    TRY(code_cache_get(study->codes, frame.code, &call->caller));
    if (frame.instruction >= call->caller->bytecode_bytes)
        return STATUS_NOT_FOUND;
    call->previous = frame.previous;
    call->instruction_bytes = (int32_t)frame.instruction;
    struct callee_slot slot = code_cache_callee_slot(study->codes, call->caller, call->instruction_bytes);
    TRY(find_slot(layout, address, copies[0], size_bytes, slot, &start));
    size_t slots_bytes = (1 + (size_t)slot.argument_count) * WORD_BYTES;
    call->standing = memcmp(copies[0] + lasti, copies[1] + lasti, sizeof(uint32_t)) == 0 &&
                     memcmp(copies[0] + start, copies[1] + start, slots_bytes) == 0;
    return find_callee(study, copies[0] + start, slot, call);
}
