/* What Python's pstats.Stats loads: a dictionary {(file, line, function): (calls, calls, self seconds, total seconds,
 * callers)} with callers {(file, line, function): (calls, calls, self seconds, total seconds)}, in the marshal format
 * (Python/marshal.c; the types used are the same in all versions since 3.4). Calls are not seen by sampling: where
 * cProfile counts them, this has the number of samples in which the function was seen. */
#include "base/map.h"
#include "export/export.h"
#include "export/functions.h"
#include "export/names.h"
#include "export/selection.h"

#include <stdlib.h>
#include <string.h>

struct sums {
    uint64_t self;
    uint64_t total;
    uint64_t samples;
};

/* A function and who called it. */
struct edge {
    uint32_t caller;
    uint32_t callee;
    uint32_t active; /* times on the path at hand */
    uint32_t next;   /* of the same callee; 0: none */
    struct sums sums;
};

struct writer {
    FILE *stream;
    const struct profile *profile;
    struct selection selection;
    struct functions functions;
    enum measure measure;
    struct sums *stacks;   /* by stack: self of it; total and samples with its callees */
    struct sums frameless; /* of looks that saw no frame */
    uint32_t *first_child; /* by stack */
    uint32_t *next_child;
    uint32_t *edge_of;    /* by stack: the edge that leads to it */
    struct sums *sums;    /* by function */
    uint32_t *active;     /* by function: times on the path at hand */
    uint32_t *first_edge; /* by function: its callers */
    struct edge *edges;   /* [0] is none */
    size_t edge_count;
    struct map edge_numbers;
};

static uint32_t function_of(const struct writer *writer, uint32_t stack) {
    return writer->functions.of_frame[writer->profile->stacks[stack].frame];
}

static void add_entries(struct writer *writer) {
    const struct profile *profile = writer->profile;
    for (size_t i = 0; i < profile->entry_count; i++) {
        const struct profile_entry *entry = &profile->entries[i];
        if (!selection_has(&writer->selection, entry->thread, entry->stack))
            continue;
        struct sums *sums = &writer->stacks[selection_stack(&writer->selection, entry->stack)];
        uint64_t value = profile_value(profile, i, writer->measure);
        sums->self += value;
        sums->total += value;
        sums->samples += profile_value(profile, i, MEASURE_SAMPLES);
    }
    writer->frameless = writer->stacks[0];
}

/* Callers have lower numbers than what they call. */
static enum status link_stacks(struct writer *writer) {
    for (uint32_t i = (uint32_t)writer->profile->stack_count; i-- > 1;) {
        struct sums *sums = &writer->stacks[i];
        if (selection_stack(&writer->selection, i) != i || (sums->total == 0 && sums->samples == 0))
            continue;
        uint32_t caller = selection_caller(&writer->selection, i);
        writer->stacks[caller].total += sums->total;
        writer->stacks[caller].samples += sums->samples;
        writer->next_child[i] = writer->first_child[caller];
        writer->first_child[caller] = i;
        if (caller == 0)
            continue;
        uint64_t key = (uint64_t)function_of(writer, caller) << 32 | function_of(writer, i);
        uint64_t number;
        if (!map_get(&writer->edge_numbers, key, &number)) {
            number = writer->edge_count++;
            TRY(map_set(&writer->edge_numbers, key, number));
            uint32_t callee = function_of(writer, i);
            writer->edges[number] = (struct edge){
                .caller = function_of(writer, caller), .callee = callee, .next = writer->first_edge[callee]};
            writer->first_edge[callee] = (uint32_t)number;
        }
        writer->edge_of[i] = (uint32_t)number;
    }
    return STATUS_OK;
}

static void add(struct sums *to, const struct sums *from, bool is_outermost) {
    to->self += from->self;
    if (is_outermost) {
        to->total += from->total;
        to->samples += from->samples;
    }
}

