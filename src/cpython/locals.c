#include "cpython/locals.h"

#include "base/bytes.h"
#include "cpython/dict.h"
#include "cpython/repr.h"
#include "cpython/str.h"
#include "cpython/tuple.h"
#include "cpython/type.h"

#include <stdlib.h>
#include <string.h>

/* co_localspluskinds (Include/internal/pycore_code.h 3.11 to 3.15) */
enum { KIND_HIDDEN = 0x10, KIND_CELL = 0x40, KIND_FREE = 0x80 };

enum {
    MAX_VARIABLES = 1 << 16,
    MAX_CELL_ARGUMENTS = 1024, /* searched for the name of a cell */
    MAX_COMPREHENSION_VARIABLES = 64,
    MAX_NAME_CHARACTERS = 1 << 20,
    MAX_KEY_CHARACTERS = 128, /* of a key that is no name */
    SLOT_BYTES = 8,
};

struct walk {
    struct runtime *runtime;
    struct memory *frames;
    const struct frame *frame;
    const struct code *code;
    local_visit_fn *visit;
    void *context;
    struct buffer name;
    uint64_t *names; /* of the code's variables (3.11+) */
    size_t count;
    /* Names of a comprehension's variables, which stand in front of the namespace's own. */
    uint64_t shown[MAX_COMPREHENSION_VARIABLES];
    size_t shown_count;
};

static enum status visit_named(struct walk *walk, remote_addr name, remote_addr value, bool argument) {
    buffer_clear(&walk->name);
    enum status status = string_read(walk->runtime, name, MAX_NAME_CHARACTERS, &walk->name, NULL);
    if (status == STATUS_FAILED)
        return status;
    /* A name that cannot be read must not hide the value. */
    const char *text = status == STATUS_OK ? buffer_text(&walk->name) : "?";
    return walk->visit(walk->context, text, value, argument);
}

/* What a cell holds; 0 when it is empty. Something other than a cell stands for itself: a variable whose cell has not
 * been made yet. */
static remote_addr open_cell(struct runtime *runtime, remote_addr value) {
    struct type_info type;
    remote_addr content = 0;
    if (value == 0 || type_read(runtime, value, &type) != STATUS_OK || strcmp(type.full_name, "cell") != 0)
        return value;
    if (memory_read_u64(runtime->objects, value + runtime->layout.cell.ob_ref, &content) != STATUS_OK)
        return 0;
    return content;
}

static enum status read_code_field(const struct walk *walk, layout_offset offset, remote_addr *value) {
    return memory_read_u64(walk->runtime->objects, walk->code->address + offset, value);
}

/* Part of the frame, in one read; and behind it what says that it is still this frame: one that has returned leaves its
 * place to others. */
static enum status read_part(const struct walk *walk, layout_offset offset, void *part, size_t size_bytes) {
    const struct layout *layout = &walk->runtime->layout;
    layout_offset field = layout_has(layout->thread.frame) ? layout->frame_object.f_code : layout->frame.f_executable;
    uint64_t code = 0;
    const struct memory_piece pieces[] = {{walk->frame->address + offset, part, size_bytes},
                                          {walk->frame->address + field, &code, sizeof code}};
    TRY(memory_read_pieces(walk->frames, pieces, 2));
    return frame_untag(layout, code) == walk->frame->code ? STATUS_OK : STATUS_TORN;
}

static enum status read_slots(const struct walk *walk, layout_offset first, size_t count, uint64_t **slots) {
    *slots = calloc(count + 1, SLOT_BYTES);
    if (*slots == NULL)
        return STATUS_FAILED;
    enum status status = read_part(walk, first, *slots, count * SLOT_BYTES);
    if (status != STATUS_OK) {
        free(*slots);
        *slots = NULL;
    }
    return status;
}

/* A module or class body keeps its names in a dict, but not the variables of a comprehension that it is in (3.12+, PEP
 * 709): those are hidden, and unset outside the comprehension. Its free variables are not its own. */
static bool is_own(const struct walk *walk, uint8_t kind) {
    return (walk->code->flags & CODE_OPTIMIZED) != 0 || (kind & KIND_HIDDEN) != 0;
}

static enum status visit_slots(struct walk *walk, const uint8_t *kinds, const uint64_t *slots) {
    for (size_t i = 0; i < walk->count; i++) {
        remote_addr value = frame_untag(&walk->runtime->layout, slots[i]);
        if (!is_own(walk, kinds[i]))
            continue;
        if ((kinds[i] & (KIND_CELL | KIND_FREE)) != 0)
            value = open_cell(walk->runtime, value);
        if (value != 0 && walk->shown_count < MAX_COMPREHENSION_VARIABLES)
            walk->shown[walk->shown_count++] = walk->names[i];
        if (value != 0)
            TRY(visit_named(walk, walk->names[i], value, i < walk->code->argument_count));
    }
    return STATUS_OK;
}

