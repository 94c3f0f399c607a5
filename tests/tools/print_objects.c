/* Shows objects of a running Python: print_objects PID RUNTIME MAX_CHARACTERS, with the address of _PyRuntime. Standard
 * input names the objects, one decimal address a line; for each, its type's name and its text go to standard output,
 * each with a NUL behind it. */
#include "cpython/repr.h"
#include "process/process.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEXT_LIMIT_BYTES = 16 << 20 };

static _Noreturn void fail(const char *why) {
    fprintf(stderr, "print_objects: %s\n", why);
    exit(2);
}

static void print_object(struct runtime *runtime, remote_addr address, size_t max_characters, struct buffer *text) {
    buffer_clear(text);
    if (repr_append_type_name(runtime, address, text) != STATUS_OK || buffer_append_char(text, '\0') != STATUS_OK ||
        repr_append(runtime, address, max_characters, text) != STATUS_OK)
        fail("an object could not be shown");
    fwrite(text->data, 1, text->size_bytes + 1, stdout);
}

int main(int argc, char **argv) {
    struct error error = {0};
    struct process *process = NULL;
    struct runtime runtime;
    struct buffer text;
    char line[32];
    if (argc != 4)
        fail("usage: print_objects PID RUNTIME MAX_CHARACTERS < ADDRESSES");
    if (process_open((pid_t)strtol(argv[1], NULL, 10), &process, &error) != STATUS_OK)
        fail(error.text);
    struct memory *memory = process_memory(process);
    struct runtime_symbols symbols = {.runtime = strtoull(argv[2], NULL, 10)};
    if (runtime_open(&runtime, memory, memory, &symbols, &error) != STATUS_OK)
        fail(error.text);
    size_t max_characters = strtoull(argv[3], NULL, 10);
    buffer_init(&text, TEXT_LIMIT_BYTES);
    while (fgets(line, sizeof line, stdin) != NULL)
        print_object(&runtime, strtoull(line, NULL, 10), max_characters, &text);
    buffer_release(&text);
    process_free(process);
    return 0;
}
