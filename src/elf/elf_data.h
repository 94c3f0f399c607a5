/* The data of an object as they are once it is loaded, at its own addresses: with its relocations applied, read from
 * its file alone. And what of it is code. */
#ifndef STROBE_ELF_ELF_DATA_H
#define STROBE_ELF_ELF_DATA_H

#include "elf/elf_image.h"

struct elf_data;

/* What can be read: a segment that is not (only) code. */
struct elf_data_run {
    uint64_t address;
    const uint8_t *bytes;
    size_t size_bytes;
    bool writable; /* until the dynamic linker is done, at least: what has relocations is there */
};

/* STATUS_LIMIT when it has more than `limit_bytes`. The file is not needed afterwards. */
enum status elf_data_load(struct elf_file *file, size_t limit_bytes, struct elf_data **data) MUST_USE;
void elf_data_free(struct elf_data *data);

const struct elf_data_run *elf_data_runs(const struct elf_data *data, size_t *count);
bool elf_data_read_word(const struct elf_data *data, uint64_t address, uint64_t *word);
/* A NUL-terminated text of at most max_bytes with its NUL, or NULL. */
const char *elf_data_text(const struct elf_data *data, uint64_t address, size_t max_bytes);
/* Whether anything that can be read is there. */
bool elf_data_holds(const struct elf_data *data, uint64_t address);
bool elf_data_is_code(const struct elf_data *data, uint64_t address);

#endif