/* 3.11+: one array of names, kinds and values for locals, cells and free variables. */
static enum status visit_localsplus(struct walk *walk) {
    const struct layout *layout = &walk->runtime->layout;
    remote_addr names_tuple = 0, kinds_bytes = 0;
    uint64_t *slots = NULL;
    TRY(read_code_field(walk, layout->code.co_localsplusnames, &names_tuple));
    TRY(read_code_field(walk, layout->code.co_localspluskinds, &kinds_bytes));
    TRY(tuple_read(walk->runtime, names_tuple, MAX_VARIABLES, &walk->names, &walk->count));
    enum status status = STATUS_FAILED;
    uint8_t *kinds = malloc(walk->count + 1);
    if (kinds == NULL)
        goto out;
    status = memory_read(walk->runtime->objects, kinds_bytes + layout->bytes.ob_sval, kinds, walk->count);
    if (status == STATUS_OK)
        status = read_slots(walk, layout->frame.localsplus, walk->count, &slots);
    if (status == STATUS_OK)
        status = visit_slots(walk, kinds, slots);
out:
    free(kinds);
    free(slots);
    return status;
}

/* Whether the variable of this name is an argument that lives in a cell (<= 3.10 keeps it only there). */
static bool is_cell_argument(const struct walk *walk, const uint64_t *varnames, size_t varname_count, uint64_t name) {
    for (size_t i = 0; i < varname_count && i < walk->code->argument_count && i < MAX_CELL_ARGUMENTS; i++)
        if (varnames[i] == name) /* names are interned: the same string is the same object */
            return true;
    return false;
}

/* <= 3.10: f_localsplus holds locals, then cells, then free variables, each named by a tuple of its own. */
static enum status visit_frame_object(struct walk *walk) {
    const struct layout *layout = &walk->runtime->layout;
    const layout_offset fields[] = {layout->code.co_varnames, layout->code.co_cellvars, layout->code.co_freevars};
    uint64_t *varnames = NULL;
    size_t varname_count = 0, first = 0;
    enum status status = STATUS_OK;
    for (size_t group = 0; group < 3 && status == STATUS_OK; group++) {
        remote_addr tuple = 0;
        uint64_t *names = NULL, *slots = NULL;
        size_t count = 0;
        status = read_code_field(walk, fields[group], &tuple);
        if (status == STATUS_OK)
            status = tuple_read(walk->runtime, tuple, MAX_VARIABLES, &names, &count);
        if (status == STATUS_OK)
            status = read_slots(walk, layout->frame_object.f_localsplus + (layout_offset)(first * SLOT_BYTES), count,
                                &slots);
        for (size_t i = 0; i < count && status == STATUS_OK; i++) {
            remote_addr value = group == 0 ? slots[i] : open_cell(walk->runtime, slots[i]);
            bool argument =
                group == 0 ? i < walk->code->argument_count : is_cell_argument(walk, varnames, varname_count, names[i]);
            if (value != 0)
                status = visit_named(walk, names[i], value, argument);
        }
        first += count;
        free(slots);
        if (group == 0) {
            varnames = names;
            varname_count = count;
        } else {
            free(names);
        }
    }
    free(varnames);
    return status;
}

/* A namespace is a dict, and a program may put into it what it likes: a key that is no str shows as a value does. */
static enum status visit_key(struct walk *walk, remote_addr key, remote_addr value) {
    buffer_clear(&walk->name);
    TRY(repr_append(walk->runtime, key, MAX_KEY_CHARACTERS, &walk->name));
    return walk->visit(walk->context, buffer_text(&walk->name), value, false);
}

static enum status visit_namespace_entry(void *context, remote_addr key, remote_addr value) {
    struct walk *walk = context;
    struct type_info type;
    for (size_t i = 0; i < walk->shown_count; i++)
        if (walk->shown[i] == key)
            return STATUS_OK;
    if (type_read(walk->runtime, key, &type) == STATUS_OK && (type.flags & TYPE_IS_STR) == 0)
        return visit_key(walk, key, value);
    return visit_named(walk, key, value, false);
}

/* Module and class bodies keep their names in a dict. (A class body's may be any mapping: then nothing is shown.) */
static enum status visit_namespace(struct walk *walk) {
    const struct layout *layout = &walk->runtime->layout;
    bool linked = layout_has(layout->thread.frame);
    layout_offset field = linked ? layout->frame_object.f_locals : layout->frame.f_locals;
    remote_addr namespace = 0;
    struct type_info type;
    if (!linked && layout_minor(layout) >= 12)
        TRY(visit_localsplus(walk));
    TRY(read_part(walk, field, &namespace, sizeof namespace));
    if (namespace == 0)
        return STATUS_OK;
    TRY(type_read(walk->runtime, namespace, &type));
    if ((type.flags & TYPE_IS_DICT) == 0)
        return STATUS_OK;
    return dict_visit(walk->runtime, namespace, visit_namespace_entry, walk);
}

enum status locals_visit(struct runtime *runtime, struct memory *frames, const struct frame *frame,
                         const struct code *code, local_visit_fn *visit, void *context) {
    struct walk walk = {
        .runtime = runtime, .frames = frames, .frame = frame, .code = code, .visit = visit, .context = context};
    buffer_init(&walk.name, (size_t)MAX_NAME_CHARACTERS * 12);
    enum status status;
    if ((code->flags & CODE_OPTIMIZED) == 0)
        status = visit_namespace(&walk);
    else if (layout_has(runtime->layout.thread.frame))
        status = visit_frame_object(&walk);
    else
        status = visit_localsplus(&walk);
    buffer_release(&walk.name);
    free(walk.names);
    return status;
}
