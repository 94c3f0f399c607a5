/* Records what strobe reads of a Python process when it looks at everything, and prints what it saw:
 *
 *   record_image PID IMAGE [GRANULE] > TEXT
 *
 * The process must not move meanwhile. GRANULE (bytes, a power of two) is how much is kept around each byte read. */
#include "cpython/interp.h"
#include "process/process.h"
#include "sampler/locate.h"
#include "traverse.h"
#include "unwind/linked_tracker.h"
#include "unwind/python_stack.h"

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

/* Reads the stack in the ways in which a look does only when it has to, and a sampler always. */
static void record_stack(struct runtime *runtime, struct code_cache *codes, struct thread_state thread) {
    struct stack_reader reader;
    struct python_stack stack = {0};
    stack_reader_init(&reader, runtime, codes);
    if (python_stack_read(&reader, &thread, 1, &stack) != STATUS_OK || !stack.consistent)
        fail("a stack cannot be read link by link");
    python_stack_release(&stack);
    stack_reader_release(&reader);
    if (!linked_tracker_supports(runtime))
        return;
    struct linked_tracker tracker;
    linked_tracker_init(&tracker, runtime, codes);
    if (linked_tracker_look(&tracker, &thread, 1) != STATUS_OK)
        fail("a stack cannot be tracked");
    linked_tracker_release(&tracker);
}

static void record_stacks(struct memory *memory, const struct runtime_symbols *symbols) {
    struct error error = {0};
    struct runtime runtime;
    struct code_cache codes;
    struct interp interp;
    struct thread_state thread;
    remote_addr address = 0;
    if (runtime_open(&runtime, memory, memory, symbols, &error) != STATUS_OK ||
        interp_first(&runtime, &address) != STATUS_OK || interp_read(&runtime, address, &interp) != STATUS_OK)
        fail("the interpreter cannot be read");
    code_cache_init(&codes, &runtime);
    for (address = interp.threads_head; address != 0; address = thread.next) {
        if (thread_state_read(&runtime, address, &thread) != STATUS_OK)
            fail("a thread cannot be read");
        record_stack(&runtime, &codes, thread);
    }
    code_cache_release(&codes);
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
    struct traverse_start start = {.symbols = find_runtime(process)};
    if (locate_asyncio_debug(process, &start.symbols, &start.asyncio_debug) != STATUS_OK)
        start.asyncio_debug = 0;
    size_t granule_bytes = argc == 4 ? strtoull(argv[3], NULL, 10) : DEFAULT_GRANULE_BYTES;
    memory_recorder_init(&recorder, process_memory(process), granule_bytes);
    buffer_init(&text, TEXT_LIMIT_BYTES);
    buffer_init(&file, MEMORY_IMAGE_MAX_BYTES);
    if (traverse(&recorder.memory, &start, TRAVERSE_LOCALS_CHARS, NULL, &text) != STATUS_OK)
        fail("the process cannot be read");
    record_stacks(&recorder.memory, &start.symbols);
    traverse_note_start(&start, notes);
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
