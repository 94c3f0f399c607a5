/* Any bytes as an ELF object: as a file, and as an image in a target's memory.
 * The corpus begins with a four-symbol object (a _PyRuntime in a section of its own, a Py_Version), linked with -N so
 * that file and image are the same bytes: shared with either hash table, stripped, static, and not linked at all. */
#include "base/memory.h"
#include "elf/elf_image.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

#define IMAGE_BASE UINT64_C(0x7f1234560000)
/* Reads that one question about an image may cost: a hash chain is followed for 4,096 steps of up to three reads, and
 * a few more lead there. */
enum { READS_MAX = 3 * 4096 + 8 };

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
    }
    elf_file_free(file);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct image_memory memory = {.memory = {.read = read_image}, .data = data, .size_bytes = size_bytes};
    ask_image(&memory);
    ask_file(data, size_bytes);
    return 0;
}
