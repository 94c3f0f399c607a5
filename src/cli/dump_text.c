#include "cli/dump_writer.h"

#include "base/text.h"
#include "cli/frame_text.h"
#include "cpython/runtime.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 64 << 20 };

static const struct palette coloured = {"\033[1m",  "\033[36m", "\033[2m", "\033[1;33m",
                                        "\033[32m", "\033[31m", "\033[0m"};
static const struct palette plain = {"", "", "", "", "", "", ""};

const char *dump_safe(struct dump_writer *writer, const char *text) {
    buffer_clear(&writer->scratch);
    if (text_append_safe(&writer->scratch, text, strlen(text), true) != STATUS_OK)
        return "?";
    return buffer_text(&writer->scratch);
}

/* Begins a line of a frame. */
static void write_indent(struct dump_writer *writer, int columns) {
    fprintf(writer->stream, "%*s", writer->indent + columns, "");
}

/* What a module's namespace is full of, and nobody looks for: its functions, classes and imports. */
static bool is_furniture(const struct look_frame *frame, const struct look_local *local) {
    static const char *const types[] = {"module", "function", "type", "builtin_function_or_method", "lazy_import"};
    if (strcmp(frame->function, "<module>") != 0)
        return false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(local->type, types[i]) == 0)
            return true;
    return strncmp(local->name, "__", 2) == 0;
}

static void write_locals(struct dump_writer *writer, const struct look_frame *frame) {
    const struct palette *palette = writer->palette;
    size_t furniture = 0;
    for (size_t i = 0; i < frame->local_count; i++) {
        const struct look_local *local = &frame->locals[i];
        if (is_furniture(frame, local)) {
            furniture++;
            continue;
        }
        write_indent(writer, 8);
        fprintf(writer->stream, "%s%s%s%s", local->argument ? "(argument) " : "", palette->name,
                dump_safe(writer, local->name), palette->end);
        fprintf(writer->stream, ": %s", dump_safe(writer, local->type));
        fprintf(writer->stream, " = %s\n", dump_safe(writer, local->value));
    }
    if (furniture > 0) {
        write_indent(writer, 8);
        fprintf(writer->stream, "(and %zu functions, classes, modules and __names__)\n", furniture);
    }
    if (frame->locals_status == STATUS_OK)
        return;
    write_indent(writer, 8);
    fprintf(writer->stream, "%s(the variables could not be read: %s)%s\n", palette->warning,
            status_name(frame->locals_status), palette->end);
}

