/* Any bytes as an ELF object: as a file, as an image in a target's memory, and as one that holds an interpreter.
 * The corpus begins with a four-symbol object (a _PyRuntime in a section of its own, a Py_Version), linked with -N so
 * that file and image are the same bytes: shared with either hash table, stripped, static, and not linked at all; and
 * with an extension module of four functions in tables of each kind, for x86-64 and aarch64. */
#include "base/memory.h"
#include "elf/elf_data.h"
#include "elf/elf_image.h"
#include "elf/machine_code.h"
#include "elf/symbol_table.h"
#include "elf/unwind_table.h"
#include "sampler/c_functions.h"
#include "sampler/eval_loop.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

#define IMAGE_BASE UINT64_C(0x7f1234560000)
/* Reads that one question about an image may cost: a hash chain is followed for 4,096 steps of up to three reads, and
 * a few more lead there. */
enum { READS_MAX = 3 * 4096 + 8 };
enum { RANGES_ASKED = 64 };

static void require(bool condition) {
    if (!condition)
        abort();
}

struct image_memory {
    struct memory memory;
    const uint8_t *data;
    size_t size_bytes;
    size_t reads;
};

static enum status read_image(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct image_memory *image = (struct image_memory *)memory;
    require(++image->reads <= READS_MAX);
    if (address < IMAGE_BASE || address - IMAGE_BASE > image->size_bytes ||
        size_bytes > image->size_bytes - (address - IMAGE_BASE))
        return STATUS_UNREADABLE;
    memcpy(buffer, image->data + (address - IMAGE_BASE), size_bytes);
    return STATUS_OK;
}

static void ask_image(struct image_memory *memory) {
    static const char *const names[] = {"_PyRuntime", "Py_Version", "a1", ""};
    struct elf_image image;
    if (elf_image_open(&image, &memory->memory, IMAGE_BASE) != STATUS_OK)
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        remote_addr address = 0;
        memory->reads = 0;
        (void)!elf_image_find(&image, names[i], &address);
    }
    memory->reads = 0;
    (void)elf_image_needs(&image, "libpython");
}

/* Rows all over the ranges of a table. */
static void ask_table(struct unwind_table *table) {
    size_t count = 0;
    const struct unwind_range *ranges = unwind_table_ranges(table, &count);
    for (size_t i = 0; i < count && i < RANGES_ASKED; i++) {
        struct unwind_row row;
        require(ranges[i].start < ranges[i].end && (i == 0 || ranges[i - 1].end <= ranges[i].start));
        require(unwind_table_find(table, ranges[i].start) == &ranges[i]);
        (void)!unwind_table_read_row(table, ranges[i].start, &row);
        (void)!unwind_table_read_row(table, ranges[i].start + (ranges[i].end - ranges[i].start) / 2, &row);
        (void)!unwind_table_read_row(table, ranges[i].end - 1, &row);
    }
}

static void ask_code(struct elf_file *file) {
    struct unwind_table *table = NULL;
    struct symbol_table *symbols = NULL;
    struct elf_data *data = NULL;
    struct c_functions *functions = NULL;
    static struct eval_loop loop;
    struct symbol symbol;
    if (symbol_table_load(file, file, &symbols) == STATUS_OK)
        (void)!symbol_table_find(symbols, 0x1000, &symbol);
    if (unwind_table_load(file, &table) == STATUS_OK)
        ask_table(table);
    if (table != NULL && elf_data_load(file, 1 << 20, &data) == STATUS_OK) {
        size_t count = 0;
        uint64_t start = unwind_table_ranges(table, &count)->start;
        (void)!elf_file_find_symbol(file, "_PyEval_EvalFrameDefault", &start);
        (void)!eval_loop_find(file, data, table, start, &loop);
        if (c_functions_find_all(file, data, table, &functions) == STATUS_OK)
            (void)c_functions_find(functions, 0x1000);
    }
    c_functions_free(functions);
    elf_data_free(data);
    unwind_table_free(table);
    symbol_table_free(symbols);
}

static void ask_file(const uint8_t *data, size_t size_bytes) {
    static const char *const names[] = {"_PyRuntime", ".PyRuntime", ""};
    struct elf_file *file = NULL;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size_bytes) == (ssize_t)size_bytes);
    if (elf_file_open(fd, &file) == STATUS_OK) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            uint64_t address = 0;
            uint64_t section_bytes = 0;
            (void)!elf_file_find_symbol(file, names[i], &address);
            (void)!elf_file_find_section(file, names[i], &address, &section_bytes);
        }
        ask_code(file);
    }
    elf_file_free(file);
    (void)close(fd);
}

static void ask_instructions(const uint8_t *data, size_t size_bytes) {
    static const uint16_t machines[] = {EM_X86_64, EM_AARCH64, EM_386};
    uint64_t target = 0;
    for (size_t i = 0; i < sizeof machines / sizeof *machines && size_bytes >= MACHINE_CODE_CALL_BYTES; i++) {
        (void)machine_code_call(machines[i], data, IMAGE_BASE, &target);
        (void)machine_code_system_call(machines[i], data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct image_memory memory = {.memory = {.read = read_image}, .data = data, .size_bytes = size_bytes};
    ask_instructions(data + size_bytes / 2, size_bytes - size_bytes / 2);
    ask_image(&memory);
    ask_file(data, size_bytes);
    return 0;
}
