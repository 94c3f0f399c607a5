/* Stacks as lines: "outermost;…;innermost weight", as flame graph tools read them. A frame is `file.py:function:line`;
 * with several threads the first entry is `thread NAME (ID)`. Times are whole microseconds: some readers make a sample
 * of each unit, and would never end with nanoseconds. What rounding takes from one line goes to the next, so that their
 * sum is what was measured. */
#include "base/buffer.h"
#include "export/export.h"
#include "export/names.h"
#include "export/selection.h"

#include <inttypes.h>
#include <stdlib.h>

/* How many bytes at `text` end a line for some reader: U+0085, U+2028 and U+2029 do for Python's splitlines(). */
static size_t line_end_bytes(const unsigned char *text) {
    if (text[0] == 0xc2 && text[1] == 0x85)
        return 2;
    return text[0] == 0xe2 && text[1] == 0x80 && (text[2] == 0xa8 || text[2] == 0xa9) ? 3 : 0;
}

/* ';' ends a frame and a line's end the stack: neither may come from a name. */
static void put_plain(FILE *stream, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        size_t ends = line_end_bytes(at);
        putc(ends > 0 || *at < ' ' ? ' ' : *at == ';' ? ',' : *at, stream);
        at += ends > 0 ? ends : 1;
    }
}

static void put_frame(FILE *stream, const struct profile_frame *frame) {
    if (frame->file[0] != '\0') {
        put_plain(stream, frame->file);
        putc(':', stream);
    }
    put_plain(stream, name_of_function(frame));
    if (frame->line >= 0)
        fprintf(stream, ":%" PRId32, frame->line);
}

static enum status put_thread(FILE *stream, const struct profile *profile, uint32_t thread) {
    struct buffer name;
    buffer_init(&name, NAME_LIMIT_BYTES);
    enum status status = name_append_thread(&name, profile, thread);
    fputs("thread ", stream);
    put_plain(stream, buffer_text(&name));
    buffer_release(&name);
    return status;
}

enum { NS_PER_US = 1000 };

/* The whole units of a weight. `rest` carries from line to line what is no whole unit; it starts at half a unit. */
static uint64_t whole_units(uint64_t weight, enum measure measure, uint64_t *rest) {
    if (measure_unit(measure) != UNIT_NS)
        return weight;
    *rest += weight % NS_PER_US;
    uint64_t units = weight / NS_PER_US + *rest / NS_PER_US;
    *rest %= NS_PER_US;
    return units;
}

static enum status put_entries(const struct selection *selection, enum measure measure, bool names_threads,
                               uint32_t *frames, FILE *stream) {
    const struct profile *profile = selection->profile;
    uint64_t rest = NS_PER_US / 2;
    for (size_t i = 0; i < profile->entry_count; i++) {
        const struct profile_entry *entry = &profile->entries[i];
        if (!selection_has(selection, entry->thread, entry->stack))
            continue;
        uint64_t weight = whole_units(profile_value(profile, i, measure), measure, &rest);
        if (weight == 0)
            continue;
        size_t count = selection_frames(selection, entry->stack, frames);
        if (names_threads)
            TRY(put_thread(stream, profile, entry->thread));
        if (count == 0)
            fputs(names_threads ? ";<no frames>" : "<no frames>", stream);
        for (size_t j = 0; j < count; j++) {
            if (j > 0 || names_threads)
                putc(';', stream);
            put_frame(stream, &profile->frames[frames[j]]);
        }
        fprintf(stream, " %" PRIu64 "\n", weight);
    }
    return STATUS_OK;
}

enum status export_write_collapsed(const struct profile *profile, const struct export_options *options, FILE *stream,
                                   struct error *error) {
    struct selection selection = {0};
    uint32_t *frames = NULL;
    enum status status = selection_init(&selection, profile, options);
    if (status != STATUS_OK)
        goto out;
    status = STATUS_FAILED;
    frames = calloc(selection_max_depth(&selection) + 1, sizeof frames[0]);
    if (frames != NULL)
        status = put_entries(&selection, export_measure(profile, options),
                             profile->thread_count > 1 || (options != NULL && options->threads), frames, stream);
out:
    free(frames);
    selection_release(&selection);
    return export_finish(status, stream, error);
}
