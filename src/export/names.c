#include "export/names.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

static const char *kind_name(enum capture_frame_kind kind) {
    static const char *const names[CAPTURE_FRAME_KINDS] = {
        [CAPTURE_FRAME_PYTHON] = "<unknown>",
        [CAPTURE_FRAME_NATIVE] = "<native>",
        [CAPTURE_FRAME_GC] = "<GC>",
        [CAPTURE_FRAME_KERNEL] = "<kernel>",
        [CAPTURE_FRAME_UNREADABLE] = "<unreadable>",
        [CAPTURE_FRAME_CUT] = "<frames left out>",
        [CAPTURE_FRAME_TASK] = "<task>",
    };
    return (unsigned)kind < CAPTURE_FRAME_KINDS ? names[kind] : "<unknown>";
}

const char *name_of_function(const struct profile_frame *frame) {
    return frame->function[0] != '\0' ? frame->function : kind_name(frame->kind);
}

const char *name_of_frame(const struct profile_frame *frame) {
    return frame->qualname[0] != '\0' ? frame->qualname : name_of_function(frame);
}

enum status name_append_thread(struct buffer *buffer, const struct profile *profile, uint32_t thread) {
    const struct profile_thread *which = &profile->threads[thread];
    uint64_t id = which->native_id != 0 ? which->native_id : which->thread_id;
    if (profile->process_count > 1)
        TRY(buffer_append_format(buffer, "[%" PRId32 "] ", profile->processes[which->process].pid));
    return buffer_append_format(buffer, "%s (%" PRIu64 ")", which->name[0] != '\0' ? which->name : "?", id);
}

/* It is a title: of thousands of files the first ones are enough. */
enum { COMMAND_MAX_BYTES = 4096 };

enum status name_append_command(struct buffer *buffer, const struct profile_process *process) {
    size_t room = COMMAND_MAX_BYTES;
    for (size_t i = 0; i < process->command_count; i++) {
        const char *word = process->command[i];
        size_t size_bytes = strlen(word);
        if (i > 0)
            TRY(buffer_append_char(buffer, ' '));
        bool is_cut = size_bytes > room;
        if (is_cut)
            for (size_bytes = room; size_bytes > 0 && ((unsigned char)word[size_bytes] & 0xc0) == 0x80; size_bytes--) {
            }
        TRY(buffer_append(buffer, word, size_bytes));
        if (is_cut)
            return buffer_append_text(buffer, "…");
        room -= size_bytes;
    }
    return STATUS_OK;
}

/* PY_VERSION_HEX: major, minor, micro as bytes, then the release level and its serial as four bits each
 * (Include/patchlevel.h). */
void name_format_version(uint32_t version_hex, char text[static NAME_VERSION_BYTES]) {
    static const char *const levels[16] = {[0xa] = "a", [0xb] = "b", [0xc] = "rc"};
    const char *level = levels[version_hex >> 4 & 0xf];
    text[0] = '\0';
    if (version_hex == 0)
        return;
    int length = snprintf(text, NAME_VERSION_BYTES, "%u.%u.%u", version_hex >> 24, version_hex >> 16 & 0xff,
                          version_hex >> 8 & 0xff);
    if (level != NULL)
        snprintf(text + length, NAME_VERSION_BYTES - (size_t)length, "%s%u", level, version_hex & 0xf);
}

void name_format_time(uint64_t unix_ns, char text[static NAME_TIME_BYTES]) {
    time_t seconds = (time_t)(unix_ns / 1000000000);
    struct tm parts;
    text[0] = '\0';
    if (gmtime_r(&seconds, &parts) != NULL)
        (void)strftime(text, NAME_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts);
}