/* The place in the table that frames like this one have. */
static struct remembered_frame *find_remembered(struct dump_writer *writer, const struct look_frame *frame) {
    uint64_t hash = (uint64_t)(uintptr_t)frame->function ^ (uint64_t)(uint32_t)frame->position.line << 32 ^
                    (uint64_t)(uint32_t)frame->position.column << 8;
    return &writer->remembered[hash * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

static bool is_like(const struct remembered_frame *known, const struct look_frame *frame, int indent) {
    return known->function == frame->function && known->file == frame->file && known->indent == indent &&
           known->collecting == frame->collecting &&
           memcmp(&known->position, &frame->position, sizeof known->position) == 0;
}

/* Where the frame is and its line of source: made once for all frames that are alike. */
static enum status write_place(struct dump_writer *writer, const struct look_frame *frame) {
    enum { REMEMBERED_BYTES = 256 << 10 };
    struct buffer *text = &writer->remembered_text;
    struct remembered_frame *known = find_remembered(writer, frame);
    if (!is_like(known, frame, writer->indent)) {
        if (text->size_bytes > REMEMBERED_BYTES) {
            buffer_clear(text);
            memset(writer->remembered, 0, sizeof writer->remembered);
        }
        size_t begin = text->size_bytes;
        TRY(frame_text_append(text, writer->sources, writer->palette, frame, (size_t)writer->indent));
        *known = (struct remembered_frame){frame->function,   frame->file, frame->position, writer->indent,
                                           frame->collecting, begin,       text->size_bytes};
    }
    (void)fwrite_unlocked(text->data + known->begin, 1, known->end - known->begin, writer->stream);
    return STATUS_OK;
}

void dump_write_frame(struct dump_writer *writer, const struct look_frame *frame) {
    const struct palette *palette = writer->palette;
    if (frame->status != STATUS_OK) {
        write_indent(writer, 4);
        fprintf(writer->stream, "%s(a frame that could not be read: %s)%s\n", palette->warning,
                status_name(frame->status), palette->end);
        return;
    }
    if (write_place(writer, frame) != STATUS_OK)
        fprintf(writer->stream, "    %s(a frame that could not be shown)%s\n", palette->warning, palette->end);
    write_locals(writer, frame);
}

static void write_headline(struct dump_writer *writer, const struct look *look, const struct look_thread *thread) {
    static const char *const gil_texts[] = {
        [GIL_NONE] = "", [GIL_WAITING] = ", waits for the GIL", [GIL_HELD] = ", holds the GIL"};
    fprintf(writer->stream, "\n%sThread %llu%s", writer->palette->thread, (unsigned long long)thread->native_id,
            writer->palette->end);
    if (thread->name != NULL)
        fprintf(writer->stream, " \"%s\"", dump_safe(writer, thread->name));
    fprintf(writer->stream, " (%s%s%s)", thread->state == THREAD_RUNNING ? "running" : "idle", gil_texts[thread->gil],
            thread->collecting ? ", collecting garbage" : "");
    if (look->interpreter_count > 1)
        fprintf(writer->stream, " in interpreter %lld", (long long)thread->interpreter);
    if (!thread->consistent)
        fprintf(writer->stream, " %s[changed while it was read; --blocking reads it at rest]%s",
                writer->palette->warning, writer->palette->end);
    fputc('\n', writer->stream);
}

static void write_thread(struct dump_writer *writer, const struct look *look, const struct look_thread *thread) {
    write_headline(writer, look, thread);
    if (thread->frame_count == 0)
        fputs("    (no Python frames)\n", writer->stream);
    for (size_t i = 0; i < thread->frame_count; i++)
        dump_write_frame(writer, &thread->frames[i]);
    if (thread->cut)
        fputs("    (deeper frames are not shown)\n", writer->stream);
}

/* Threads of native libraries have no Python to show: one line names them all. */
static void write_native_threads(struct dump_writer *writer, const struct look *look) {
    size_t count = 0;
    for (size_t i = 0; i < look->thread_count; i++) {
        const struct look_thread *thread = &look->threads[i];
        if (thread->has_python)
            continue;
        fprintf(writer->stream, "%s%llu", count++ == 0 ? "\nThreads that run no Python: " : ", ",
                (unsigned long long)thread->native_id);
        if (thread->name != NULL)
            fprintf(writer->stream, " \"%s\"", dump_safe(writer, thread->name));
    }
    if (count > 0)
        fputc('\n', writer->stream);
}

static void write_title(struct dump_writer *writer, const struct look *look) {
    char version[40] = "(starting up or shutting down)";
    if (look->version != 0)
        runtime_format_version(look->version, version);
    fprintf(writer->stream, "Process %d, Python %s%s:", (int)look->pid, version,
            look->free_threaded ? " free-threaded" : "");
    for (char **argument = look->command; *argument != NULL; argument++)
        fprintf(writer->stream, " %s", dump_safe(writer, *argument));
    fputc('\n', writer->stream);
    if (look->thread_count == 0)
        fputs("\n(no threads: Python is starting up or shutting down)\n", writer->stream);
}

enum status dump_write_text(const struct look *look, struct source_cache *sources, bool colour, FILE *stream) {
    struct dump_writer writer = {.stream = stream, .sources = sources, .palette = colour ? &coloured : &plain};
    buffer_init(&writer.remembered_text, MAX_TEXT_BYTES);
    buffer_init(&writer.scratch, MAX_TEXT_BYTES);
    write_title(&writer, look);
    for (size_t i = 0; i < look->thread_count; i++)
        if (look->threads[i].has_python)
            write_thread(&writer, look, &look->threads[i]);
    if (!look->threads_complete)
        fprintf(stream, "\n%s(some threads are missing: the list of them changed at every attempt to read it)%s\n",
                writer.palette->warning, writer.palette->end);
    write_native_threads(&writer, look);
    enum status status = look->has_tasks ? dump_write_tasks(&writer, look) : STATUS_OK;
    buffer_release(&writer.scratch);
    buffer_release(&writer.remembered_text);
    return status;
}
