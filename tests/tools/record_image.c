/* Records what strobe reads of a Python process when it looks at everything, and prints what it saw:
 *
 *   record_image PID IMAGE [GRANULE] > TEXT
 *
 * The process must not move meanwhile. GRANULE (bytes, a power of two) is how much is kept around each byte read. */
#include "process/process.h"
#include "sampler/locate.h"
#include "traverse.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEFAULT_GRANULE_BYTES = 128, TEXT_LIMIT_BYTES = 64 << 20 };

static _Noreturn void fail(const char *why) {
    (void)fprintf(stderr, "record_image: %s\n", why);
    exit(1);
}

static void write_file(const char *path, const struct buffer *content) {
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(content->data, 1, content->size_bytes, file) != content->size_bytes || fclose(file) != 0)
        fail("the image cannot be written");
}

/* The candidate in which an interpreter lives; without one, the first. */
static struct runtime_symbols find_runtime(struct process *process) {
    struct error error = {0};
    struct located located;
    struct runtime runtime;
    struct memory *memory = process_memory(process);
    if (locate_runtime(process, &located, &error) != STATUS_OK || located.count == 0)
        fail(error.text);
    for (size_t i = 0; i < located.count; i++)
        if (runtime_open(&runtime, memory, memory, &located.candidates[i], &error) == STATUS_OK && !runtime.empty)
            return located.candidates[i];
    return located.candidates[0];
}

int main(int argc, char **argv) {
    struct error error = {0};
    struct process *process = NULL;
    struct memory_recorder recorder;
    struct buffer text, file;
    uint64_t notes[MEMORY_IMAGE_NOTES];
    if (argc != 3 && argc != 4)
        fail("usage: record_image PID IMAGE [GRANULE]");
    if (process_open((pid_t)strtol(argv[1], NULL, 10), &process, &error) != STATUS_OK)
        fail(error.text);
    struct runtime_symbols symbols = find_runtime(process);
    size_t granule_bytes = argc == 4 ? strtoull(argv[3], NULL, 10) : DEFAULT_GRANULE_BYTES;
    memory_recorder_init(&recorder, process_memory(process), granule_bytes);
    buffer_init(&text, TEXT_LIMIT_BYTES);
    buffer_init(&file, MEMORY_IMAGE_MAX_BYTES);
    if (traverse(&recorder.memory, &symbols, NULL, &text) != STATUS_OK)
        fail("the process cannot be read");
    traverse_note_symbols(&symbols, notes);
    if (memory_recorder_save(&recorder, notes, &file) != STATUS_OK)
        fail("the image is too large");
    write_file(argv[2], &file);
    (void)fwrite(text.data, 1, text.size_bytes, stdout);
    buffer_release(&file);
    buffer_release(&text);
    memory_recorder_release(&recorder);
    process_free(process);
    return 0;
}
