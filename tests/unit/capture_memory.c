#include "capture_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void require(bool condition) {
    if (!condition)
        abort();
}

struct capture_writer *memory_writer_open(struct capture_memory *memory, const struct capture_writer_options *options) {
    struct capture_text command[] = {{"python3", 7}, {"x.py", 4}};
    struct capture_process process = {.pid = 42,
                                      .parent_pid = 1,
                                      .python_version = 0x030d00f0,
                                      .mode = CAPTURE_MODE_WALL,
                                      .rate_millihertz = 1000000,
                                      .start_unix_ns = 1700000000000000000,
                                      .start_ns = 5000000000,
                                      .command = command,
                                      .command_count = 2};
    struct capture_thread thread = {.native_id = 42, .thread_id = 0x7f00, .interpreter = 0, .name = {"MainThread", 10}};
    struct capture_writer *writer = NULL;
    uint32_t id = 0;
    *memory = (struct capture_memory){.descriptor = memfd_create("capture", MFD_CLOEXEC)};
    require(memory->descriptor >= 0);
    require(capture_writer_open_descriptor(dup(memory->descriptor), options, &writer, NULL) == STATUS_OK);
    require(capture_add_process(writer, &process) == STATUS_OK);
    require(capture_add_thread(writer, &thread, &id) == STATUS_OK && id == 1);
    return writer;
}

void memory_take(struct capture_memory *memory) {
    off_t size_bytes = lseek(memory->descriptor, 0, SEEK_END);
    free(memory->bytes);
    memory->bytes = malloc((size_t)size_bytes + 1);
    memory->size_bytes = (size_t)size_bytes;
    require(memory->bytes != NULL);
    require(pread(memory->descriptor, memory->bytes, memory->size_bytes, 0) == (ssize_t)size_bytes);
}

void memory_release(struct capture_memory *memory) {
    free(memory->bytes);
    (void)close(memory->descriptor);
}

uint32_t memory_stack(struct capture_writer *writer, const char *file, const char *const *functions,
                      const int32_t *lines, size_t count) {
    uint32_t stack = 0;
    for (size_t i = 0; i < count; i++) {
        struct capture_frame frame = {
            .line = lines[i], .end_line = lines[i], .column = -1, .end_column = -1, .first_line = 1};
        uint32_t id = 0;
        require(capture_intern_string(writer, functions[i], strlen(functions[i]), &frame.function) == STATUS_OK);
        require(capture_intern_string(writer, file, strlen(file), &frame.file) == STATUS_OK);
        require(capture_intern_frame(writer, &frame, &id) == STATUS_OK);
        require(capture_intern_stack(writer, stack, id, &stack) == STATUS_OK);
    }
    return stack;
}