static void enter(struct writer *writer, uint32_t stack) {
    uint32_t function = function_of(writer, stack);
    struct edge *edge = &writer->edges[writer->edge_of[stack]];
    add(&writer->sums[function], &writer->stacks[stack], writer->active[function]++ == 0);
    add(&edge->sums, &writer->stacks[stack], edge->active++ == 0);
}

static void leave(struct writer *writer, uint32_t stack) {
    writer->active[function_of(writer, stack)]--;
    writer->edges[writer->edge_of[stack]].active--;
}

/* Goes through all paths, so that a function that is on a path twice gets the path's total once. */
static void walk(struct writer *writer) {
    uint32_t at = writer->first_child[0];
    while (at != 0) {
        enter(writer, at);
        if (writer->first_child[at] != 0) {
            at = writer->first_child[at];
            continue;
        }
        while (at != 0) {
            leave(writer, at);
            if (writer->next_child[at] != 0) {
                at = writer->next_child[at];
                break;
            }
            at = selection_caller(&writer->selection, at);
        }
    }
}

static void put_u32(FILE *stream, uint32_t value) {
    for (int i = 0; i < 4; i++)
        putc((int)(value >> 8 * i & 0xff), stream);
}

/* A Python int: 'i' has 32 bits; 'l' a count of 15-bit digits and the digits, least first. */
static void put_int(FILE *stream, uint64_t value) {
    if (value <= INT32_MAX) {
        putc('i', stream);
        put_u32(stream, (uint32_t)value);
        return;
    }
    uint32_t digits = 0;
    for (uint64_t rest = value; rest != 0; rest >>= 15)
        digits++;
    putc('l', stream);
    put_u32(stream, digits);
    for (; value != 0; value >>= 15) {
        putc((int)(value & 0xff), stream);
        putc((int)(value >> 8 & 0x7f), stream);
    }
}

static void put_float(FILE *stream, double value) {
    unsigned char bytes[sizeof value];
    memcpy(bytes, &value, sizeof value);
    putc('g', stream);
    (void)fwrite(bytes, 1, sizeof bytes, stream);
}

static void put_text(FILE *stream, const char *text) {
    size_t size = strlen(text);
    putc('u', stream);
    put_u32(stream, (uint32_t)size);
    (void)fwrite(text, 1, size, stream);
}

static void put_tuple(FILE *stream, uint32_t count) {
    putc('(', stream);
    put_u32(stream, count);
}

/* In angle brackets, as pstats knows builtins; two libraries may have functions of one name. */
static void put_native_name(FILE *stream, const struct profile_frame *frame) {
    const char *name = name_of_function(frame);
    size_t size = strlen(name), file_size = strlen(frame->file);
    bool is_bracketed = size > 2 && name[0] == '<' && name[size - 1] == '>';
    if (file_size == 0) {
        put_text(stream, name);
        return;
    }
    size -= is_bracketed ? 2 : 0;
    putc('u', stream);
    put_u32(stream, (uint32_t)(size + file_size + strlen("< in >")));
    fprintf(stream, "<%.*s in %s>", (int)size, name + is_bracketed, frame->file);
}

/* What is no Python function stands as cProfile has builtins: in the file '~', line 0. A Python file of that name is
 * called otherwise. */
static void put_function(struct writer *writer, uint32_t function) {
    const struct profile_frame *frame = &writer->profile->frames[writer->functions.one_frame[function]];
    bool is_python = frame->kind == CAPTURE_FRAME_PYTHON;
    put_tuple(writer->stream, 3);
    const char *file = strcmp(frame->file, "~") == 0 ? "./~" : frame->file;
    put_text(writer->stream, is_python ? file : frame->kind == CAPTURE_FRAME_KERNEL ? "~kernel" : "~");
    put_int(writer->stream, is_python && frame->first_line > 0 ? (uint64_t)frame->first_line : 0);
    if (is_python)
        put_text(writer->stream, name_of_function(frame));
    else
        put_native_name(writer->stream, frame);
}

static void put_sums(struct writer *writer, const struct sums *sums) {
    double scale = measure_unit(writer->measure) == UNIT_NS ? 1e9 : 1;
    put_int(writer->stream, sums->samples);
    put_int(writer->stream, sums->samples);
    put_float(writer->stream, (double)sums->self / scale);
    put_float(writer->stream, (double)sums->total / scale);
}

static void put_frameless(struct writer *writer) {
    if (writer->frameless.total == 0 && writer->frameless.samples == 0)
        return;
    put_tuple(writer->stream, 3);
    put_text(writer->stream, "~");
    put_int(writer->stream, 0);
    put_text(writer->stream, "<no frames>");
    put_tuple(writer->stream, 5);
    put_sums(writer, &writer->frameless);
    putc('{', writer->stream);
    putc('0', writer->stream);
}

static void put_stats(struct writer *writer) {
    FILE *stream = writer->stream;
    putc('{', stream);
    put_frameless(writer);
    for (uint32_t i = 1; i < writer->functions.count; i++) {
        if (writer->sums[i].total == 0 && writer->sums[i].samples == 0)
            continue;
        put_function(writer, i);
        put_tuple(stream, 5);
        put_sums(writer, &writer->sums[i]);
        putc('{', stream);
        for (uint32_t edge = writer->first_edge[i]; edge != 0; edge = writer->edges[edge].next) {
            put_function(writer, writer->edges[edge].caller);
            put_tuple(stream, 4);
            put_sums(writer, &writer->edges[edge].sums);
        }
        putc('0', stream);
    }
    putc('0', stream);
}

static enum status prepare(struct writer *writer, const struct export_options *options) {
    size_t stack_count = writer->profile->stack_count + 1;
    TRY(selection_init(&writer->selection, writer->profile, options));
    TRY(functions_init(&writer->functions, writer->profile, false));
    size_t function_count = writer->functions.count;
    writer->stacks = calloc(stack_count, sizeof writer->stacks[0]);
    writer->first_child = calloc(stack_count, sizeof writer->first_child[0]);
    writer->next_child = calloc(stack_count, sizeof writer->next_child[0]);
    writer->edge_of = calloc(stack_count, sizeof writer->edge_of[0]);
    writer->edges = calloc(stack_count, sizeof writer->edges[0]);
    writer->sums = calloc(function_count, sizeof writer->sums[0]);
    writer->active = calloc(function_count, sizeof writer->active[0]);
    writer->first_edge = calloc(function_count, sizeof writer->first_edge[0]);
    writer->edge_count = 1;
    bool complete = writer->stacks != NULL && writer->first_child != NULL && writer->next_child != NULL &&
                    writer->edge_of != NULL && writer->edges != NULL && writer->sums != NULL &&
                    writer->active != NULL && writer->first_edge != NULL;
    return complete ? STATUS_OK : STATUS_FAILED;
}

static void release(struct writer *writer) {
    free(writer->stacks);
    free(writer->first_child);
    free(writer->next_child);
    free(writer->edge_of);
    free(writer->edges);
    free(writer->sums);
    free(writer->active);
    free(writer->first_edge);
    map_release(&writer->edge_numbers);
    functions_release(&writer->functions);
    selection_release(&writer->selection);
}

enum status export_write_pstats(const struct profile *profile, const struct export_options *options, FILE *stream,
                                struct error *error) {
    struct writer writer = {.stream = stream, .profile = profile, .measure = export_measure(profile, options)};
    enum status status = prepare(&writer, options);
    if (status == STATUS_OK) {
        add_entries(&writer);
        status = link_stacks(&writer);
    }
    if (status == STATUS_OK) {
        walk(&writer);
        put_stats(&writer);
    }
    release(&writer);
    return export_finish(status, stream, error);
}
